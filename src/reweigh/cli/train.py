"""`reweigh train`: your own data, with doubtful labels and a few checked ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .run_output import signs, tell

if TYPE_CHECKING:
    from ..app import Options

app = typer.Typer(add_completion=False)

_DATA, _TRAINING = "Your data", "Training (defaults fit the size of the data)"


def _option(metavar: str, help_: str | None, panel: str) -> Any:
    return typer.Option(metavar=metavar, help=help_, rich_help_panel=panel, show_default=False)


@app.command()
def train(
    data: Annotated[
        Path | None,
        _option(
            "D",
            "Rows with doubtful labels: CSV, Parquet, or a folder with one folder of images a class.",
            _DATA,
        ),
    ] = None,
    clean: Annotated[
        Path | None,
        _option("C", "A few rows with checked labels, five or more a class; same form.", _DATA),
    ] = None,
    target: Annotated[
        str | None,
        _option("COL", "The column of the labels (tables).", _DATA),
    ] = None,
    clean_where: Annotated[
        str | None,
        _option(
            "'COL == VALUE'",
            "Instead of --clean: the checked rows are those of --data that meet this "
            "(==, !=, <, <=, >, >=).",
            _DATA,
        ),
    ] = None,
    test: Annotated[
        Path | None,
        _option("T", "More checked rows, kept for judging only.", _DATA),
    ] = None,
    text: Annotated[
        str | None,
        _option("COL", "Learn from the texts in this column, in any language.", _DATA),
    ] = None,
    encoder: Annotated[
        Path | None,
        _option("DIR", "A local transformers encoder for the texts.", _DATA),
    ] = None,
    task: Annotated[
        str,
        typer.Option(help="auto, classes or regression.", rich_help_panel=_DATA),
    ] = "auto",
    ignore: Annotated[
        list[str] | None,
        _option("COL", "Leave this column out; may be repeated.", _DATA),
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
        _option("PIXELS", "Images are resized to this.", _DATA),
    ] = None,
    also_clean: Annotated[
        list[Path] | None,
        _option(
            "FILE",
            "Rows of --data that were looked at, as `index,label`: they count as clean.",
            _DATA,
        ),
    ] = None,
    leave_out: Annotated[
        list[Path] | None,
        _option("FILE", "Rows of --data not to train on, as `index`.", _DATA),
    ] = None,
    resume_with: Annotated[
        Path | None,
        _option(
            "RUN/confirmed.csv",
            "Train again as RUN was trained, with the rows `reweigh review` confirmed, and "
            "without those it dropped.",
            _DATA,
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
            "--compare",
            help="Train plainly and with random weights, too; report the gain, and rank suspects "
            "with the plain model's doubts as well.",
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
    steps: Annotated[int | None, _option("N", None, _TRAINING)] = None,
    batch: Annotated[int | None, _option("N", None, _TRAINING)] = None,
    learning_rate: Annotated[float | None, _option("X", None, _TRAINING)] = None,
    hidden: Annotated[
        int | None,
        _option("N", "Width of the two hidden layers.", _TRAINING),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", rich_help_panel=_TRAINING)] = 0,
    threads: Annotated[
        int | None,
        _option("N", "Of the CPU.", _TRAINING),
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
        "image_size": image_size, "also_clean": tuple(also_clean or ()),
        "leave_out": tuple(leave_out or ()), "compare": compare, "holdout": holdout,
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
    with signs() as watched:
        from ..app import train as run
        from ..report.run import write_report

        summary = run(options, out, watched)
        page = write_report(out)
    tell(summary, out, page)


def _options(**values: Any) -> Options:
    from ..app.options import Options

    return Options(**values)


def _again(confirmed: Path, out: Path | None) -> tuple[Options, Path]:
    """The options of the run a file of confirmed rows lies in, and a folder beside that run."""
    import json

    from ..app.folder import OPTIONS, read_json
    from ..app.options import Options
    from ..errors import DataError
    from ..review.exports import DROPPED

    if not confirmed.is_file():
        raise DataError(f"there is no {confirmed}; expected what `reweigh review` exports into RUN")
    run = confirmed.parent if confirmed.parent.name else confirmed.resolve().parent
    values = read_json(run / OPTIONS)
    values.pop("version")
    before = Options.of(json.dumps(values))
    dropped = tuple(p for p in (confirmed.with_name(DROPPED),) if p.is_file())
    options = replace(
        before,
        also_clean=(*before.also_clean, confirmed),
        leave_out=(*before.leave_out, *dropped),
    )
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

    from ..app.folder import OPTIONS, read_json
    from ..errors import ReweighError

    try:
        theirs = read_json(folder / OPTIONS)
    except ReweighError:
        return False
    theirs.pop("version")
    return bool(theirs == json.loads(options.json()))
