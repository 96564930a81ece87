"""From a data set to a task: wrong labels made on purpose, a clean set, and which labels are wrong.

Read in this order:

    dataset       a data set in memory; a part of it, with the labels given and the true ones
    corruptions   wrong labels, and which they are
    imbalance     how many examples of each class
    splits        clean, hyper-validation and train ids, disjoint and reproducible
    task          a recipe, and the four parts it makes of a data set
    presets       the paper's recipes by name
"""

from .corruptions import (
    CORRUPTIONS,
    Corruption,
    background_flip,
    corrupt,
    pair_flip,
    transition,
    uniform_flip,
)
from .dataset import Dataset, Examples, Part, whole
from .imbalance import NoisySubset, first_of_each, imbalance, noisy_imbalance, shares
from .presets import BACKGROUNDS, MAJORITY_SHARES, PRESETS, preset, scaled
from .splits import Split, split
from .task import Recipe, Task, prepare

__all__ = [
    "BACKGROUNDS", "CORRUPTIONS", "MAJORITY_SHARES", "PRESETS", "Corruption", "Dataset", "Examples",
    "NoisySubset", "Part", "Recipe", "Split", "Task", "background_flip", "corrupt", "first_of_each",
    "imbalance", "noisy_imbalance", "pair_flip", "prepare", "preset", "scaled", "shares", "split",
    "transition", "uniform_flip", "whole",
]  # fmt: skip
