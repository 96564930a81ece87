"""From the user's files to a task that can be trained on.

gather -> assign roles -> encode -> drop repeated rows -> hold out -> data.Task
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from ..data import Part, Task
from ..encoders import robust_scale
from ..errors import DataError
from ..runs import ENCODED
from . import preprocessing
from .encoding import Encoded, encode
from .inspection import Gathered, Say, gather
from .labelled import Labelled
from .options import Options
from .roles import Roles, assign, hold_out, repeated

FARTHEST = 10.0
"""Scaled targets of a regression are cut off here: one absurd value must not rule the training."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """What training, audit and prediction need to know.

    train_rows    [n] the index of each train example in the user's data
    numbers       [n] the target of each as it was given, in a regression; else empty
    judged_on     "test", "holdout", or "" where nothing was kept for judging
    centre, scale of the targets in a regression: trained on (y - centre) / scale
    unreadable    files of the data that could not be decoded, by index
    release       lets go of encoded rows in memory; they are read again when needed
    """

    task: Task
    found: Gathered
    classes: tuple[str, ...]
    train_rows: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.float64]
    judged_on: str
    centre: float
    scale: float
    unreadable: npt.NDArray[np.int64]
    release: Callable[[], None]


def prepare(
    options: Options,
    folder: Path,
    *,
    say: Say,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Prepared:
    """Read, check and encode the data into `folder`/encoded; `progress(what, done, total)`."""
    found = gather(options, say=say)
    roles = assign(found, options, say=say)
    preprocessing.save(folder, found.encoder)
    (folder / ENCODED).mkdir(exist_ok=True)
    encoded = {}
    for role, source in found.sources.items():
        done = 0

        def tick(rows: int, role: str = role, total: int = len(source)) -> None:
            nonlocal done
            done += rows
            progress(f"encoding {role}", done, total)

        encoded[role] = encode(source, found.encoder, folder / ENCODED, role, progress=tick)
    return _task(options, found.without_labels(), roles, encoded, say)


def _task(
    options: Options, found: Gathered, roles: Roles, encoded: Mapping[str, Encoded], say: Say
) -> Prepared:
    parts = {"data": roles.train, "own": roles.own_clean, "clean": roles.clean, "test": roles.test}
    source = {"data": "data", "own": "data", "clean": "clean", "test": "test"}
    for name, part in parts.items():
        if len(part):
            sound = encoded[source[name]].readable[part.rows]
            if gone := int(np.sum(~sound)):
                say(f"{source[name]}: {gone:,} files cannot be read and are left out")
            parts[name] = part.where(sound)

    def digests(name: str) -> npt.NDArray[np.uint64]:
        if source[name] not in encoded:
            return np.empty(0, np.uint64)
        return encoded[source[name]].digests[parts[name].rows]

    # Clean rows cut out of the data itself are no repetition of it.
    for name, others, what in (
        ("test", ("clean", "own"), "test rows are clean rows too: left out of the test"),
        (
            "data",
            ("clean", "test"),
            "training rows are clean or test rows too: left out of training",
        ),
    ):
        twice = repeated(digests(name), np.concatenate([digests(other) for other in others]))
        if twice.any():
            say(f"{int(twice.sum()):,} {what}")
            parts[name] = parts[name].where(~twice)
    if len(parts["data"]) < 10:
        raise DataError(
            f"{len(parts['data'])} training rows are left; expected 10 or more that are not clean rows"
        )
    return _built(options, found, roles.classes, encoded, parts, say)


def _built(
    options: Options,
    found: Gathered,
    classes: tuple[str, ...],
    encoded: Mapping[str, Encoded],
    parts: Mapping[str, Labelled],
    say: Say,
) -> Prepared:
    centre, scale = 0.0, 1.0
    if not classes:
        centre, scale = robust_scale(parts["data"].labels)
        far = int(np.sum(np.abs(parts["data"].labels - centre) > FARTHEST * scale))
        if far:
            say(
                f"{far:,} targets are farther than {FARTHEST:g} scales from the median: cut off there"
            )

    def targets(labels: npt.NDArray[np.float64], cut: float = np.inf) -> torch.Tensor:
        if classes:
            return torch.from_numpy(labels.astype(np.int64))
        scaled = np.clip((labels - centre) / scale, -cut, cut)
        return torch.from_numpy(scaled.astype(np.float32))

    def part(role: str, chosen: Labelled, cut: float = np.inf) -> Part:
        values = targets(chosen.labels, cut)
        return Part(encoded[role].inputs, torch.from_numpy(chosen.rows), values, values)

    clean = [(role, parts[name]) for name, role in (("clean", "clean"), ("own", "data"))]
    clean = [(role, chosen) for role, chosen in clean if len(chosen)]
    if not clean:
        raise DataError("no clean row is left; expected a few rows whose labels are checked")
    # Few rows, of two files perhaps: on their own, in memory.
    inputs = torch.cat([encoded[role].inputs[torch.from_numpy(c.rows)] for role, c in clean])
    every = Labelled(np.arange(len(inputs)), np.concatenate([c.labels for _, c in clean]))
    held = hold_out(every, options.held_out, classes=len(classes), seed=options.seed)

    def checked(chosen: Labelled) -> Part:
        values = targets(chosen.labels, FARTHEST)
        return Part(inputs, torch.from_numpy(chosen.rows), values, values)

    kept, aside = every.where(~held), every.where(held)
    if len(parts["test"]):
        test, judged_on = part("test", parts["test"]), "test"
    elif len(aside):
        test, judged_on = checked(aside), "holdout"
        say(f"{len(aside):,} of {len(every):,} clean rows are held out for judging")
    else:
        test, judged_on = checked(kept), ""
    if options.held_out and not len(aside):
        say("there are too few clean rows to hold any out; give --test for an honest figure")
    peak = 255 if found.kind == "images" else 1
    train = part("data", parts["data"], FARTHEST)
    empty = Part(train.inputs, train.ids[:0], train.targets[:0], train.truth[:0])
    task = Task(train, empty, checked(kept), test, classes, peak)
    readable = encoded["data"].readable
    return Prepared(
        task, found, classes, parts["data"].rows,
        parts["data"].labels[: 0 if classes else None], judged_on, centre, scale,
        np.flatnonzero(~readable), encoded["data"].release,
    )  # fmt: skip
