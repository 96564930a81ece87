"""Many small runs at once, as stacked tensors: K perceptrons with two hidden layers of 64, [K, ...] each.

    score_i = sum over layers < delta_i , G a_i >      a: what a layer gets, delta: the gradient at its output
    d       = sum over i of w_i delta_i a_i'

A tenth of the time of one run after the other. Methods, safeguard (stacked_safeguard.py) and hedge are written
out here once more; `check` compares them with the library's. Training is as `reweigh train` has it: batch 100, all
clean rows in every step, 600 steps of SGD .02 with momentum .9, cut to a tenth at four fifths, norm of the gradient at
most 10. A name is a method's, with `+clean` or `+ft` (200 steps on the clean rows at .005), or of hedge.py:

    half        the weights count a half, plain training the other
    asked       reweigh_hedged, but judged by the rows that weigh: all clean rows do both
    unsorted    reweigh_hedged, but the rows that judge are drawn without regard to class
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from stacked_safeguard import Layers, Trust, dot
from torch import Tensor
from torch.nn import functional

from reweigh.rng import hashed_seed

HEDGED = ("reweigh_hedged", "asked", "unsorted")
STEPS, BATCH, WIDTH, CLIP = 600, 100, 64, 10.0
MOST_TURNS, FEWEST = 5, 10  # of the hedge: fewer clean rows judge nothing
TUNED, TUNED_RATE = 200, 0.005
AVERAGED = 0.1  # the share of the run that the average of the weights looks back on


@dataclass(frozen=True)
class Rows:
    """One seed's data: train inputs, given labels; clean and test inputs, true labels."""

    train: tuple[Tensor, Tensor]
    clean: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    classes: int


@dataclass(frozen=True)
class Trained:
    """K runs: their layers, an average of these over the last tenth, the mean share of the weights [K]."""

    layers: Layers
    average: Layers
    shares: Tensor


def forward(layers: Layers, inputs: Tensor) -> tuple[list[Tensor], Tensor]:
    """What each layer gets, with a one at its end, and the outputs [K, n, classes]."""
    seen: list[Tensor] = []
    for layer in layers:
        if seen:
            inputs = inputs.relu()
        seen.append(functional.pad(inputs, (0, 1), value=1.0))
        inputs = seen[-1] @ layer.transpose(1, 2)
    return seen, inputs


def deltas(layers: Layers, seen: list[Tensor], outputs: Tensor, targets: Tensor) -> list[Tensor]:
    """The gradient of each example's cross-entropy at the output of each layer."""
    delta = outputs.softmax(2) - functional.one_hot(targets, outputs.shape[2])
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


def by(factor: Tensor, layers: Layers) -> Layers:
    return [factor.view(-1, 1, 1) * x for x in layers]


def plus(left: Layers, right: Layers) -> Layers:
    return [x + y for x, y in zip(left, right, strict=True)]


def of(runs: Tensor, layers: list[Tensor]) -> list[Tensor]:
    """Only some of the K runs."""
    return [x[runs] for x in layers]


def turns_of(labels: Tensor, parts: int, seed: int, *, sorted_: bool) -> Tensor:
    """The turn in which each clean row judges."""
    if not sorted_:
        return torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed)) % parts
    order = torch.argsort(labels, stable=True)
    found = torch.empty_like(order)
    found[order] = torch.arange(len(order)) % parts
    return found


class Hedge:
    """methods/hedged.py for K runs: how much of the step follows the weights, [K]."""

    def __init__(self, names: Sequence[str], layers: Layers) -> None:
        self.on = torch.tensor([name in HEDGED for name in names], dtype=torch.bool)
        self.weighed = self.plain = torch.full((len(names),), 0.5)
        self.past = [[torch.zeros_like(x) for x in layers] for _ in range(2)]

    def share(self, held: Layers) -> Tensor:
        for name, past in zip(("weighed", "plain"), self.past, strict=True):
            moved = getattr(self, name) * (0.05 * dot(held, past).sign()).exp()
            setattr(self, name, moved.clamp(1e-4, 1))
        return torch.where(self.on, self.weighed / (self.weighed + self.plain), 0.5)

    def trust(self, in_weights: Tensor, share: Tensor) -> Tensor:
        return torch.where(self.on, share * in_weights + (1 - share) * self.plain, in_weights)

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
            while len(self.left[s]) < BATCH:
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


class Steps:
    """The gradient of each of K runs, step by step."""

    def __init__(
        self, names: Sequence[str], data: Sequence[Rows], seeds: Sequence[int], layers: Layers, steps: int
    ) -> None:  # fmt: skip
        count, classes = len(data[0].clean[1]), data[0].classes
        few = count < FEWEST or count < 2 * classes
        self.parts = max(1, min(MOST_TURNS, count // classes))
        bases = [
            "reweigh" if few and name in HEDGED else name.removesuffix("+clean") for name in names
        ]
        self.times = len(names) // len(seeds)
        self.clean = torch.stack([d.clean[0] for d in data]).repeat(self.times, 1, 1)
        self.labels = torch.stack([d.clean[1] for d in data]).repeat(self.times, 1)
        self.turns = torch.stack([
            turns_of(
                data[k % len(seeds)].clean[1], self.parts, seeds[k % len(seeds)],
                sorted_=name != "unsorted",
            )
            for k, name in enumerate(bases)
        ])  # fmt: skip

        def marked(*wanted: str) -> Tensor:
            return torch.tensor([base in wanted for base in bases], dtype=torch.bool)

        self.plain, self.random, self.alone = map(marked, ("uniform", "random", "clean_only"))
        self.unguarded = marked("uniform", "random", "clean_only", "reweigh_literal")
        self.holds, self.asked = marked(*HEDGED).unsqueeze(1), marked("asked").unsqueeze(1)
        self.twice = marked("reweigh_bootstrap").nonzero().squeeze(1)
        self.mixed = marked(*HEDGED, "half").nonzero().squeeze(1)
        learns = torch.tensor([name.endswith("+clean") for name in names]).float()
        size = self.clean.shape[1]
        self.learnt = torch.where(self.alone, 1.0, learns * size / (size + BATCH))
        self.hedge = Hedge([bases[k] for k in self.mixed], of(self.mixed, layers))
        self.trust, self.steps, self.seeds = Trust(), steps, seeds

    def __call__(self, step: int, layers: Layers, inputs: Tensor, given: Tensor) -> tuple[Layers, Tensor]:  # fmt: skip
        """The gradient, and the share of the weights in the hedged runs, [of self.mixed]."""
        inputs, given = (x.repeat(self.times, *[1] * (x.ndim - 1)) for x in (inputs, given))
        seen, out = forward(layers, torch.cat([inputs, self.clean], 1))
        ds = deltas(layers, seen, out, torch.cat([given, self.labels], 1))
        at, dt = [a[:, :BATCH] for a in seen], [d[:, :BATCH] for d in ds]
        ac, dc = [a[:, BATCH:] for a in seen], [d[:, BATCH:] for d in ds]
        judges = (self.turns == min(self.parts - 1, self.parts * step // self.steps)) & self.holds
        asks = (~judges | self.asked).float()
        direction = gradient(dc, ac, asks / asks.sum(1, keepdim=True))
        found = scores(direction, dt, at)
        chance = self._by_chance(step)
        positive = torch.where(self.random.unsqueeze(1), chance, found).clamp(min=0)
        positive[self.plain] = 1.0
        total, own = positive.sum(1, keepdim=True), self._own(layers, at, out, direction, found)
        total[self.twice] += own[1].sum(1, keepdim=True)
        d = gradient(dt, at, positive / total.clamp(min=1e-38))
        second = gradient(own[0], of(self.twice, at), own[1] / total[self.twice].clamp(min=1e-38))
        for x, y in zip(d, second, strict=True):
            x[self.twice] += y
        share = self._hedged(d, at, dt, ac, dc, judges, chance)
        factor = torch.where(self.unguarded, 1.0, self.trust(layers, direction, d))
        factor[self.mixed] = self.hedge.trust(factor[self.mixed], share)
        made = plus(by((1 - self.learnt) * factor, d), by(self.learnt, direction))
        return by((CLIP / (dot(made, made).sqrt() + 1e-6)).clamp(max=1.0), made), share

    def _by_chance(self, step: int) -> Tensor:
        """[K, BATCH] Gaussian numbers, as the method `random` draws them."""
        drawn = [
            torch.randn(BATCH, generator=torch.Generator().manual_seed(hashed_seed(s, "random weights", step)))
            for s in self.seeds
        ]  # fmt: skip
        return torch.stack(drawn).repeat(self.times, 1)

    def _own(
        self, layers: Layers, at: list[Tensor], out: Tensor, direction: Layers, given: Tensor
    ) -> tuple[list[Tensor], Tensor]:
        """methods/bootstrap.py: gradients against the model's own label, and scores that count."""
        mine, outputs, seen = of(self.twice, layers), out[self.twice, :BATCH], of(self.twice, at)
        ds = deltas(mine, seen, outputs, outputs.argmax(2))
        found = scores(of(self.twice, direction), ds, seen)
        return ds, found.clamp(min=0) * (given[self.twice] < 0)

    def _hedged(
        self, d: Layers, at: list[Tensor], dt: list[Tensor], ac: list[Tensor], dc: list[Tensor],
        judges: Tensor, chance: Tensor,
    ) -> Tensor:  # fmt: skip
        """Mixes gradients with random weights, or plain ones, into d; the share of the weights."""
        mixed = self.mixed
        judged = torch.where(self.asked, 1.0, judges.float())[mixed]
        judged = judged / judged.sum(1, keepdim=True).clamp(min=1)
        share = self.hedge.share(gradient(of(mixed, dc), of(mixed, ac), judged))
        weighed = of(mixed, d)
        p = gradient(of(mixed, dt), of(mixed, at), torch.full((len(mixed), BATCH), 1 / BATCH))
        self.hedge.add(weighed, p)
        drawn = chance[mixed].clamp(min=0)
        r = gradient(of(mixed, dt), of(mixed, at), drawn / drawn.sum(1, keepdim=True))
        rest = [torch.where(self.hedge.on.view(-1, 1, 1), x, y) for x, y in zip(r, p, strict=True)]
        for x, y in zip(d, plus(by(share, weighed), by(1 - share, rest)), strict=True):
            x[mixed] = y
        return share


def train(
    data: Sequence[Rows], seeds: Sequence[int], names: Sequence[str], lr: float, steps: int = STEPS
) -> Trained:
    """Every name with every seed, names outermost."""
    bases = list(dict.fromkeys(name.removesuffix("+ft") for name in names))
    each = [base for base in bases for _ in seeds]
    one = [first_layers(d, s) for d, s in zip(data, seeds, strict=True)]
    layers = [torch.cat(x).repeat(len(bases), 1, 1) for x in zip(*one, strict=True)]
    draws, made = Draws(seeds), Steps(each, data, seeds, layers, steps)
    momentum, average = [torch.zeros_like(x) for x in layers], layers
    shares = torch.zeros(len(each))
    for step in range(steps):
        g, share = made(step, layers, *draws(data))
        shares[made.mixed] += share / steps
        rate = lr * (0.1 if step >= steps * 4 // 5 else 1.0)
        momentum = [0.9 * m + x for m, x in zip(momentum, g, strict=True)]
        layers = [x - rate * m for x, m in zip(layers, momentum, strict=True)]
        average = [a + (x - a) / (1 + AVERAGED * step) for a, x in zip(average, layers, strict=True)]  # fmt: skip
    position = {base: torch.arange(len(seeds)) + k * len(seeds) for k, base in enumerate(bases)}
    runs = torch.cat([position[name.removesuffix("+ft")] for name in names])
    tuned = torch.tensor([name.endswith("+ft") for name in names for _ in seeds])
    layers, average = of(runs, layers), of(runs, average)
    ends = fine_tuned(of(tuned, layers), data, int(tuned.sum()) // len(seeds))
    for kept in (layers, average):
        for x, y in zip(kept, ends, strict=True):
            x[tuned] = y
    return Trained(layers, average, shares[runs])


def fine_tuned(layers: Layers, data: Sequence[Rows], times: int) -> Layers:
    """Some steps on the clean rows alone."""
    inputs = torch.stack([d.clean[0] for d in data]).repeat(times, 1, 1)
    labels = torch.stack([d.clean[1] for d in data]).repeat(times, 1)
    momentum = [torch.zeros_like(x) for x in layers]
    for _ in range(TUNED if times else 0):
        seen, out = forward(layers, inputs)
        ds = deltas(layers, seen, out, labels)
        g = gradient(ds, seen, torch.full(labels.shape, 1 / labels.shape[1]))
        momentum = [0.9 * m + x for m, x in zip(momentum, g, strict=True)]
        layers = [x - TUNED_RATE * m for x, m in zip(layers, momentum, strict=True)]
    return layers


def accuracies(layers: Layers, data: Sequence[Rows]) -> Tensor:
    """[K], names outermost."""
    times = len(layers[0]) // len(data)
    inputs = torch.stack([d.test[0] for d in data]).repeat(times, 1, 1)
    truth = torch.stack([d.test[1] for d in data]).repeat(times, 1)
    return (forward(layers, inputs)[1].argmax(2) == truth).float().mean(1)
