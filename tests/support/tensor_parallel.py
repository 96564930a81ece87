"""Models cut by tensor parallelism, alone or inside fully_shard, held against the definition on whole ones.

Every process has the whole model beside the cut one, and the batches of all processes: the definition is a loop
over the examples of the joined batch, and needs no exchange.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

import reweigh
from support import definition
from support.shared_batches import Meter
from support.trust import Trust, weights_first

LOSS = reweigh.per_example(cross_entropy)
STEPS = 3
RATE = 0.1
WORDS, LENGTH, WIDTH, HEADS, BLOCKS = 12, 6, 8, 4, 1


class Block(nn.Module):
    """Causal attention and a perceptron, each after a norm; heads are as many as the columns here give."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norms[0](x)
        heads = [
            part(y).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2)
            for part in (self.q, self.k, self.v)
        ]
        seen = scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.dropout(self.out(seen.transpose(1, 2).flatten(2)))
        return x + self.down(gelu(self.up(self.norms[1](x))))


class Words(nn.Module):
    """A small language model."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList([Block(dropout) for _ in range(BLOCKS)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.words(x)
        for block in self.blocks:
            y = block(y)
        return self.head(self.norm(y)).mean(1)


def perceptron() -> nn.Module:
    return nn.Sequential(
        nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 6), nn.LayerNorm(6), nn.Linear(6, 4)
    )


MODELS = {
    "perceptron": perceptron,
    "words": Words,
    "words, dropout": lambda: Words(dropout=0.3),
}


def in_blocks(columns: Any, rows: Any) -> dict[str, Any]:
    """Attention by heads, and the perceptron by hidden units."""
    cut = {"q": columns, "k": columns, "v": columns, "out": rows, "up": columns, "down": rows}
    return {f"blocks.{i}.{name}": style() for i in range(BLOCKS) for name, style in cut.items()}


def plan(name: str) -> dict[str, Any]:
    """What is cut, and how."""
    if name == "perceptron":  # the norm and the last layer are ordinary tensors
        return {"0": ColwiseParallel(), "2": RowwiseParallel()}
    if name == "heads":
        return in_blocks(ColwiseParallel, RowwiseParallel)
    if name == "activations":  # between two layers they are DTensors
        kept = {f"blocks.{i}.up": ColwiseParallel(use_local_output=False) for i in range(BLOCKS)}
        return {**in_blocks(ColwiseParallel, RowwiseParallel), **kept}
    if name == "vocabulary":
        return {
            "words": RowwiseParallel(input_layouts=Replicate()),
            **in_blocks(ColwiseParallel, RowwiseParallel),
            "head": ColwiseParallel(output_layouts=Replicate()),
        }
    assert name == "sequence"  # norms and sums between the layers are of a part of each sequence
    norms = ("norm", *(f"blocks.{i}.norms.{k}" for i in range(BLOCKS) for k in range(2)))
    return {
        "words": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        **{norm: SequenceParallel() for norm in norms},
        **in_blocks(
            lambda: ColwiseParallel(input_layouts=Shard(1)),
            lambda: RowwiseParallel(output_layouts=Shard(1)),
        ),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    }


def batch(model: str, n: int, seed: int) -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(seed)
    if model == "perceptron":
        x = torch.randn(n, 5, generator=draws, dtype=torch.float64)
        return x, torch.randint(4, (n,), generator=draws)
    x = torch.randint(WORDS, (n, LENGTH), generator=draws)
    return x, torch.randint(WORDS, (n,), generator=draws)


def joined(batches: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    inputs, targets = zip(*batches, strict=True)
    return torch.cat(inputs), torch.cat(targets)


def whole(value: Any) -> Tensor:
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def gathered_numbers(parameter: Any) -> int:
    """The size of what a process holds of a parameter while fully_shard has gathered it."""
    cut = getattr(parameter, "placements", ())[
        1:
    ]  # along the dimensions that are not fully_shard's
    parts = 2 if any(placement.is_shard() for placement in cut) else 1
    return parameter.numel() // parts


def flat(values: list[Tensor]) -> Tensor:
    """All in one, weights first."""
    return torch.cat([value.detach().reshape(-1) for value in weights_first(values)])


@dataclass(frozen=True)
class Parallel:
    """Steps of a cut model beside the definition on a whole one, both trained with it.

    mesh:  (tensor parallel,) or (fully_shard, tensor parallel) processes. sizes: of each share of the batch; of
           each micro-batch of a window, where `window` says how many there are.
    Returns how far they are apart, the last weights, and what the last step moved.
    """

    model: str = "perceptron"
    plan: str = "perceptron"
    mesh: tuple[int, ...] = (2,)
    backend: str = "auto"
    expected: str = "forward_mode"
    sizes: tuple[int, ...] = (4, 3)
    clean: int = 3
    window: int = 0
    guarded: bool = False
    close: float = 1e-9
    fully_shard: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    def cut(self, model: nn.Module) -> int:
        """Cut the model, and say which share of the batch is this process's."""
        names = ("data", "tensor")[-len(self.mesh) :]
        mesh = init_device_mesh("cpu", self.mesh, mesh_dim_names=names)
        parallelize_module(model, mesh["tensor"], plan(self.plan))
        if len(self.mesh) == 1:
            return 0
        for child in model.blocks if isinstance(model, Words) else model.children():
            if any(True for _ in child.parameters()):
                fully_shard(child, mesh=mesh["data"], **self.fully_shard)
        fully_shard(model, mesh=mesh["data"], **self.fully_shard)
        return mesh.get_local_rank("data")

    def __call__(self, rank: int, world: int) -> dict[str, Any]:
        models = []
        for _ in range(2):
            torch.manual_seed(0)
            models.append(MODELS[self.model]().double())
        plain, model = models
        mine = self.cut(model)
        weigh = reweigh.Reweighter(
            model,
            LOSS,
            backend=self.backend,
            safeguard="auto" if self.guarded else None,
            **self.options,
        )
        optimizers = [torch.optim.SGD(m.parameters(), lr=RATE) for m in models]
        worst: dict[str, float] = {}
        trust: Trust | None = None

        def compare(name: str, found: Tensor, right: Tensor) -> None:
            if not len(right.reshape(-1)):  # an empty share
                assert not found.numel()
                return
            size = max(1.0, float(right.abs().max()))
            worst[name] = max(worst.get(name, 0.0), float((found - right).abs().max()) / size)

        for number in range(STEPS):
            shares, cleans = self.batches(number)
            train, clean = joined([x for share in shares for x in share]), joined(cleans)
            torch.manual_seed(number)
            direction = definition.clean_gradient(plain, LOSS, clean)
            scores = definition.scores(plain, LOSS, train, clean)
            positive = scores.clamp(min=0)
            weights = positive / positive.sum()
            after = torch.get_rng_state()
            torch.manual_seed(number)
            update = definition.weighted_gradient(plain, LOSS, train, weights)

            torch.manual_seed(number)
            with Meter() as meter:
                if self.window:
                    step: Any = weigh.window(shares[mine], cleans[mine])
                    found = torch.cat(step.weights), torch.cat(step.scores)
                else:
                    step = weigh(shares[mine][0], cleans[mine])
                    found = step.weights, step.scores
                if len(self.mesh) == 1 and not self.window:
                    worst["draws"] = float(not torch.equal(torch.get_rng_state(), after))
                (step if self.window else step.loss).backward()
            start = sum(len(y) for share in shares[:mine] for _, y in share)
            own = slice(start, start + len(found[0]))
            compare("weights", found[0], weights[own])
            compare("scores", found[1], scores[own])
            factor = 1.0
            if self.guarded:
                place, along, d = flat(list(plain.parameters())), flat(direction), flat(update)
                if trust is None:
                    safe = float(along @ d / (2 * d @ d))
                    weights_size = sum(p.numel() for p in plain.parameters() if p.ndim > 1)
                    trust = Trust(min(1.0, max(safe, 0.01)), place, weights_size)
                    right = trust.trust
                else:
                    right = trust.judge(along, place)
                factor = float(step.factor)
                assert abs(factor - right) < 1e-6 * right  # it is kept in float32
            for p, p_cut, g in zip(plain.parameters(), model.parameters(), update, strict=True):
                compare("gradient", whole(p_cut.grad), g * factor)
                compare("parameters", whole(p_cut.detach()), p.detach())
                p.grad = g * factor
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
        held = 8 * sum(map(gathered_numbers, model.parameters()))  # bytes, when they are gathered
        sent = {
            name: sum(size for called, size in meter.sent if called == name)
            for name in ("_allgather_base_", "_reduce_scatter_base_")
        }
        return {
            "worst": worst,
            "backend": str(weigh.backend),
            "reason": weigh.backend.reason,
            "weights": found[0],
            "share": mine,
            "gathered": self.mesh[0] * sent["_allgather_base_"] / held,
            "reduced": sent["_reduce_scatter_base_"] / held,
        }

    def batches(self, number: int) -> tuple[list[list[Any]], list[Any]]:
        """The micro-batches of every share of the train batch, and every share of the clean batch."""
        data = self.mesh[0] if len(self.mesh) == 2 else 1
        seeds = [10 * (10 * number + share) for share in range(data)]
        shares = [
            [
                batch(self.model, self.sizes[share], seed + part)
                for part in range(max(1, self.window))
            ]
            for share, seed in enumerate(seeds)
        ]
        return shares, [batch(self.model, self.clean, 5000 + seed) for seed in seeds]
