"""Which examples, and how many of each class: the same on every machine.

    shares      majority share s of N  ->  N - few of the majority class, few = round((1 - s) N)
    evenly      counts that sum to N and differ by one at most
    imbalance   exactly counts[c] random examples of each class c
    split       order = a permutation of all ids, keyed by the seed;
                clean, then hyper-validation, are cut from it; train is the rest

Because the parts of a split are cut from one permutation, they cannot overlap. Each part is returned
sorted, so that a memory-mapped file is read forward.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...errors import SettingError
from ...rng import Draws, Indices
from .corruptions import corrupt


def imbalance(labels: Tensor, counts: Mapping[int, int], *, seed: int) -> Tensor:
    """Ids of exactly `counts[c]` random examples of each class c named, and of no other."""
    for label, count in counts.items():
        check_counts(**{f"count of class {label}": count})
    given: Indices = labels.cpu().numpy().astype(np.int64)
    order = Draws(seed, "imbalance").permutation(len(given))
    return _sorted(first_of_each(given, order, counts, what="examples"))


def shares(*, majority: int, minority: int, share: float, size: int) -> dict[int, int]:
    """The counts of two classes, `size` in all, in which `majority` holds `share`; none may be 0."""
    if not 0.5 <= share < 1.0:
        raise SettingError(f"majority share is {share}; expected from 0.5 to under 1")
    few = int(np.floor((1 - share) * size + 0.5))
    if few < 1:
        raise SettingError(
            f"a majority share of {share} leaves no example of class {minority} among {size}; "
            "lower the share or take more examples"
        )
    return {majority: size - few, minority: few}


def evenly(size: int, classes: Sequence[int], *, seed: int) -> dict[int, int]:
    """Counts of `classes` that sum to `size`; where they must differ, the seed says which get one more."""
    each, rest = divmod(size, len(classes))
    more = set(Draws(seed, "evenly").permutation(len(classes))[:rest].tolist())
    return {label: each + (k in more) for k, label in enumerate(classes)}


class NoisySubset(NamedTuple):
    """Ids of the chosen examples, int64 [k]; their labels after corruption; which of these changed."""

    ids: Tensor
    labels: Tensor
    changed: Tensor


def noisy_imbalance(
    labels: Tensor,
    counts: Mapping[int, int],
    *,
    corruption: str,
    rate: float,
    classes: int,
    seed: int,
    **options: object,
) -> NoisySubset:
    """First choose by `imbalance`, then corrupt the labels of what was chosen."""
    ids = imbalance(labels, counts, seed=seed)
    noisy = corrupt(corruption, labels[ids], rate=rate, classes=classes, seed=seed, **options)
    return NoisySubset(ids, *noisy)


def first_of_each(
    labels: Indices, order: Indices, counts: Mapping[int, int], *, what: str
) -> Indices:
    """The first `counts[c]` ids of every class c, along `order`."""
    parts = []
    for label, count in counts.items():
        members = order[labels[order] == label]
        if len(members) < count:
            raise SettingError(
                f"{count} {what} of class {label} were asked, but it has {len(members)}; "
                "ask for fewer"
            )
        parts.append(members[:count])
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def check_counts(**counts: int) -> None:
    """Refuse a count that is not a whole number from 0 up, by name."""
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise SettingError(f"{name} is {count!r}; expected a whole number from 0 up")


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
        wanted = dict.fromkeys(present, clean_per_class)
        if clean_even:
            wanted = evenly(clean, present, seed=seed)
        chosen = first_of_each(given, order, wanted, what="clean examples")
    else:
        chosen = order[:clean]
    if len(chosen) + hyper_validation > total or clean > total:
        raise SettingError(
            f"{max(clean, len(chosen))} clean and {hyper_validation} hyper-validation examples "
            f"were asked of {total}; ask for fewer"
        )
    rest = order[~np.isin(order, chosen)]
    parts = (rest[hyper_validation:], rest[:hyper_validation], chosen)
    return Split(*map(_sorted, parts))


def _sorted(ids: Indices) -> Tensor:
    return torch.from_numpy(np.sort(ids).astype(np.int64))
