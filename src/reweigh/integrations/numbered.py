"""Training examples with their number, so that the ledger can tell them apart."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils.data import Dataset

NUMBER = "example_number"


class NumberedItem(NamedTuple):
    """An item, or after collating a batch of them, and its position in the data set."""

    item: Any
    number: Any


class Numbered(Dataset[Any]):
    """Any data set with a length; each item becomes `NumberedItem(item, number)`.

    PyTorch's default collating keeps the pair: a batch is a `NumberedItem` of the usual batch and
    the numbers [n].

    >>> from torch.utils.data import DataLoader
    >>> next(iter(DataLoader(Numbered([7.0, 8.0]), batch_size=2))).number
    tensor([0, 1])
    """

    def __init__(self, items: Any) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, number: int) -> Any:
        return NumberedItem(self.items[number], number)


class NumberedDicts(Numbered):
    """A data set of dicts; each gets its position under one more key."""

    def __getitem__(self, number: int) -> dict[str, Any]:
        return {**self.items[number], NUMBER: int(number)}


class NumberedCollator:
    """Collate items as `collator` does, and add their numbers."""

    def __init__(self, collator: Callable[[Sequence[Any]], Any]) -> None:
        self.collator = collator

    def __call__(self, items: Sequence[Any]) -> Any:
        """The batch as a dict; with numbers [n] if the items have them."""
        if not items or not isinstance(items[0], Mapping) or NUMBER not in items[0]:
            return self.collator(items)
        numbers = torch.tensor([item[NUMBER] for item in items])
        bare = [{key: value for key, value in item.items() if key != NUMBER} for item in items]
        return {**self.collator(bare), NUMBER: numbers}
