"""Train and clean batches in pairs, without end, from any step.

    for pair in pairs.until(8000):
        step = reweigher(pair.train, pair.clean)        # batches are (inputs, targets)
        ledger.record(pair.train_ids, step.weights)     # ids are positions in the train part

Pair t is a pure function of (data, options, seed, t): its examples, their crops and flips, everything.
So the state is the number t; a run resumed in the middle of an epoch sees exactly what it would have
seen; no global generator is read or changed; and ranks that share a batch agree on it. A batch is always
full: epochs follow each other without a gap, and the clean set is repeated as often as needed.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import NamedTuple

import torch
from torch import Tensor

from ...errors import SettingError
from ..streams import AnyPart
from ..tasks import Part
from .sides import Batch, BatchOptions, Side


class Pair(NamedTuple):
    """The batches of one step; the ids are positions in the train and the clean part, int64 [n], [m]."""

    train: Batch
    clean: Batch
    train_ids: Tensor
    clean_ids: Tensor


class PairedBatches:
    """The endless sequence of pairs; `step` is the number of the next one."""

    def __init__(
        self,
        train: AnyPart,
        clean: Part,
        *,
        seed: int,
        options: BatchOptions | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        options = options or BatchOptions()
        self.step = 0
        self._options = options
        self._fingerprint = _fingerprint(seed, options, train, clean)
        self._train = Side("train", train, seed, options, device)
        self._clean = Side("clean", clean, seed, options, device)

    def pair(self, step: int) -> Pair:
        """Pair number `step`, without moving on."""
        augmentation = self._options.augmentation
        train, train_ids = self._train.batch(step, augmentation)
        clean, clean_ids = self._clean.batch(
            step, augmentation if self._options.augment_clean else None
        )
        return Pair(train, clean, train_ids, clean_ids)

    def __iter__(self) -> Iterator[Pair]:
        return self

    def __next__(self) -> Pair:
        pair = self.pair(self.step)
        self.step += 1
        return pair

    def until(self, steps: int) -> Iterator[Pair]:
        """The pairs from here up to step `steps`: after a resume, only those still to come."""
        while self.step < steps:
            yield next(self)

    @property
    def epoch(self) -> float:
        """Passes over the train part so far."""
        return self.step * self._options.size / len(self._train.part)

    def state_dict(self) -> dict[str, int | str]:
        """All that a resumed run needs: two entries, plain JSON."""
        return {"step": self.step, "fingerprint": self._fingerprint}

    def load_state_dict(self, state: Mapping[str, int | str]) -> None:
        """Go on where `state` was taken; refuses a state of other data, seed or options."""
        if state.get("fingerprint") != self._fingerprint:
            raise SettingError(
                "this batch state belongs to other data, another seed or other batch options; "
                "resume with the settings the run was started with"
            )
        self.step = int(state["step"])


def in_order(
    part: AnyPart,
    *,
    size: int = 500,
    options: BatchOptions | None = None,
    device: torch.device | str = "cpu",
) -> Iterator[Batch]:
    """Every example once, in order, unaugmented: for evaluation. The last batch may be smaller."""
    options = options or BatchOptions()
    for inputs, targets in part.chunks(size):
        yield Batch(options.as_numbers(inputs.to(device)), targets.to(device))


def _fingerprint(seed: int, options: BatchOptions, *parts: AnyPart) -> str:
    described = {**asdict(options), "rank": 0, "world": 1}
    digest = hashlib.sha256(repr((seed, sorted(described.items()))).encode())
    for part in parts:
        for content in part.identity():
            digest.update(content)
    return digest.hexdigest()[:16]
