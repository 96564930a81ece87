"""`reweigh audit`: every training row ranked by suspicion."""

from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(add_completion=False)

SHOWN = {
    "index": "index", "given_label": "given", "suggested": "suggested", "probability_wrong": "p(wrong)",
    "probability_suggested": "p(suggested)", "flagged": "flagged", "suspicion": "suspicion",
}  # fmt: skip
WITHOUT = {
    "index": "index", "given_label": "given", "suggested_label": "suggested", "suspicion": "suspicion",
    "mean_weight": "weight", "zero_share": "zero share", "seen": "seen",
}  # fmt: skip
"""Columns that are printed, and short names for them; all are in the file. The second where no probability is known."""
WORDS = ("file", "given_label", "suggested_label", "suggested")
YES = {True: "yes", False: ""}


@app.command()
def audit(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder of `reweigh train`.")],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="F",
            help="Where to: .csv or .parquet, or as --format says.  [default: RUN/audit.csv]",
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="For which tool: table, cleanlab (.csv, .parquet), label-studio (.json), huggingface or "
            "fiftyone (a new folder).  [default: table]",
        ),
    ] = None,
    rows: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Write only the first N rows.")
    ] = None,
    false_alarms: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Flag as many labels as possible, of which at most this share is expected to be right.",
        ),
    ] = 0.1,
    show: Annotated[int, typer.Option(metavar="N", help="Print the first N.")] = 10,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the file F, if it is none of the run's.")
    ] = False,
) -> None:
    """List every training row by how suspicious its label is, the most suspicious first.

    Columns: index (position of the row in the data, from 0), given_label, suggested_label (where
    the model is confident), suspicion (0 to 1), mean_weight (1 is what a row counts in plain
    training), zero_share (share of its steps in which it did not help the checked rows), seen,
    posterior, probability_wrong (that the label is wrong), suggested and probability_suggested (the
    likeliest other label), flagged (see --false-alarms), source, against_share (share of its steps in which
    the model gave other labels more than half of the probability). Lists of texts and images have the text
    or the path of the image, too.

    Decisions made in Label Studio come back with `reweigh review RUN --import EXPORT`.
    Look through the first ones with `reweigh review RUN`.
    """
    from ..app import label_notes, read_audit_list, write_audit_list
    from ..errors import StorageError

    failure = None
    try:
        path, count, head = write_audit_list(
            run, out, head=show, force=force, form=form, rows=rows, say=_notice,
            false_alarms=false_alarms,
        )  # fmt: skip
    except StorageError as error:
        if out is not None:
            raise
        failure = error  # a run that may only be looked at: look at it
        count, head = read_audit_list(run, head=show, false_alarms=false_alarms)
    _print(head)
    for note in label_notes(run, false_alarms):
        typer.echo(note)
    if failure is None:
        order = "" if form == "cleanlab" else ", most suspicious first,"
        typer.echo(f"{count:,} rows{order} in {path}")
    else:
        typer.echo(f"{count:,} rows; the list was not written: {failure}", err=True)


def _print(head: list[dict[str, Any]]) -> None:
    """The first rows, as a table."""
    from rich.console import Console
    from rich.table import Table

    if not head:
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    shown = dict(SHOWN if head[0].get("probability_wrong") is not None else WITHOUT)
    if "file" in head[0]:  # of several: where a person finds the row, and room for long names
        less = ["index", "probability_suggested", "zero_share", "seen"]
        less += ["suspicion"] if "probability_wrong" in shown else []
        kept = {name: short for name, short in shown.items() if name not in less}
        shown = {"file": "file", "row": "row", **kept}
    for column, short in shown.items():
        if column in head[0]:
            table.add_column(short, justify="left" if column in WORDS else "right", overflow="fold")
    for entry in head:
        table.add_row(*(_cell(entry[name]) for name in shown if name in entry))
    Console(highlight=False, markup=False).print(table)


def _notice(text: str) -> None:
    typer.echo(text, err=True)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return YES[value]
    return "" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
