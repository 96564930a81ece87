"""`reweigh predict`: labels and probabilities for new rows."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder of `reweigh train`.")],
    data: Annotated[
        Path,
        typer.Option(
            metavar="D", help="New rows, of the form the run was trained on: a table, or images."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="F", help="Where to: .csv or .parquet.")],
    encoding: Annotated[str, typer.Option(help="Of a CSV file.")] = "utf-8",
    force: Annotated[
        bool, typer.Option("--force", help="Replace the file F, if it is none that was read.")
    ] = False,
) -> None:
    """Predict with a trained run: one row out for every row in, in the same order.

    Columns: index, predicted, and the probability of each class. The target column may be missing
    in the data. Example:  reweigh predict reweigh-run --data new.csv --out predicted.csv
    """
    from ..app import write_predictions

    rows = write_predictions(run, data, out, encoding=encoding, force=force)
    typer.echo(f"{rows:,} predictions in {out}")
