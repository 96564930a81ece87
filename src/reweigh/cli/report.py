"""`reweigh report`: tables and figures of what lies in a folder."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command()
def report(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder of `reproduce`, `demo` or `train`.")
    ],
) -> None:
    """Write report.html from the results in DIR: one page that needs nothing else."""
    from ..report import write_report

    typer.echo(write_report(folder))
