"""Which report a folder gets, by what is in it."""

from collections.abc import Callable
from pathlib import Path

from ..errors import DataError
from ..results import LINES
from ..runs import RunFile
from . import demo, experiment, run

KINDS: dict[str, Callable[[Path], Path]] = {
    RunFile.SOURCE: run.write_report,  # `reweigh train`
    LINES: experiment.write_report,  # `reweigh reproduce`
    "results.json": demo.write_report,  # `reweigh demo`
}


def write_report(folder: Path) -> Path:
    """Write `report.html` into `folder`; its path."""
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}; expected one that `reweigh` has written")
    for name, write in KINDS.items():
        if (folder / name).exists():
            return write(folder)
    raise DataError(
        f"{folder} has nothing to report on; expected a folder with one of: {', '.join(KINDS)}"
    )
