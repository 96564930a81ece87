"""Data: sources -> corruptions -> splits -> batches.

    load           a data set by name, from disk or a registry, checked against its digests
    corruptions    wrong labels made on purpose, and which they are
    splits         clean, hyper-validation and train ids, disjoint and reproducible
    tasks          the four parts of one experiment; `preset` has the paper's
    batches        pairs of train and clean batches, endless, resumable at any step
    shards         many files of rows; `Stream` has their batches, `stream_part` trains on them

>>> from reweigh import data
>>> digits = data.load("digits")
>>> recipe = data.Recipe("digits", "uniform_flip", rate=0.4, clean_per_class=5)
>>> task = data.prepare(digits, recipe, seed=0)
>>> pairs = data.PairedBatches(task.train, task.clean, seed=0)
>>> next(pairs).train.inputs.shape
torch.Size([100, 1, 8, 8])
"""

from ..encoders import ImageEncoder
from .batches.augmentation import AUGMENTATIONS, SCALINGS, Augmentation, Scaling
from .batches.pairs import Batch, BatchOptions, Pair, PairedBatches, in_order
from .sets.catalog import SOURCES, Source
from .sets.fetch import adopt, fetch, verify
from .sets.load import load
from .sets.store import data_root
from .streams.batches import Drawn, Stream
from .streams.fields import Fields
from .streams.shards import Shards, open_shards
from .streams.training_set import AnyPart, AnyTask, StreamedPart, StreamedTask, stream_part
from .tasks.corruptions import (
    CORRUPTIONS,
    Corruption,
    background_flip,
    corrupt,
    pair_flip,
    transition,
    uniform_flip,
)
from .tasks.dataset import Dataset, Examples
from .tasks.imbalance import NoisySubset, imbalance, noisy_imbalance, shares
from .tasks.presets import BACKGROUNDS, MAJORITY_SHARES, PRESETS, preset, scaled
from .tasks.splits import Split, split
from .tasks.task import Part, Recipe, Task, prepare, whole

__all__ = [
    "AUGMENTATIONS",
    "BACKGROUNDS",
    "CORRUPTIONS",
    "MAJORITY_SHARES",
    "PRESETS",
    "SCALINGS",
    "SOURCES",
    "AnyPart",
    "AnyTask",
    "Augmentation",
    "Batch",
    "BatchOptions",
    "Corruption",
    "Dataset",
    "Drawn",
    "Examples",
    "Fields",
    "ImageEncoder",
    "NoisySubset",
    "Pair",
    "PairedBatches",
    "Part",
    "Recipe",
    "Scaling",
    "Shards",
    "Source",
    "Split",
    "Stream",
    "StreamedPart",
    "StreamedTask",
    "Task",
    "adopt",
    "background_flip",
    "corrupt",
    "data_root",
    "fetch",
    "imbalance",
    "in_order",
    "load",
    "noisy_imbalance",
    "open_shards",
    "pair_flip",
    "prepare",
    "preset",
    "scaled",
    "shares",
    "split",
    "stream_part",
    "transition",
    "uniform_flip",
    "verify",
    "whole",
]
