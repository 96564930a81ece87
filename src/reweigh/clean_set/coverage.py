"""An order of rows in which the first few represent the rest: greedy medoids, classes in turn.

    cost(S) = sum_{i in C} min_{j in S} |x_i - x_j|^2      C: the rows of a class, S: those chosen

The next row of a class is the one that lowers its cost most. The first is the most central row, the
second the centre of what the first does not cover, and so on: the rows are typical and different,
and none is an outlier. The first k rows of the order are such a choice for every k. One row of each
class is taken in turn, so the order is balanced.

Time and memory: all distances within a class. A class of more than 1,000 rows is represented by
1,000 random ones.
"""

from itertools import chain, zip_longest

import torch
from torch import Tensor

MOST = 1000  # rows of a class


def covering_order(x: Tensor, classes: Tensor, k: int, *, seed: int) -> Tensor:
    """The first k rows [k] of the order, for features [n, d] and the class [n] of each row."""
    draws = torch.Generator().manual_seed(seed)
    present = classes.unique().tolist()
    rounds = -(-k // len(present))
    while True:
        queues = [_medoids(x, (classes == c).nonzero().flatten(), rounds, draws) for c in present]
        order = [row for row in chain(*zip_longest(*queues)) if row is not None]
        if len(order) >= k or rounds >= MOST:
            return torch.tensor(order[:k])
        rounds = min(2 * rounds, MOST)  # small classes are used up: take more of the others


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
