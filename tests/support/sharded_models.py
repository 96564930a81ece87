"""Models in shards, held against the definition on whole ones: every gradient of every example, by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import reweigh
from support.shared_batches import Meter

LOSS = reweigh.per_example(cross_entropy)
STEPS = 3


class Block(nn.Module):
    """Causal attention and a perceptron, each after a norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.body = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        heads = self.mixed(self.norms[0](x)).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        seen = scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.body(self.norms[1](x))


class Words(nn.Module):
    """A small language model; `tied`: the table of words is the head as well."""

    def __init__(self, *, tied: bool = False) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 8)
        self.places = nn.Parameter(torch.randn(6, 8) * 0.1)
        self.blocks = nn.ModuleList([Block(8), Block(8)])
        self.head = nn.Linear(8, 11, bias=False)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        y = self.words(x) + self.places
        for block in self.blocks:
            y = block(y)
        return self.head(y).mean(1)


class Adapter(nn.Module):
    """A frozen layer and a trained product of two narrow ones, as LoRA has them."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.base = nn.Linear(inputs, outputs).requires_grad_(False)
        self.down = nn.Linear(inputs, 2, bias=False)
        self.up = nn.Linear(2, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


class Scaled(nn.Module):
    """A layer whose weight is made from two parameters: the graph does not show it as a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.scale = nn.Parameter(torch.randn(4, 5)), nn.Parameter(torch.rand(4, 1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x @ (self.weight * self.scale).t())


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))


def pictures(norm: Callable[[int], nn.Module]) -> nn.Module:
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 5, 3), norm(5), nn.ReLU()),
        nn.Sequential(nn.Conv2d(5, 4, 2, groups=1), nn.ReLU(), nn.Flatten()),
        nn.Linear(16, 3),
    )


MODELS: dict[str, Callable[[], nn.Module]] = {
    "perceptron": perceptron,
    "even": lambda: nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)),
    "wide": lambda: nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Linear(64, 4)),
    "words": Words,
    "tied": lambda: Words(tied=True),
    "convolutions": lambda: pictures(lambda width: nn.GroupNorm(1, width)),
    "batch norm": lambda: pictures(nn.BatchNorm2d),
    "adapters": lambda: nn.Sequential(Adapter(5, 6), nn.Tanh(), Adapter(6, 3)),
    "scaled": lambda: nn.Sequential(Scaled(), nn.Linear(4, 3)),
}


SHAPES = {"even": (8,), "wide": (8,), "convolutions": (1, 5, 5), "batch norm": (1, 5, 5)}


def batch(kind: str, n: int, seed: int) -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(seed)
    if kind in ("words", "tied"):
        x = torch.randint(11, (n, 6), generator=draws)
        return x, torch.randint(11, (n,), generator=draws)
    x = torch.randn(n, *SHAPES.get(kind, (5,)), generator=draws, dtype=torch.float64)
    return x, torch.randint(3, (n,), generator=draws)


def summed(values: list[Tensor]) -> list[Tensor]:
    for value in values:
        dist.all_reduce(value)
    return values


@dataclass(frozen=True)
class Definition:
    """Of one step: scores and weights of this process's examples, the gradient of the joined batch."""

    scores: Tensor
    weights: Tensor
    gradient: list[Tensor]

    @staticmethod
    def of(model: nn.Module, train: Any, clean: Any) -> Definition:
        theta = [p for p in model.parameters() if p.requires_grad]

        def grads(scalar: Tensor, keep: bool = True) -> list[Tensor]:
            found = torch.autograd.grad(scalar, theta, retain_graph=keep, allow_unused=True)
            return [
                torch.zeros_like(p) if g is None else g for p, g in zip(theta, found, strict=True)
            ]

        kept = {name: value.clone() for name, value in model.named_buffers()}
        losses = LOSS(model, clean)
        m = summed([torch.tensor(float(len(losses)))])[0]
        direction = [g / m for g in summed(grads(losses.sum()))]
        for name, value in model.named_buffers():
            value.copy_(kept[name])
        each = [grads(one) for one in LOSS(model, train)]
        scores = torch.stack(
            [sum((a * b).sum() for a, b in zip(g, direction, strict=True)) for g in each]
        )
        positive = scores.clamp(min=0)
        weights = positive / summed([positive.sum()])[0]
        return Definition(
            scores, weights,
            summed([sum(w * g[i] for w, g in zip(weights, each, strict=True)) for i in range(len(theta))]),
        )  # fmt: skip


def sharded(model: nn.Module, mesh: Any, **options: Any) -> nn.Module:
    """Every child, and then all of it."""
    children = model.blocks if isinstance(model, Words) else list(model.children())
    for child in children:
        if any(True for _ in child.parameters()):
            fully_shard(child, mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)
    return model


def whole(value: Any) -> Tensor:
    return value.full_tensor() if hasattr(value, "full_tensor") else value


@dataclass(frozen=True)
class Sharded:
    """Steps of a model in shards beside the definition on a whole one, both trained with it.

    Returns how far they are apart, and what the last step moved, in sizes of the parameters ("else": numbers).
    """

    model: str = "perceptron"
    mesh: tuple[int, ...] | None = None  # None: one dimension
    backend: str = "auto"
    expected: str = "ghost"  # what "auto" settles on
    sizes: tuple[int, ...] = (4, 3, 5, 2)
    clean: int = 3
    fully_shard: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    def __call__(self, rank: int, world: int) -> dict[str, Any]:
        models = []
        for _ in range(2):
            torch.manual_seed(0)
            models.append(MODELS[self.model]().double())
        plain, model = models
        names = ("copies", "shards")[-len(self.mesh or (1,)) :]
        mesh = init_device_mesh("cpu", self.mesh or (world,), mesh_dim_names=names)
        sharded(model, mesh, **self.fully_shard)
        weigh = reweigh.Reweighter(
            model, LOSS, backend=self.backend, safeguard=None, **self.options
        )
        optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in models]
        worst: dict[str, float] = {}

        def compare(name: str, mine: Tensor, right: Tensor) -> None:
            size = max(1.0, float(right.abs().max()))
            worst[name] = max(worst.get(name, 0.0), float((mine - right).abs().max()) / size)

        for number in range(STEPS):
            train = batch(self.model, self.sizes[rank], 10 * number + rank)
            clean = batch(self.model, self.clean, 1000 + 10 * number + rank)
            right = Definition.of(plain, train, clean)
            with Meter() as meter:
                step = weigh(train, clean)
                step.loss.backward()
            compare("scores", step.scores, right.scores)
            compare("weights", step.weights, right.weights)
            trained = [p for p in model.parameters() if p.requires_grad]
            for p, g in zip(trained, right.gradient, strict=True):
                compare("gradient", whole(p.grad), g)
            for one, other in zip(model.buffers(), plain.buffers(), strict=True):
                compare("buffers", one.double(), other.double())
            for p, g in zip(
                (p for p in plain.parameters() if p.requires_grad), right.gradient, strict=True
            ):
                p.grad = g
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
        size = 8 * sum(p.numel() for p in plain.parameters())
        return {
            "worst": worst,
            "backend": str(weigh.backend),
            "reason": weigh.backend.reason,
            "gathered": world * _sent(meter, "_allgather_base_") / size,
            "reduced": _sent(meter, "_reduce_scatter_base_") / size,
            "else": (_sent(meter, "allreduce_") + world * _sent(meter, "allgather_")) / 8,
        }


def _sent(meter: Meter, name: str) -> int:
    """Bytes that this process has given to exchanges of this name."""
    return sum(size for called, size in meter.sent if called == name)
