"""Pairs of a train batch and a clean batch, without end, from any step.

Read in this order:

    order          in which order examples are visited, readable from any place
    augmentation   crops and mirror images; bytes to numbers
    options        what a batch is, and how batches are drawn
    sides          the train half and the clean half of a pair
    pairs          the pairs; `in_order` has every example once, for evaluation
"""

from .augmentation import AUGMENTATIONS, SCALINGS, Augmentation, Scaling
from .options import Batch, BatchOptions
from .pairs import Pair, PairedBatches, in_order

__all__ = [
    "AUGMENTATIONS", "SCALINGS", "Augmentation", "Batch", "BatchOptions", "Pair", "PairedBatches",
    "Scaling", "in_order",
]  # fmt: skip
