"""`reweigh audit`: every training row ranked by suspicion."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def audit(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder of `reweigh train`.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="F", help="Where to: .csv or .parquet.  [default: RUN/audit.csv]"),
    ] = None,
    show: Annotated[int, typer.Option(metavar="N", help="Print the first N.")] = 10,
) -> None:
    """List every training row by how suspicious its label is, the most suspicious first.

    Columns: index (position of the row in the data, from 0), given_label, suggested_label (where
    the model is confident), suspicion (0 to 1), mean_weight (1 is what a row counts in plain
    training), zero_share (share of its steps in which it did not help the checked rows), seen.

    Look through the first ones with `reweigh review RUN`.
    """
    from rich.console import Console
    from rich.table import Table

    from ..app import write_audit_list

    path, rows, head = write_audit_list(run, out, head=show)
    if head:
        table = Table(box=None, header_style="bold", pad_edge=False)
        for column in head[0]:
            table.add_column(column, justify="left" if column.endswith("label") else "right")
        for entry in head:
            table.add_row(*map(_cell, entry.values()))
        Console(highlight=False, markup=False).print(table)
    typer.echo(f"{rows:,} rows, most suspicious first, in {path}")


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
