"""The table of methods, the only list of them. A method is a row here, a file and a card in docs.

`cost` is the time of a step in plain steps (one forward and one backward on the train batch), with
a clean batch as large as the train batch if the method uses one.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ..core import process_count
from ..errors import SettingError, unknown
from .bootstrap import reweigh_bootstrap
from .clean_only import clean_only
from .co_teaching import co_teaching
from .contract import Method, Problem
from .focal import focal
from .gce import gce
from .glc import glc
from .hard_mining import hard_mining
from .hedged import reweigh_hedged
from .mentornet import mentornet
from .mentornet_predefined import mentornet_predefined
from .meta_weight_net import meta_weight_net
from .proportion import proportion
from .random import random
from .reed import reed_hard, reed_soft
from .requirements import check_problem
from .resample import resample
from .reweigh import reweigh, reweigh_literal
from .s_model import s_model, s_model_conf
from .self_paced import self_paced
from .uniform import uniform
from .weighted import weighted


@dataclass(frozen=True)
class Entry:
    """One row: a factory `make(problem, **options)`, and what it needs of a problem (requirements.py).

    The name of the factory is the name of the method.
    `shares`: whether several processes that share a batch get the same result as one process. If
    not, `make` refuses to work in several processes.
    """

    make: Callable[..., Method]
    summary: str
    cost: str
    needs: tuple[str, ...] = ()
    shares: bool = True

    @property
    def needs_classes(self) -> bool:
        """Whether regression is refused."""
        return "classes" in self.needs

    @property
    def pretrains(self) -> bool:
        """Whether a plain model must be trained first, for `pretrained` or `confusion`."""
        return not {"pretrained", "confusion"}.isdisjoint(self.needs)


_ROWS = (
    Entry(uniform, "Plain training: every example counts the same.", "1"),
    Entry(proportion, "Examples count by the inverse frequency of their class.", "1", ("classes",)),
    Entry(resample, "Batches draw every class equally often.", "1", ("classes",)),
    Entry(hard_mining, "Keeps the minority and the hardest examples of the majority.", "1", ("classes",)),
    Entry(random, "Rectified Gaussian weights, drawn anew at every step.", "1"),
    Entry(weighted, "Oracle: examples count by the true share of right labels in their class.",
          "1", ("classes", "right_share")),
    Entry(reed_hard, "Targets mixed with the class that the model predicts.", "1", ("classes",)),
    Entry(reed_soft, "Targets mixed with the probabilities that the model predicts.", "1", ("classes",)),
    Entry(s_model, "A softmax layer of label transitions, trained with the network.", "1", ("classes",)),
    Entry(s_model_conf, "The same layer, begun from the confusion of a model trained plainly.",
          "1, after a plain run", ("classes", "confusion")),
    Entry(mentornet, "A second network learns from loss histories which labels to trust.",
          "1", ("classes", "clean"), shares=False),
    Entry(mentornet_predefined, "Trains on what lies below a moving percentile of the losses.", "1"),
    Entry(clean_only, "Plain training on the clean set alone.", "1", ("clean",)),
    Entry(reweigh, "Ours: examples count by how much a step on them helps the clean batch.",
          "2.5 to 3", ("clean",)),
    Entry(reweigh_literal, "Ours without a safeguard: the paper's rule to the letter.", "2.5 to 3", ("clean",)),
    Entry(reweigh_bootstrap, "Ours, with the model's own label as a second candidate for each example.",
          "2.5 to 3", ("classes", "clean")),
    Entry(reweigh_hedged, "Ours, mixed with random weights as far as clean rows that do not weigh advise it.",
          "4 to 5", ("clean",), shares=False),
    Entry(focal, "Cross-entropy that counts less where the model is already sure.", "1", ("classes",)),
    Entry(self_paced, "Easy examples first, in the end all of them.", "1"),
    Entry(glc, "A loss corrected by label transitions measured on the clean set.",
          "2, after a plain run", ("classes", "clean", "pretrained")),
    Entry(gce, "A bounded loss between cross-entropy and absolute error.", "1", ("classes",)),
    Entry(co_teaching, "Two networks hand each other the examples with small losses.", "2", shares=False),
    Entry(meta_weight_net, "A small network from loss to weight, learnt from the clean batches.",
          "4 to 5.5", ("clean",), shares=False),
)  # fmt: skip

METHODS: Mapping[str, Entry] = MappingProxyType({row.make.__name__: row for row in _ROWS})
"""Every method by its name: its factory, its cost and what it needs."""


def lookup(name: str) -> Entry:
    """The row of `name`, or an error that suggests the nearest name."""
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]


def make(name: str, problem: Problem, **options: Any) -> Method:
    """The method of that name for a problem; an error if the problem lacks what the method needs."""
    entry = lookup(name)
    known = list(inspect.signature(entry.make).parameters)[1:]
    for option in options:
        if option not in known:
            raise unknown(f"option of {name}", option, known)
    check_problem(problem, entry.needs, name)
    if not entry.shares and process_count() > 1:
        able = ", ".join(other for other, row in METHODS.items() if row.shares)
        raise SettingError(
            f"{process_count()} processes train with {name!r}, whose own networks and histories would "
            f"come apart between them; expected one process, or one of {able}"
        )
    return entry.make(problem, **options)
