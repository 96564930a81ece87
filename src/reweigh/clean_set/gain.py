"""An estimate of what checking k rows would bring, from a rehearsal on the data itself.

    gain(k) = accuracy of reweighed training with k rows - accuracy of plain training

Nobody has checked the rows yet, so the opinion of the cross-fitted models takes the place of the
truth. The first k suggested rows get it as their label. A small network is trained on the labels as
given, reweighed against those k rows. Its accuracy is measured against the opinion on a fifth of the
rows, which it was not trained on.

The estimate shows the shape of the curve (from which k on more rows bring little) better than its
height. If the opinion is wrong, so is the estimate: if errors follow a pattern, or with a few hundred
very noisy rows, where even the sign of the gain can be wrong.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..core import Reweighter, per_example

BATCH, HIDDEN, RATE, HELD = 64, 64, 0.03, 0.2


@dataclass(frozen=True)
class Gain:
    """The rehearsed accuracy with `k` checked rows, and its difference to plain training."""

    k: int
    accuracy: float
    gain: float


def rehearse(
    x: Tensor, given: Tensor, opinion: Tensor, order: Tensor, sizes: Sequence[int],
    *, steps: int, seed: int,
) -> tuple[Gain, ...]:  # fmt: skip
    """The gain for each of `sizes`; x [n, d], labels as given [n], the models' opinion [n]."""
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
    accuracies = [(k, accuracy(order[:k])) for k in sizes]
    return tuple(Gain(k, value, value - plain) for k, value in accuracies)


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
