"""Models, batches and ways to share them out, for the tests of several processes."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed._functional_collectives import all_reduce
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import reweigh

STEPS = 20
LOSS = reweigh.per_example(F.cross_entropy)


def candidates(model: nn.Module, batch: Any) -> Tensor:
    """[n, 2]: the given label, and the next one."""
    x, y = batch
    logits = model(x)
    return torch.stack(
        [F.cross_entropy(logits, t, reduction="none") for t in (y, (y + 1) % 3)], dim=1
    )


def evened(scores: Tensor) -> Tensor:
    """A rule of one's own that takes parts."""
    positive = scores.clamp(min=0) + 1e-3
    return positive / positive.sum()


def softened(scores: Tensor) -> Tensor:
    """A rule of one's own: every example counts, the more the larger its score in the batch."""
    return torch.softmax(scores / scores.abs().max().clamp(min=1e-30), 0)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))


class _Sum(torch.autograd.Function):
    """The sum over all processes, to be differentiated any number of times."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _Sum.apply(gradient)


def summed(x: Tensor) -> Tensor:
    """The sum over all processes by PyTorch's functional form, where that has a gradient."""
    if torch.__version__ >= "2.13":
        return all_reduce(x, "sum", dist.group.WORLD)
    return _Sum.apply(x)


class JointNorm(nn.Module):
    """Batch normalisation over the batches of all processes, which PyTorch's own does on GPUs only.

    Written from differentiable sums; in one process it is nn.BatchNorm1d.
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.bias = nn.Parameter(torch.randn(features))
        self.register_buffer("mean", torch.zeros(features))

    def forward(self, x: Tensor) -> Tensor:
        sums = torch.cat([x.sum(0), x.square().sum(0), x.new_tensor([len(x)])])
        if dist.is_initialized():
            sums = summed(sums)
        k, count = x.shape[1], sums[-1]
        mean, square = sums[:k] / count, sums[k:-1] / count
        with torch.no_grad():
            self.mean.lerp_(mean, 0.1)
        return (x - mean) / (square - mean.square() + 1e-5).sqrt() * self.weight + self.bias


def joint_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), JointNorm(8), nn.Tanh(), nn.Linear(8, 3))


class Folded(nn.Module):
    """Cannot run on no examples, as many models: it asks for a size to be inferred."""

    def __init__(self) -> None:
        super().__init__()
        self.body = mlp()

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x.view(len(x), -1))


def _whole(value: Any) -> Tensor:
    return value.full_tensor() if hasattr(value, "full_tensor") else value


MODELS = {"mlp": mlp, "joint_norm": joint_norm, "folded": Folded}


@dataclass(frozen=True)
class Shared:
    """A run of some steps on a joined batch that `world` processes share.

    shares: of the train and of the clean batch, examples by rank; the last processes get the rest
            of the numbers given, or 4 each.
    wrap:   "ddp", "fsdp", or "plain" for a model without a wrapper.
    accumulate: backward passes to an update, all but the last without exchange of gradients.
    opposed: this rank's labels are all wrong, so that its scores are mostly negative.
    """

    model: str = "mlp"
    train: tuple[int, ...] = ()
    clean: tuple[int, ...] = ()
    wrap: str = "ddp"
    accumulate: int = 1
    opposed: int | None = None
    parts: bool = False  # two losses an example
    window: int | None = (
        None  # the share in micro-batches of so many; the reference knows nothing of it
    )
    options: dict[str, Any] = field(default_factory=dict)
    steps: int = STEPS

    def build(self) -> nn.Module:
        torch.manual_seed(0)
        return MODELS[self.model]().double()

    def sizes(self, world: int) -> tuple[list[int], list[int]]:
        train, clean = ([*sizes, *[4] * world][:world] for sizes in (self.train, self.clean))
        return (train if any(train) else [4]), (clean if any(clean) else [4])

    def batches(self, step: int, world: int) -> tuple[list[Any], list[Any]]:
        """Train and clean batches by rank."""
        draws = torch.Generator().manual_seed(100 + step)
        rule = torch.Generator().manual_seed(7)
        plane = torch.randn(5, 3, generator=rule, dtype=torch.float64)
        parts = []
        for sizes, noisy in zip(self.sizes(world), (True, False), strict=True):
            batches = []
            for rank, n in enumerate(sizes):
                x = torch.randn(n, 5, generator=draws, dtype=torch.float64)
                y = (x @ plane).argmax(1)
                wrong = torch.rand(n, generator=draws) < (1 if rank == self.opposed else 0.4)
                batches.append((x, torch.where(wrong & noisy, (y + 1) % 3, y)))
            parts.append(batches)
        return parts[0], parts[1]

    def alone(self, world: int) -> dict[str, Any]:
        """One process, on the joined batches."""

        def whole(step: int) -> tuple[Any, Any]:
            return tuple(tuple(map(torch.cat, zip(*part, strict=True)))
                         for part in self.batches(step, world))  # fmt: skip

        model = self.build()
        return self._train(model, model, whole)

    def weighed(self, weigh: reweigh.Reweighter, train: Any, clean: Any) -> Any:
        """A step, or a window that looks like one."""
        if self.window is None or not dist.is_initialized():
            return weigh(train, clean)
        parts = [part.split(self.window) for part in (*train, *clean)]
        window = weigh.window(
            list(zip(*parts[:2], strict=True)), list(zip(*parts[2:], strict=True))
        )
        assert torch.equal(torch.cat(window.weights), window.step.weights)
        return window.step

    def __call__(self, rank: int, world: int) -> dict[str, Any]:
        """One process of several, on its shares."""
        module = model = self.build()
        if self.wrap == "ddp":
            model = DistributedDataParallel(module)
        elif self.wrap == "fsdp":
            mesh = init_device_mesh("cpu", (world,))
            fully_shard(module[0], mesh=mesh)
            fully_shard(module, mesh=mesh)
        return self._train(model, module, lambda step: tuple(
            part[rank] for part in self.batches(step, world)))  # fmt: skip

    def _train(self, model: nn.Module, module: nn.Module, batches: Any) -> dict[str, Any]:
        weigh = reweigh.Reweighter(model, candidates if self.parts else LOSS, **self.options)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.2, momentum=0.9, weight_decay=1e-2)
        kept: dict[str, list[Any]] = {name: [] for name in
                                      ("weights", "scores", "factor", "clean_loss", "ess", "zeros")}  # fmt: skip
        for step in range(self.steps):
            held = isinstance(model, DistributedDataParallel) and (step + 1) % self.accumulate
            with model.no_sync() if held else contextlib.nullcontext():
                one = self.weighed(weigh, *batches(step))
                one.loss.backward()
            for name, value in (("weights", one.weights), ("scores", one.scores),
                                ("factor", one.factor), ("clean_loss", one.clean_loss),
                                ("ess", one.effective_sample_size), ("zeros", one.zero_share)):  # fmt: skip
                kept[name].append(value.clone())
            if (step + 1) % self.accumulate == 0:
                gradient = [_whole(p.grad.detach()).clone() for p in module.parameters()]
                optimizer.step()
                optimizer.zero_grad()
        return {
            **kept,
            "gradient": gradient,
            "state": {name: _whole(value).clone() for name, value in module.state_dict().items()},
            "backend": str(weigh.backend),
            "reason": weigh.backend.reason,
        }


class Meter(TorchDispatchMode):
    """Notes every exchange between processes: its name, and the bytes that this process gives."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[str, int]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "c10d":
            name = func.name().removeprefix("c10d::")
            given = args[1] if "gather" in name or "scatter" in name else args[0]
            tensors = [t for t in tree_leaves(given) if isinstance(t, Tensor)]
            self.sent.append((name, sum(t.nbytes for t in tensors)))
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True)
class Metered(Shared):
    """The exchanges of the third step, before its backward."""

    def _train(self, model: nn.Module, module: nn.Module, batches: Any) -> dict[str, Any]:
        weigh = reweigh.Reweighter(model, LOSS, **self.options)
        for step in range(3):
            with Meter() as meter:
                one = weigh(*batches(step))
            one.loss.backward()
        shapes = [p.shape for p in self.build().parameters()]
        return {
            "sent": meter.sent,
            "tensors": len(shapes),
            "size": sum(map(torch.Size.numel, shapes)),
        }
