"""An order in which few rows stand for many: greedy medoids, class after class in turn.

Within a class C, the rows S chosen so far leave  sum_{i in C} min_{j in S} |x_i - x_j|^2  ; the next
row is the one that lowers this most. The first is the most central row, the second the centre of
what the first does not cover, and so on: typical and different at once, never an outlier. Every
beginning of the order is itself such a choice, and the classes take turns, so it is balanced.

Cost: all distances within a class; classes of over 1,000 rows are represented by 1,000 drawn ones.
"""

from __future__ import annotations

from itertools import chain, zip_longest

import torch
from torch import Tensor

MOST = 1000


def covering_order(x: Tensor, classes: Tensor, k: int, *, seed: int) -> Tensor:
    """The first k rows [k] of features [n, d], given the class of each."""
    draws = torch.Generator().manual_seed(seed)
    present = classes.unique().tolist()
    rounds = -(-k // len(present))
    while True:
        queues = [_medoids(x, (classes == c).nonzero().flatten(), rounds, draws) for c in present]
        order = [row for row in chain(*zip_longest(*queues)) if row is not None]
        if len(order) >= k or rounds >= MOST:
            return torch.tensor(order[:k])
        rounds = min(2 * rounds, MOST)  # small classes are used up: the others give more


def _medoids(x: Tensor, members: Tensor, count: int, draws: torch.Generator) -> list[int]:
    if len(members) > MOST:
        members = members[torch.randperm(len(members), generator=draws)[:MOST]].sort().values
    rows = x[members]
    distances = torch.cdist(rows, rows).square()
    left = torch.full((len(members),), float(distances.max()) + 1)
    chosen: list[int] = []
    for _ in range(min(count, len(members))):
        saved = (left[:, None] - distances).clamp(min=0).sum(0)
        saved[chosen] = -1
        chosen.append(int(saved.argmax()))
        left = torch.minimum(left, distances[:, chosen[-1]])
    return members[chosen].tolist()
