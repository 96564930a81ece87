"""The micro-batches between two optimizer steps: one batch that never has to be in memory at once."""

from collections.abc import Iterable, Mapping
from typing import Any

from ...errors import BatchError
from .loss import Batch, MicroBatches


def micro_batches(batches: Iterable[Batch]) -> MicroBatches:
    """The micro-batches of a window, refused where there is none or where they differ in columns."""
    if isinstance(batches, Mapping) or not isinstance(batches, Iterable):
        raise BatchError(
            f"window({type(batches).__name__}, ...); expected the micro-batches of one optimizer step, "
            f"such as a list of batches"
        )
    window = MicroBatches(batches)
    if not window:
        raise BatchError("the window is empty; expected at least one micro-batch")
    columns = columns_of(window[0])
    for number, batch in enumerate(window):
        if columns_of(batch) != columns:
            raise BatchError(
                f"micro-batch {number} of the window has {_described(columns_of(batch))}, the first "
                f"one {_described(columns)}; expected the same columns in all: look at the collator"
            )
    return window


def clean_batches(clean: Batch, window: MicroBatches) -> Batch:
    """The clean batch; as micro-batches if it is a list of batches of the window's kind."""
    like = columns_of(window[0])
    named = isinstance(like, frozenset)  # the loss sees to the columns of mappings
    if type(clean) is list and clean:
        found = [columns_of(part) for part in clean]
        if all(isinstance(one, frozenset) if named else one == like for one in found):
            return MicroBatches(clean)
    return clean


def columns_of(batch: Batch) -> Any:
    """What a batch is made of: names of a mapping, parts of a tuple or list; else its type."""
    if isinstance(batch, Mapping):
        return frozenset(batch)
    if isinstance(batch, list | tuple):
        return (type(batch).__name__, len(batch))
    return type(batch).__name__


def _described(columns: Any) -> str:
    if isinstance(columns, frozenset):
        return f"the columns {sorted(map(str, columns))}"
    return f"a {columns[0]} of {columns[1]}" if isinstance(columns, tuple) else f"a {columns}"
