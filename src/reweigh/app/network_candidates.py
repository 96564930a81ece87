"""Candidates that are networks: reweighed, the same fine-tuned on the checked rows, and plain.

A fold trains a network of its own, without the rows that judge it, in memory. What is trained on all
checked rows is trained once, by the run itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor, nn

from ..candidates import Places, Reals
from ..data import BatchOptions, Part, Task
from ..runs import Network
from ..training import Config, Outcome, Progress, fit
from .final_outputs import outputs, said
from .networks import clean_batch, make_model

FINE_TUNE_STEPS, FINE_TUNE_RATE = 200, 0.25
"""Steps on the checked rows alone, and their learning rate beside the run's."""
TITLES = {
    "reweigh": "network, reweighed",
    "fine_tuned": "network, reweighed, then fine-tuned on the checked rows",
    "plain": "network, all rows as labelled",
}
Trained = Callable[[], nn.Module]


@dataclass(frozen=True, eq=False)
class NetworkModel:
    """A trained network and the rows it may be asked about."""

    network: nn.Module
    task: Task
    batch: BatchOptions

    def probabilities(self, part: str, places: Places | None = None) -> Reals:
        """[k, classes], or numbers [k, 1]."""
        task = self.task
        rows: Part = {
            "train": task.train, "checked": task.clean, "test": task.test,
            "validation": task.hyper_validation,
        }[part]  # fmt: skip
        if places is not None:
            rows = rows.take(torch.from_numpy(places))
        return said(torch.cat(list(outputs(self.network, rows, self.batch))))


@dataclass(eq=False)
class NetworkRuns:
    """Trains networks for folds; those of the last few are kept, as several candidates need them.

    trained    the reweighed network and the plain one, on all checked rows, when asked for
    tell       called at every step of a training
    """

    task: Task
    plan: Config
    shape: Network
    trained: dict[str, Trained]
    tell: Progress = lambda now: None
    _kept: dict[bytes, nn.Module] = field(default_factory=dict)

    def reweighed(self, checked: Places) -> nn.Module:
        """The network reweighed by these checked rows."""
        if len(checked) == len(self.task.clean):
            return self.trained["reweigh"]()
        key = checked.tobytes()
        if key not in self._kept:
            while len(self._kept) > 10:
                self._kept.pop(next(iter(self._kept)))
            self._kept[key] = self._fit(self.plan, checked).model
        return self._kept[key]

    def plain(self, checked: Places) -> nn.Module:
        """The network trained on all rows as they are labelled."""
        return self.trained["plain"]()

    def fine_tuned(self, checked: Places) -> nn.Module:
        """The reweighed network after some steps on these checked rows."""
        optimizer = self.plan.optimizer
        plan = replace(
            self.plan,
            method="clean_only",
            steps=FINE_TUNE_STEPS,
            drops=(),
            optimizer=replace(optimizer, learning_rate=FINE_TUNE_RATE * optimizer.learning_rate),
        )
        return self._fit(plan, checked, start=self.reweighed(checked).state_dict()).model

    def _fit(
        self, plan: Config, checked: Places, start: dict[str, Tensor] | None = None
    ) -> Outcome:
        clean = self.task.clean.take(torch.from_numpy(checked))
        # `fit` judges on the way out; a few rows are enough for that.
        task = replace(self.task, clean=clean, test=clean)
        size = replace(plan.batch, clean_size=clean_batch(len(clean), plan.batch.size))
        plan = replace(plan, batch=size, evaluate_every=0, checkpoint_every=0)
        return fit(partial(_made, self.shape, start), task, plan, progress=self.tell)


def _made(shape: Network, start: dict[str, Tensor] | None) -> nn.Module:
    model = make_model(shape)
    if start is not None:
        model.load_state_dict(start)
    return model


@dataclass(frozen=True, eq=False)
class NetworkCandidate:
    """One of TITLES."""

    name: str
    runs: NetworkRuns

    @property
    def title(self) -> str:
        """Some words."""
        return TITLES[self.name]

    @property
    def learns(self) -> bool:
        """Whether it learns from the checked rows."""
        return self.name != "plain"

    def fit(self, checked: Places) -> Sequence[NetworkModel]:
        """One variant."""
        ways = {
            "reweigh": self.runs.reweighed,
            "fine_tuned": self.runs.fine_tuned,
            "plain": self.runs.plain,
        }
        return [NetworkModel(ways[self.name](checked), self.runs.task, self.runs.plan.batch)]
