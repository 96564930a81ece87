"""Which examples go where: disjoint by construction, the same on every machine.

    order = a permutation of all ids, keyed by the seed
    clean, then hyper-validation, are cut from it; train is the rest

Because the parts are cut from one permutation, they cannot overlap. Each part is returned sorted,
so that a memory-mapped file is read forward.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...errors import SettingError
from ...rng import Draws, Indices
from .imbalance import check_counts, evenly, first_of_each


class Split(NamedTuple):
    """Ids into the full train set, int64, pairwise disjoint."""

    train: Tensor
    hyper_validation: Tensor
    clean: Tensor


def split(
    labels: Tensor,
    *,
    seed: int,
    clean: int = 0,
    clean_per_class: int = 0,
    clean_even: bool = False,
    hyper_validation: int = 0,
) -> Split:
    """Cut a clean set (`clean` in all, or `clean_per_class` each) and a hyper-validation set.

    `clean_even` spreads `clean` over the classes: no two differ by more than one.
    What is left is the train set. Sizes are exact; asking for more than there is raises.
    """
    check_counts(clean=clean, clean_per_class=clean_per_class, hyper_validation=hyper_validation)
    if clean and clean_per_class:
        raise SettingError(
            f"clean={clean} and clean_per_class={clean_per_class} contradict each other; give one"
        )
    total = len(labels)
    order = Draws(seed, "split").permutation(total)
    given: Indices = labels.cpu().numpy().astype(np.int64)
    if clean_per_class or clean_even:
        present = np.unique(given).tolist()
        wanted = (
            evenly(clean, present, seed=seed)
            if clean_even
            else dict.fromkeys(present, clean_per_class)
        )
        chosen = first_of_each(given, order, wanted, what="clean examples")
    else:
        chosen = order[:clean]
    if len(chosen) + hyper_validation > total or clean > total:
        raise SettingError(
            f"{max(clean, len(chosen))} clean and {hyper_validation} hyper-validation examples "
            f"were asked of {total}; ask for fewer"
        )
    rest = order[~np.isin(order, chosen)]
    return Split(
        train=_sorted(rest[hyper_validation:]),
        hyper_validation=_sorted(rest[:hyper_validation]),
        clean=_sorted(chosen),
    )


def _sorted(ids: Indices) -> Tensor:
    return torch.from_numpy(np.sort(ids).astype(np.int64))
