"""From a data set to a task: wrong labels made on purpose, a clean set, and which labels are wrong.

Read in this order:

    dataset       a data set in memory; a part of it, with the labels given and the true ones
    corruptions   wrong labels, and which they are
    splits        how many examples of each class; clean, hyper-validation and train ids
    task          a recipe, and the four parts it makes of a data set
    presets       the paper's recipes by name
"""

# isort: off
from .corruptions import (
    CORRUPTIONS, Corruption, background_flip, corrupt, pair_flip, transition, uniform_flip,
)  # fmt: skip
from .dataset import Dataset, Examples, Part, whole
from .presets import BACKGROUNDS, MAJORITY_SHARES, PRESETS, preset, scaled
from .splits import NoisySubset, Split, first_of_each, imbalance, noisy_imbalance, shares, split
from .task import HUMAN, Recipe, Task, prepare
