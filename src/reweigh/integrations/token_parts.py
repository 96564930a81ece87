"""Which tokens make up an example, and which a part of one: sequences, turns, tokens; packed or not.

    packed batch      several examples in one row of tokens, one after the other
    segment           the tokens of one example in it; begins where positions restart
    turn              a run of tokens with labels, such as one answer in a chat
    level             the part of an example that has a loss, a score and a weight of its own

Labels of -100 belong to no part, and weigh nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import BatchError

IGNORED = -100
LEVELS = ("sequence", "turn", "token")


def segment_starts(batch: Mapping[str, Any], shape: torch.Size, *, required: bool) -> Tensor | None:
    """[n, T]: whether an example begins at a token; None where every row is one example.

    Read from `segment_ids` or `seq_idx`, which differ between examples, or from `position_ids`, which
    restart. required: the batch is known to be packed, so that one of them must be there.
    """
    ids, positions = batch.get("segment_ids", batch.get("seq_idx")), batch.get("position_ids")
    if ids is not None and ids.shape == shape:
        begins = ids[:, 1:] != ids[:, :-1]
    elif positions is not None and positions.shape == shape:
        begins = positions[:, 1:] <= positions[:, :-1]
        mask = batch.get("attention_mask")
        if mask is not None and mask.shape == shape:  # positions of padding mean nothing
            begins = begins & (mask[:, 1:] != 0) & (mask[:, :-1] != 0)
        if not required and not begins.any():
            return None
    elif required:
        raise BatchError(
            f"a packed batch with {sorted(map(str, batch))} does not tell where its examples begin; expected "
            f"position_ids that restart with each, seq_idx or segment_ids: collate with "
            f"transformers' DataCollatorWithFlattening"
        )
    else:
        return None
    return torch.cat([torch.ones_like(begins[:, :1]), begins], dim=1)


@dataclass(frozen=True)
class Parts:
    """The parts of a batch of tokens [n, T].

    place:    [n, T], of a token among all parts: its example times `width`, and its part there.
    counted:  [n, T], whether a token belongs to a part.
    examples: their number. width: the largest number of parts that an example has.
    """

    place: Tensor
    counted: Tensor
    examples: int
    width: int

    def means(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """The mean of `values` [n, T] over the tokens of each part, and how many these are:
        [examples, width] both, with zeros for parts that do not exist."""
        size, place = self.examples * self.width, self.place.flatten()
        counted = self.counted.to(values.dtype)
        counts = values.new_zeros(size).index_add(0, place, counted.flatten())
        sums = values.new_zeros(size).index_add(0, place, (values * counted).flatten())
        means = sums / counts.clamp(min=1)
        return means.view(self.examples, self.width), counts.view(self.examples, self.width)


def parts_of(labels: Tensor, starts: Tensor | None, *, level: str, shifted: bool) -> Parts:
    """The parts of tokens with these labels [n, T].

    starts:  where examples begin, of a packed batch.
    shifted: the first token of an example is predicted by none.
    """
    counted, begins = labels != IGNORED, torch.zeros_like(labels, dtype=torch.bool)
    begins[:, :1] = True
    if starts is not None:
        begins = begins | starts
    if shifted:
        counted = counted & ~begins
    example = _numbered(begins)
    examples = int(example[-1, -1]) + 1 if example.numel() else 0
    if starts is not None:
        example, examples = _without_padding(example, labels != IGNORED, examples)
    part, width = torch.zeros_like(example), 1
    if level != "sequence":
        first = counted.clone()
        if level == "turn":
            first[:, 1:] &= ~counted[:, :-1] | begins[:, 1:]
        count = torch.zeros(examples, dtype=torch.long, device=labels.device)
        count = count.index_add(0, example.flatten(), first.flatten().long())
        before = count.cumsum(0) - count
        part = (_numbered(first) - before[example]).clamp(min=0)
        width = max(1, int(count.max())) if examples else 1
        part = part.clamp(max=width - 1)  # of tokens that belong to none
    return Parts(example * width + part, counted, examples, width)


def _numbered(first: Tensor) -> Tensor:
    """[n, T]: the number of the run that a token is in, over all rows; `first` marks its first token."""
    return first.flatten().long().cumsum(0).view(first.shape) - 1


def _without_padding(example: Tensor, labelled: Tensor, examples: int) -> tuple[Tensor, int]:
    """Padding of a packed row repeats one position, so that each of its tokens looks like an example."""
    zeros = torch.zeros(examples, dtype=torch.long, device=example.device)
    lengths = zeros.index_add(0, example.flatten(), torch.ones_like(example).flatten())
    labels = zeros.index_add(0, example.flatten(), labelled.flatten().long())
    kept = (lengths > 1) | (labels > 0)
    return (kept.long().cumsum(0) - 1).clamp(min=0)[example], int(kept.sum())
