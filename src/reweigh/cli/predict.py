"""`reweigh predict`: labels and probabilities for new rows."""

from pathlib import Path
from typing import Annotated

import typer

from .stdin_format import StdinFormat, check_format

app = typer.Typer(add_completion=False)


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder of `reweigh train`.")],
    data: Annotated[
        Path,
        typer.Option(
            metavar="D",
            help="New rows, of the form the run was trained on: a table, or images; - is standard input.",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="F", help="Where to: .csv or .parquet.")],
    encoding: Annotated[str, typer.Option(help="Of a CSV file.")] = "utf-8",
    form: StdinFormat = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the file F, if it is none that was read.")
    ] = False,
) -> None:
    """Predict with a trained run: one row out for every row in, in the same order.

    Columns: index, predicted, and the probability of each class. The target column may be missing
    in the data. Examples:

    reweigh predict reweigh-run --data new.csv --out predicted.csv

    tail -n 100 new.jsonl | reweigh predict reweigh-run --data - --out predicted.csv
    """
    from tempfile import TemporaryDirectory

    from ..app import STDIN, received, write_predictions

    check_format(form, piped=data == STDIN)
    with TemporaryDirectory() as folder:
        file = received(Path(folder), form) if data == STDIN else data
        rows = write_predictions(run, file, out, encoding=encoding, force=force)
    typer.echo(f"{rows:,} predictions in {out}")
