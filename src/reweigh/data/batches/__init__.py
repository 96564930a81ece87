"""Pairs of a train batch and a clean batch, without end, from any step.

Read in this order:

    order          in which order examples are visited, readable from any place
    augmentation   crops and mirror images; bytes to numbers
    sides          what a batch is and how batches are drawn; the two sides of a pair
    pairs          the pairs; `in_order` has every example once, for evaluation
"""

from .augmentation import AUGMENTATIONS, SCALINGS, Augmentation, Scaling
from .pairs import Pair, PairedBatches, in_order
from .sides import Batch, BatchOptions
