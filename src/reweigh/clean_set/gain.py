"""What checking k rows would bring, rehearsed on the data at hand.

The cross-fitted models' common opinion plays the part of the truth: the first k suggested rows get
it as their checked label, a small network is trained on the labels as given, reweighed against those
k rows, and judged by the common opinion about a fifth of the rows that it did not see.

    gain(k) = accuracy reweighed with k rows - accuracy of plain training

An estimate of the shape (where more rows stop paying), less of the height: where the common opinion
is itself mistaken, the rehearsal is as blind as it is: where errors have a pattern, and on a few
hundred very noisy rows, where even the sign of the gain can be wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..core import Reweighter, per_example

BATCH, HIDDEN, RATE, HELD = 64, 64, 0.03, 0.2


@dataclass(frozen=True)
class Gain:
    """The rehearsed accuracy with `k` checked rows, and what that is above plain training."""

    k: int
    accuracy: float
    gain: float


def rehearse(
    x: Tensor, given: Tensor, opinion: Tensor, order: Tensor, sizes: Sequence[int],
    *, steps: int, seed: int,
) -> tuple[Gain, ...]:  # fmt: skip
    """The gain for each of `sizes`; x [n, d], labels as given [n], the common opinion [n]."""
    draws = torch.Generator().manual_seed(seed)
    held = torch.rand(len(x), generator=draws) < HELD
    held[order] = False
    train = (~held).nonzero().flatten()
    classes = int(max(given.max(), opinion.max())) + 1

    def accuracy(clean: Tensor | None) -> float:
        model = _trained(x, given, train, clean, opinion, classes, steps=steps, seed=seed)
        with torch.no_grad():
            right = model(x[held]).argmax(1) == opinion[held]
        return float(right.float().mean())

    plain = accuracy(None)
    found = [(k, accuracy(order[:k])) for k in sizes]
    return tuple(Gain(k, value, value - plain) for k, value in found)


def _trained(
    x: Tensor, given: Tensor, train: Tensor, clean: Tensor | None, opinion: Tensor, classes: int,
    *, steps: int, seed: int,
) -> nn.Module:  # fmt: skip
    loss = per_example(functional.cross_entropy)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(x.shape[1], HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, classes))
        weigh = Reweighter(model, loss)
        update = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
        for _ in range(steps):
            rows = train[torch.randint(len(train), (BATCH,))]
            batch = (x[rows], given[rows])
            update.zero_grad()
            if clean is None:
                loss(model, batch).mean().backward()
            else:
                weigh(batch, (x[clean], opinion[clean])).loss.backward()
            update.step()
    return model
