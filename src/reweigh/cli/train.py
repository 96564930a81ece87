"""`reweigh train`: your own data, with doubtful labels and a few checked ones.

The options are those of `app.Options`: names, types, defaults and help come from its fields.
"""

import inspect
import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import typer

from ..app import Help, Options, flag, shown_options
from ..errors import DataError, ReweighError, SettingError
from ..files import writable_folder
from ..runs import RunFile, differences, read
from .run_output import signs, tell
from .stdin_format import StdinFormat, check_format

app = typer.Typer(add_completion=False)
OUT = Path("reweigh-run")


def _with_options(command: Callable[..., None]) -> Callable[..., None]:
    """`command(given, *, ...)` with an option for each field of `Options` in the place of `given`."""
    made = [_parameter(name, kind, shown) for name, (kind, shown) in shown_options().items()]
    parameters = [*made, *list(inspect.signature(command, eval_str=True).parameters.values())[1:]]

    def called(**values: Any) -> None:
        command({name: values.pop(name) for name in shown_options()}, **values)

    called.__doc__ = command.__doc__
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called


def _parameter(name: str, kind: Any, shown: Help) -> inspect.Parameter:
    """An option of the command line. What has no default, as the data, may be missing there."""
    default = getattr(Options, name, None)
    if get_origin(kind) is tuple:
        kind, default = list[get_args(kind)[0]], None  # type: ignore[misc]
    option = typer.Option(
        *([flag(name)] if kind is bool else []),
        help=shown.help,
        metavar=shown.metavar,
        rich_help_panel=shown.panel,
        show_default=shown.default or bool(default is not None and kind is not bool),
    )
    annotation: Any = Annotated[kind if default is not None else kind | None, option]
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=default, annotation=annotation)


@app.command()
@_with_options
def train(
    given: dict[str, Any],
    *,
    resume_with: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN/confirmed.csv",
            help="Train again as RUN was trained, with the rows `reweigh review` confirmed, and "
            "without those it dropped.",
            rich_help_panel="Your data",
        ),
    ] = None,
    form: StdinFormat = None,
    out: Annotated[
        Path | None, typer.Option(metavar="RUN", help="The run folder.", show_default=str(OUT))
    ] = None,
) -> None:
    """Train on your own data, guided by the few rows you checked, and rank the labels to fix.

    A table: reweigh train --data rows.csv --clean checked.csv --target label

    Checked rows inside it: ... --clean-where "checked == 1" in place of --clean

    Texts: reweigh train --data a.csv --clean b.csv --text review --target stars

    Images: reweigh train --data photos --clean checked (photos/cat/1.jpg, ...)

    Shards: reweigh train --data 'data/train-*.parquet' --clean checked.parquet ...

    Your network: ... --model my_models:factory (called with shape=, outputs=)

    From a pipe: zcat a.csv.gz | reweigh train --data - --clean checked.csv ...

    Several ways to learn from such data are tried: the network reweighed by the checked rows, and
    plain models on the checked rows, on all rows, and on all rows with their labels corrected. Each
    is judged by checked rows it has not seen (by those of --test, if given), and the best is kept;
    the report says which and why. --quick tries three of them, --method NAME one.

    Leaves a run folder with the model, report.html, and every label ranked by suspicion. Then:
    `reweigh audit RUN`, `reweigh review RUN`, `reweigh predict RUN --data new.csv --out out.csv`.
    If interrupted, the same command goes on where it stopped.
    """
    if resume_with is not None:
        if any(given[name] is not None for name in ("data", "clean", "target")):
            raise SettingError(
                "--resume-with takes data, clean rows and target from its run folder"
            )
        options = _with_reviewed(resume_with)
        out = out or _beside(_folder(resume_with), options)
    else:
        out = writable_folder(out or OUT)
        options = _asked(_with_stdin(given, out, form))
    writable_folder(out)
    with signs() as watched:
        from ..app import run_training
        from ..report import write_report

        summary = run_training(options, out, watched)
        page = write_report(out)
    tell(summary, out, page)


def _with_stdin(given: dict[str, Any], out: Path, form: str | None) -> dict[str, Any]:
    """The options, where `-` is the file that what comes through standard input is put into."""
    from ..app import STDIN, received

    piped = [name for name, value in given.items() if value == STDIN]
    check_format(form, piped=bool(piped))
    if len(piped) > 1:
        raise SettingError(
            f"{' and '.join(map(flag, piped))} both are standard input; expected a file for one of them"
        )
    return {**given, **{name: received(out, form) for name in piped}}


def _asked(given: dict[str, Any]) -> Options:
    """The options as they were typed; a list of several is a tuple, also where nothing was."""
    data = given["data"]
    if data is None:
        raise SettingError("which data? give --data, a table or a folder of images")
    several = {name for name, (kind, _) in shown_options().items() if get_origin(kind) is tuple}
    values: Any = {n: tuple(v or ()) if n in several else v for n, v in given.items()}
    return Options(**values)


def _with_reviewed(confirmed: Path) -> Options:
    """The options of the run a file of confirmed rows lies in, with those rows added."""
    if not confirmed.is_file():
        raise DataError(f"there is no {confirmed}; expected what `reweigh review` exports into RUN")
    before = read(_folder(confirmed) / RunFile.OPTIONS, Options, others=False)
    dropped = tuple(p for p in (confirmed.with_name(RunFile.DROPPED),) if p.is_file())
    return replace(
        before, also_clean=(*before.also_clean, confirmed), leave_out=(*before.leave_out, *dropped)
    )


def _beside(run: Path, options: Options) -> Path:
    """RUN-2, RUN-3, ...: the first that is free, or that holds the run of these very options."""
    numbered = (run.with_name(f"{run.name}-{number}") for number in itertools.count(2))
    return next(folder for folder in numbered if _is_free(folder, options))


def _is_free(folder: Path, options: Options) -> bool:
    if not folder.exists():
        return True
    try:
        return not differences(read(folder / RunFile.OPTIONS, Options), options)
    except ReweighError:
        return False


def _folder(file: Path) -> Path:
    """The folder of `file`, with a name even where that is the folder one is in."""
    return file.parent if file.parent.name else file.resolve().parent
