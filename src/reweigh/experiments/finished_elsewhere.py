"""Cells that another results folder has finished: the same method, setting, seed and setup.

A table and a figure of the paper often need the same run: the confusion matrices of Figure 6 are those of
two rows of each table. A setup is compared in full (data, network, schedule, evaluations), and so is the
version, so that a cell taken over is what running it here would give. Its line keeps the versions, the
commit and the seconds of where it was run, and says which experiment that was for (`taken_from`).
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from ..results import Json, Results, cell_key, read_results
from .experiment import Cell

KEPT = ("metrics", "seconds", "versions", "commit")


def finished_elsewhere(
    cells: Sequence[Cell], description: Json, folders: Sequence[Path]
) -> Iterator[tuple[Cell, Json]]:
    """Each of `cells` that one of `folders` has, and its record with `details`."""
    wanted = {cell.key: cell for cell in cells}
    for folder in folders:
        theirs = read_results(folder)
        for line in theirs.lines:
            cell = wanted.get(cell_key(line))
            if cell is not None and _same(theirs, description, line["setting"]):
                del wanted[cell.key]
                record = {name: line[name] for name in KEPT}
                origin = line.get("taken_from", line["experiment"])
                yield cell, {**record, "taken_from": origin, "details": theirs.details(line)}


def _same(theirs: Results, ours: Json, setting: Json) -> bool:
    """Whether both experiments have one and the same setup at that setting."""
    mine, other = (
        [setup for setup in about["setups"] if setup["setting"] == setting]
        for about in (ours, theirs.about)
    )
    same = all(ours[name] == theirs.about.get(name) for name in ("as_published", "version"))
    return same and len(mine) == 1 and mine == other
