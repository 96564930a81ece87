"""`reweigh train`: your own data, with doubtful labels and a few checked ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ..own import Options, Signs

app = typer.Typer()

_DATA, _TRAINING = "Your data", "Training (defaults fit the size of the data)"


@app.command()
def train(
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="D",
            help="Rows with doubtful labels: CSV, Parquet, or a folder with one folder of images a class.",
            rich_help_panel=_DATA,
            show_default=False,
        ),
    ] = None,
    clean: Annotated[
        Path | None,
        typer.Option(
            metavar="C",
            help="A few rows with checked labels, five or more a class; same form.",
            rich_help_panel=_DATA,
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="COL",
            help="The column of the labels (tables).",
            rich_help_panel=_DATA,
            show_default=False,
        ),
    ] = None,
    clean_where: Annotated[
        str | None,
        typer.Option(
            metavar="'COL == VALUE'",
            help="Instead of --clean: the checked rows are those of --data that meet this "
            "(==, !=, <, <=, >, >=).",
            rich_help_panel=_DATA,
            show_default=False,
        ),
    ] = None,
    test: Annotated[
        Path | None,
        typer.Option(
            metavar="T",
            help="More checked rows, kept for judging only.",
            rich_help_panel=_DATA,
            show_default=False,
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            metavar="COL",
            help="Learn from the texts in this column, in any language.",
            rich_help_panel=_DATA,
            show_default=False,
        ),
    ] = None,
    encoder: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="A local transformers encoder for the texts.",
            rich_help_panel=_DATA,
            show_default=False,
        ),
    ] = None,
    task: Annotated[
        str,
        typer.Option(help="auto, classes or regression.", rich_help_panel=_DATA),
    ] = "auto",
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COL",
            help="Leave this column out; may be repeated.",
            rich_help_panel=_DATA,
            show_default=False,
        ),
    ] = None,
    only_clean_classes: Annotated[
        bool,
        typer.Option(
            "--only-clean-classes",
            help="Leave out rows of classes that have no clean row.",
            rich_help_panel=_DATA,
        ),
    ] = False,
    encoding: Annotated[str, typer.Option(help="Of CSV files.", rich_help_panel=_DATA)] = "utf-8",
    image_size: Annotated[
        int | None,
        typer.Option(
            metavar="PIXELS",
            help="Images are resized to this.",
            rich_help_panel=_DATA,
            show_default=False,
        ),
    ] = None,
    also_clean: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Rows of --data that were looked at, as `index,label`: they count as clean.",
            rich_help_panel=_DATA,
            show_default=False,
        ),
    ] = None,
    resume_with: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN/confirmed.csv",
            help="Train again as RUN was trained, with the rows `reweigh review` confirmed.",
            rich_help_panel=_DATA,
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="The run folder.  [default: reweigh-run]",
            show_default=False,
        ),
    ] = None,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare", help="Train plainly and with random weights, too, and report the gain."
        ),
    ] = False,
    holdout: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Clean rows kept for judging.  [default: 0.3 with --compare and no --test]",
            show_default=False,
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(metavar="N", rich_help_panel=_TRAINING, show_default=False)
    ] = None,
    batch: Annotated[
        int | None, typer.Option(metavar="N", rich_help_panel=_TRAINING, show_default=False)
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(metavar="X", rich_help_panel=_TRAINING, show_default=False)
    ] = None,
    hidden: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Width of the two hidden layers.",
            rich_help_panel=_TRAINING,
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", rich_help_panel=_TRAINING)] = 0,
    threads: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Of the CPU.", rich_help_panel=_TRAINING, show_default=False
        ),
    ] = None,
) -> None:
    """Train on your own data, guided by the few rows you checked, and rank the labels to fix.

    A table:        reweigh train --data rows.csv --clean checked.csv --target label

    Checked rows inside it:  reweigh train --data rows.csv --clean-where "checked == 1" --target label

    Texts:          reweigh train --data reviews.csv --clean checked.csv --text review --target stars

    Images:         reweigh train --data photos --clean checked_photos   (photos/cat/1.jpg, ...)

    Leaves a run folder with the model, report.html, and every label ranked by suspicion. Then:
    `reweigh audit RUN`, `reweigh review RUN`, `reweigh predict RUN --data new.csv --out out.csv`.
    If interrupted, the same command goes on where it stopped.
    """
    from ..errors import SettingError
    from ..files import writable_folder

    given = {
        "clean": clean, "target": target, "clean_where": clean_where, "test": test, "text": text,
        "encoder": encoder, "task": task, "ignore": tuple(ignore or ()), "encoding": encoding,
        "image_size": image_size, "also_clean": also_clean, "compare": compare, "holdout": holdout,
        "only_clean_classes": only_clean_classes, "steps": steps, "batch": batch,
        "learning_rate": learning_rate, "hidden": hidden, "seed": seed, "threads": threads,
    }  # fmt: skip
    if resume_with is not None:
        if data is not None or clean is not None or target is not None:
            raise SettingError(
                "--resume-with takes data, clean rows and target from its run folder"
            )
        options, out = _again(resume_with, out)
    else:
        if data is None:
            raise SettingError(
                "which data? give --data, a CSV or Parquet file or a folder of images"
            )
        if not data.exists():
            raise SettingError(f"there is no {data}; expected a CSV or Parquet file or a folder")
        options, out = _options(data=data, **given), out or Path("reweigh-run")
    writable_folder(out)
    with _signs() as signs:
        from ..own import train as run
        from ..report.run import write_report

        summary = run(options, out, signs)
        page = write_report(out)
    _print(summary, out, page)


def _options(**values: Any) -> Options:
    from ..own.options import Options

    return Options(**values)


def _again(confirmed: Path, out: Path | None) -> tuple[Options, Path]:
    """The options of the run a file of confirmed rows lies in, and a folder beside that run."""
    import json

    from ..errors import DataError
    from ..own.folder import OPTIONS, read_json
    from ..own.options import Options

    if not confirmed.is_file():
        raise DataError(f"there is no {confirmed}; expected what `reweigh review` exports into RUN")
    run = confirmed.parent if confirmed.parent.name else confirmed.resolve().parent
    values = read_json(run / OPTIONS)
    values.pop("version")
    options = Options.of(json.dumps(values), also_clean=confirmed)
    if out is None:
        number = 2
        while (beside := run.with_name(f"{run.name}-{number}")).exists():
            if _same(beside, options):
                break
            number += 1
        out = beside
    return options, out


def _same(folder: Path, options: Options) -> bool:
    import json

    from ..errors import ReweighError
    from ..own.folder import OPTIONS, read_json

    try:
        theirs = read_json(folder / OPTIONS)
    except ReweighError:
        return False
    theirs.pop("version")
    return bool(theirs == json.loads(options.json()))


def _print(summary: dict[str, Any], out: Path, page: Path) -> None:
    metric, where = summary["metric"], summary["judged_on"]
    if where:
        rows = f"{summary['judged_rows']:,} {'test' if where == 'test' else 'held-out clean'} rows"
        interval = f" ± {summary['interval']:.3g}" if summary["interval"] is not None else ""
        typer.echo(f"\n{metric} on {rows}: {summary['figure']:.4g}{interval}")
        for line in summary["comparison"]:
            half = "" if line["interval"] is None else f" ± {line['interval']:.3g}"
            typer.echo(f"  {line['name']}: {line['figure']:.4g}   gain {line['gain']:+.3g}{half}")
    typer.echo(f"{summary['suggestions']:,} of {summary['train_rows']:,} labels look wrong")
    for warning in summary["warnings"]:
        typer.secho(f"note: {warning['what']} {warning['do']}", fg=typer.colors.YELLOW)
    typer.echo(f"report: {page}\nnext:   reweigh audit {out}   or   reweigh review {out}")


@contextmanager
def _signs() -> Iterator[Signs]:
    """Notices and a bar on standard error."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    from ..own import Signs

    console = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task("reading", total=None)
        quarters: dict[str, int] = {}

        def encoding(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        def step(method: str, now: Any) -> None:
            bar.update(task, description=f"training {method}", completed=now.step, total=now.steps)
            quarter = 4 * now.step // now.steps
            if not console.is_terminal and quarter != quarters.get(method, 0):
                console.print(f"training {method}: {now.step / now.steps:.0%}")
            quarters[method] = quarter

        yield Signs(say=console.print, encoding=encoding, step=step)
