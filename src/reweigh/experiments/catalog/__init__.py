"""Every table and figure of the paper as data: the only list of them. And two that it has not.

mnist            Figure 2
cifar            what the CIFAR experiments share: data, network and schedule at each scale
cifar_tables     Tables 1 and 2, with the numbers of the paper
cifar_figures    Figures 3 to 7
human_noise      labels that people gave, which is not of the paper
demo             `reweigh demo`, which is not of the paper
"""

from collections.abc import Mapping
from types import MappingProxyType

from ...errors import unknown
from ..experiment import Experiment
from .cifar_figures import FIGURES
from .cifar_tables import TABLES
from .demo import DemoSettings, demonstration
from .human_noise import HUMAN_NOISE
from .mnist import IMBALANCE

EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType(
    {experiment.id: experiment for experiment in (IMBALANCE, *TABLES, *FIGURES, HUMAN_NOISE)}
)
"""The paper's experiments by id, in the order of the paper; then `human-noise`."""


def find_experiment(name: str) -> Experiment:
    """The experiment of that id, or an error that suggests the nearest."""
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[name]
