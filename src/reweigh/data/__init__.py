"""Data: sources -> corruptions -> splits -> batches.

    sets       published data sets by name, fetched and checked: `load`, `fetch`, `adopt`, `verify`
    tasks      wrong labels made on purpose, splits, the four parts of one experiment: `prepare`
    streams    training sets in many files that are never all in memory: `stream_part`
    batches    pairs of train and clean batches, endless, resumable at any step: `PairedBatches`

>>> from reweigh import data
>>> digits = data.load("digits")
>>> recipe = data.Recipe("digits", "uniform_flip", rate=0.4, clean_per_class=5)
>>> task = data.prepare(digits, recipe, seed=0)
>>> pairs = data.PairedBatches(task.train, task.clean, seed=0)
>>> next(pairs).train.inputs.shape
torch.Size([100, 1, 8, 8])
"""

# isort: off
from ..encoders import ImageEncoder
from .batches import (
    AUGMENTATIONS, SCALINGS, Augmentation, Batch, BatchOptions, Pair, PairedBatches, Scaling,
    in_order,
)  # fmt: skip
from .sets import SOURCES, Source, adopt, data_root, fetch, load, verify
from .streams import (
    AnyPart, AnyTask, Drawn, Fields, Shards, Stream, StreamedPart, StreamedTask, open_shards,
    stream_part,
)  # fmt: skip
from .tasks import (
    BACKGROUNDS, CORRUPTIONS, HUMAN, MAJORITY_SHARES, PRESETS, Corruption, Dataset, Examples,
    NoisySubset,
    Part, Recipe, Split, Task, background_flip, corrupt, imbalance, noisy_imbalance, pair_flip,
    prepare, preset, scaled, shares, split, transition, uniform_flip, whole,
)  # fmt: skip

__all__ = [
    "AUGMENTATIONS", "BACKGROUNDS", "CORRUPTIONS", "HUMAN", "MAJORITY_SHARES", "PRESETS", "SCALINGS",
    "SOURCES", "AnyPart", "AnyTask", "Augmentation", "Batch", "BatchOptions", "Corruption",
    "Dataset", "Drawn", "Examples", "Fields", "ImageEncoder", "NoisySubset", "Pair",
    "PairedBatches", "Part", "Recipe", "Scaling", "Shards", "Source", "Split", "Stream",
    "StreamedPart", "StreamedTask", "Task", "adopt", "background_flip", "corrupt", "data_root",
    "fetch", "imbalance", "in_order", "load", "noisy_imbalance", "open_shards", "pair_flip",
    "prepare", "preset", "scaled", "shares", "split", "stream_part", "transition", "uniform_flip",
    "verify", "whole",
]  # fmt: skip
