"""`reweigh fix`: the data with wrong labels replaced or set aside."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..runs import FixSummary

app = typer.Typer(add_completion=False)


@app.command()
def fix(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder of `reweigh train`.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="A new folder for the corrected data.")],
    false_alarms: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="At most this share of the changed labels is expected to have been right.",
        ),
    ] = 0.1,
    gain: Annotated[
        bool,
        typer.Option(help="Fit a model to the data before and after, and say what it gains."),
    ] = True,
    exact: Annotated[
        bool,
        typer.Option("--exact", help="Leave cells as they are that a spreadsheet would run."),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace what an earlier `fix` wrote into DIR.")
    ] = False,
) -> None:
    """Write the training data with labels that are surely wrong replaced, or their rows set aside.

    DIR gets the corrected data in their own form (for images a list: path,label), fixes.csv (every
    change, and why), set_aside.csv, and fix.json (shares of right labels before and after, with
    intervals). Your own files stay as they are.
    """
    from rich.console import Console

    from ..app import plan_fix
    from ..review import write_fixed
    from .bar import shown_bar

    with shown_bar(Console(stderr=True), "fitting before and after") as (bar, task):
        plan = plan_fix(
            run, out, false_alarms=false_alarms, gain=gain, force=force,
            tell=lambda done, total: bar.update(task, completed=done, total=total),
        )  # fmt: skip
    done = write_fixed(plan.run, plan.fixes, plan.summary, out, exact=exact)
    _print(done, out)


def _print(done: FixSummary, out: Path) -> None:
    """What was done, and what it is worth."""
    typer.echo(
        f"{done.rows:,} labels: {done.kept:,} kept, {done.relabelled:,} replaced, "
        f"{done.set_aside:,} rows set aside"
        + (f"; {done.checked:,} checked labels put in" if done.checked else "")
    )
    typer.echo(
        f"right labels, estimated: {_share(done.right_before, done.right_before_interval)} before, "
        f"{_share(done.right_after, done.right_after_interval)} after"
    )
    if done.model is not None and done.model_before is not None and done.model_after is not None:
        half = (
            "" if done.model_gain_interval is None else f" ± {100 * done.model_gain_interval:.1f}"
        )
        typer.echo(
            f"{done.model} on checked rows: {done.model_before:.1%} before, {done.model_after:.1%} after "
            f"({100 * (done.model_gain or 0):+.1f}{half} points)"
        )
    for note in done.notes:
        typer.secho(f"note: {note}", fg=typer.colors.YELLOW)
    typer.echo(f"corrected data: {out / done.corrected}")


def _share(share: float, interval: tuple[float, float]) -> str:
    return f"{share:.1%} ({interval[0]:.1%} to {interval[1]:.1%})"
