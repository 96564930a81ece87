"""K runs of `hedge.py` as stacked tensors: forward, per-example gradients, rule, safeguard, hedge, SGD.

score_i = sum over layers < delta_i , G a_i >      a: what a layer gets, delta: the gradient at its output
d       = sum over i of w_i delta_i a_i'
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

HEDGED = ("hedged", "asked", "unsorted")
STEPS, BATCH, WIDTH, FOLDS = 600, 100, 64, 5
Layers = list[Tensor]  # [K, out, in + 1] each: weights and, in the last column, biases


@dataclass(frozen=True)
class Rows:
    """One seed's data: train inputs, given labels; clean and test inputs, true labels."""

    train: tuple[Tensor, Tensor]
    clean: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    classes: int


def forward(layers: Layers, inputs: Tensor) -> tuple[list[Tensor], Tensor]:
    """What each layer gets, with a one at its end, and the outputs [K, n, classes]."""
    seen: list[Tensor] = []
    for layer in layers:
        if seen:
            inputs = inputs.relu()
        seen.append(functional.pad(inputs, (0, 1), value=1.0))
        inputs = seen[-1] @ layer.transpose(1, 2)
    return seen, inputs


def deltas(layers: Layers, seen: list[Tensor], delta: Tensor) -> list[Tensor]:
    """The gradient of each example's loss at the output of each layer, from that at the last."""
    found = [delta]
    for layer, below in zip(layers[:0:-1], seen[:0:-1], strict=True):
        delta = (delta @ layer[:, :, :-1]) * (below[:, :, :-1] > 0)
        found.insert(0, delta)
    return found


def gradient(ds: list[Tensor], seen: list[Tensor], weights: Tensor) -> Layers:
    """sum_i weights_i grad f_i, for weights [K, n]."""
    return [(d * weights.unsqueeze(2)).transpose(1, 2) @ a for d, a in zip(ds, seen, strict=True)]


def scores(direction: Layers, ds: list[Tensor], seen: list[Tensor]) -> Tensor:
    """<grad f_i, direction>, [K, n]."""
    each = zip(direction, ds, seen, strict=True)
    return sum(((d * (a @ g.transpose(1, 2))).sum(2) for g, d, a in each), torch.zeros(()))


def dot(left: Layers, right: Layers) -> Tensor:
    """[K]."""
    return sum(((x * y).sum((1, 2)) for x, y in zip(left, right, strict=True)), torch.zeros(()))


def by(factor: Tensor, layers: Layers) -> Layers:
    return [factor.view(-1, 1, 1) * x for x in layers]


@dataclass
class Trust:
    """core/safeguard.py for K runs."""

    trust: Tensor = field(default_factory=lambda: torch.zeros(()))
    step: int = 0

    def __call__(self, loss: Tensor, clean: Layers, move: Layers | None, d: Layers) -> Tensor:
        if move is None:
            safe = 0.5 * dot(clean, d) / dot(d, d).clamp(min=1e-38)
            self.trust, self.smooth, self.best = safe.clamp(0.01, 1), loss, loss
            self.deviation = torch.zeros_like(loss)
        else:
            sign, new = dot(clean, move).sign(), max(1 / (self.step + 1), 0.1)
            self.deviation = self.deviation + new * ((loss - self.smooth) ** 2 - self.deviation)
            self.smooth = self.smooth + new * (loss - self.smooth)
            back_up = self.smooth > self.best + self.deviation.sqrt()
            forgotten = torch.minimum(self.smooth, self.best + (self.smooth - self.best) / 100)
            self.best = self.smooth if self.step < 10 else forgotten
            change = torch.where((sign < 0) & back_up, 0.0, -0.05 * sign)
            self.trust = (self.trust * change.exp()).clamp(1e-4, 1)
        self.step += 1
        return self.trust


def folds(labels: Tensor, seed: int, *, sorted_: bool) -> Tensor:
    """The turn in which each clean row judges."""
    if not sorted_:
        return torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed)) % FOLDS
    order = torch.argsort(labels, stable=True)
    found = torch.empty_like(order)
    found[order] = torch.arange(len(order)) % FOLDS
    return found


class Hedge:
    """methods/hedged.py for K runs: how much of the step follows the weights, [K]."""

    def __init__(self, names: Sequence[str], layers: Layers) -> None:
        self.on = torch.tensor([name in HEDGED for name in names])
        fixed = {"plain": 0.0, "half": 0.5}
        self.fixed = torch.tensor([fixed.get(name, 1.0) for name in names])
        self.weighed = self.plain = torch.full((len(names),), 0.5)
        self.past = [[torch.zeros_like(x) for x in layers] for _ in range(2)]

    def share(self, held: Layers) -> Tensor:
        for name, past in zip(("weighed", "plain"), self.past, strict=True):
            moved = getattr(self, name) * (0.05 * dot(held, past).sign()).exp()
            setattr(self, name, moved.clamp(1e-4, 1))
        return torch.where(self.on, self.weighed / (self.weighed + self.plain), self.fixed)

    def add(self, d: Layers, p: Layers) -> None:
        self.past = [
            [0.9 * x + y for x, y in zip(past, new, strict=True)]
            for past, new in zip(self.past, (d, p), strict=True)
        ]


class Draws:
    """Train batches of each seed: every row once, in random order, then all again."""

    def __init__(self, seeds: Sequence[int]) -> None:
        self.random = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.left = [torch.zeros(0, dtype=torch.long) for _ in seeds]

    def __call__(self, data: Sequence[Rows]) -> tuple[Tensor, Tensor]:
        for s, one in enumerate(data):
            if len(self.left[s]) < BATCH:
                more = torch.randperm(len(one.train[1]), generator=self.random[s])
                self.left[s] = torch.cat([self.left[s], more])
        ids, self.left = [x[:BATCH] for x in self.left], [x[BATCH:] for x in self.left]
        parts = [(one.train[0][i], one.train[1][i]) for one, i in zip(data, ids, strict=True)]
        return torch.stack([x for x, _ in parts]), torch.stack([y for _, y in parts])


def first_layers(data: Rows, seed: int) -> Layers:
    sizes = (data.train[0].shape[1], WIDTH, WIDTH, data.classes)
    torch.manual_seed(seed)
    linear = [torch.nn.Linear(i, o) for i, o in itertools.pairwise(sizes)]
    return [torch.cat([x.weight, x.bias.unsqueeze(1)], 1).detach().unsqueeze(0) for x in linear]


def train(data: Sequence[Rows], seeds: Sequence[int], variants: Sequence[str], lr: float,
          steps: int = STEPS) -> tuple[Layers, Tensor]:  # fmt: skip
    """All variants of all seeds; the layers, and the mean share of the weights [K] (variants outermost)."""
    names, many = [v for v in variants for _ in seeds], len(variants)
    one = [first_layers(d, s) for d, s in zip(data, seeds, strict=True)]
    layers = [torch.cat(x).repeat(many, 1, 1) for x in zip(*one, strict=True)]
    clean = torch.stack([d.clean[0] for d in data]).repeat(many, 1, 1)
    labels = torch.stack([d.clean[1] for d in data]).repeat(many, 1)
    turns = torch.cat([
        torch.stack([folds(d.clean[1], s, sorted_=v != "unsorted") for d, s in zip(data, seeds, strict=True)])
        for v in variants
    ])  # fmt: skip
    holds, asked = (
        torch.tensor([n in group for n in names]).unsqueeze(1) for group in (HEDGED, ["asked"])
    )
    guarded = torch.tensor([name != "plain" for name in names])
    draws, trust, hedge = Draws(seeds), Trust(), Hedge(names, layers)
    momentum, move = [torch.zeros_like(x) for x in layers], None
    shares = torch.zeros(len(names))
    for step in range(steps):
        inputs, given = (x.repeat(many, *[1] * (x.ndim - 1)) for x in draws(data))
        targets = torch.cat([given, labels], 1)
        seen, out = forward(layers, torch.cat([inputs, clean], 1))
        losses = -out.log_softmax(2).gather(2, targets.unsqueeze(2)).squeeze(2)
        ds = deltas(layers, seen, out.softmax(2) - functional.one_hot(targets, out.shape[2]))
        at, dt = [a[:, :BATCH] for a in seen], [d[:, :BATCH] for d in ds]
        ac, dc = [a[:, BATCH:] for a in seen], [d[:, BATCH:] for d in ds]
        judges = (turns == min(FOLDS - 1, FOLDS * step // steps)) & holds
        asks = (~judges | asked).float()
        judged = torch.where(asked, torch.ones_like(asks), judges.float())
        asks, judged = (x / x.sum(1, keepdim=True).clamp(min=1) for x in (asks, judged))
        share = hedge.share(gradient(dc, ac, judged))
        direction = gradient(dc, ac, asks)
        positive = scores(direction, dt, at).clamp(min=0)
        d = gradient(dt, at, positive / positive.sum(1, keepdim=True).clamp(min=1e-38))
        p = gradient(dt, at, torch.full((len(names), BATCH), 1 / BATCH))
        hedge.add(d, p)
        mixed = [x + y for x, y in zip(by(share, d), by(1 - share, p), strict=True)]
        factor = trust((losses[:, BATCH:] * asks).sum(1), direction, move, mixed)
        mixed = by(torch.where(guarded, factor, 1.0), mixed)
        rate = lr * (0.1 if step >= steps * 4 // 5 else 1.0)
        momentum = [0.9 * m + x for m, x in zip(momentum, mixed, strict=True)]
        move = by(torch.full((len(names),), -rate), momentum)
        layers = [x + y for x, y in zip(layers, move, strict=True)]
        shares += share / steps
    return layers, shares
