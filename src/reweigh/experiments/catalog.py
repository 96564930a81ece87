"""Every table and figure of the paper's experiments: the only list of them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ..errors import unknown
from .cifar_figures import FIGURES
from .cifar_tables import TABLES
from .experiment import Experiment
from .mnist import IMBALANCE

EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType(
    {experiment.id: experiment for experiment in (IMBALANCE, *TABLES, *FIGURES)}
)


def experiment(name: str) -> Experiment:
    """The experiment of that id, or an error that suggests the nearest."""
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[name]
