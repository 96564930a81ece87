"""`reweigh review`: go through the suspects of a run in a local page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..review import Exported
    from ..runs import TrainedRun

app = typer.Typer()


@app.command()
def review(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    port: Annotated[
        int | None,
        typer.Option(
            metavar="P", min=1, max=65535, help="Where to listen.  [default: 8477, or a free one]"
        ),
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Only print the address.")
    ] = False,
    export: Annotated[
        bool, typer.Option("--export", help="Write the files from the decisions so far, and end.")
    ] = False,
    imported: Annotated[
        Path | None,
        typer.Option(
            "--import",
            metavar="FILE",
            help="Take over the decisions in an export of Label Studio (JSON, JSON-MIN or CSV), and end.",
        ),
    ] = None,
    exact: Annotated[
        bool,
        typer.Option("--exact", help="With --export: leave cells that look like formulas alone."),
    ] = False,
) -> None:
    """Look through suspicious rows, keep, relabel or drop them, and export the corrected data.

    The page is for this computer only. Decisions are on the disk at once; end with Ctrl-C whenever
    you like, and go on with the same command.
    """
    from ..errors import SettingError
    from ..runs import open_run

    if exact and not export:
        raise SettingError("--exact goes with --export; in the page it is a choice of its own")
    opened = open_run(run)
    if imported is not None:
        _take_over(opened, imported)
        if not export:
            return
    if export:
        from ..review import export_run

        _describe(export_run(opened, exact=exact))
        return

    from ..review import ADDRESS, Keys, ReviewState, application, bound, open_browser, serve

    state = ReviewState(opened)
    listening = bound(port)
    chosen = listening.getsockname()[1]
    keys = Keys(port=chosen)
    if state.repaired:
        typer.echo("The last line of decisions.jsonl was torn by an abrupt end, and was removed.")

    def started() -> None:
        progress = state.progress()
        typer.echo(f"{progress.total:,} suspects, {progress.decided:,} decided. Review them at")
        typer.echo(f"\n  http://{ADDRESS}:{chosen}/?token={keys.token}\n")
        typer.echo("Ctrl-C ends; every decision is kept.")
        if not no_browser and sys.stdout.isatty():
            open_browser(f"http://{ADDRESS}:{chosen}/?token={keys.ticket()}")

    try:
        serve(application(state, keys), listening, started=started)
    finally:
        state.close()
    progress = state.progress()
    typer.echo(
        f"\n{progress.decided:,} of {progress.total:,} decided, kept in {opened.decisions}. "
        f"Write the corrected data with: reweigh review {run} --export"
    )


def _take_over(run: TrainedRun, path: Path) -> None:
    from ..review import import_answers

    done = import_answers(run, path)
    known = f", {done.known:,} stood already" if done.known else ""
    left = f"; people disagreed about {done.disagreed:,} rows, left to do" if done.disagreed else ""
    typer.echo(f"{done.new:,} decisions taken over{known}{left}")


def _describe(made: Exported) -> None:
    typer.echo(
        f"{made.relabelled:,} relabelled, {made.dropped:,} dropped, {made.confirmed:,} rows confirmed"
    )
    for file in made.files:
        typer.echo(f"  {file}")
    if made.guarded:
        typer.echo(
            f"{made.guarded:,} cells that a spreadsheet would take for formulas got a leading apostrophe; "
            "--exact leaves them"
        )
