"""Which parameters take part in the alignment, and the direction they are probed in.

All trainable ones by default. A subset (`params=`), such as the last layer, is the known cheap
approximation: the score then compares gradients with respect to that subset only. The update
always trains every trainable parameter.

`dot` and `norm_squared` take lists of tensors, one per parameter, as one vector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from operator import attrgetter

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from ...errors import NoGradientError, SettingError, UnsupportedModelError, unknown
from .dtensors import local

Params = str | Iterable[str] | Callable[[str, nn.Parameter], bool] | None
# Whether the values of a tensor can be read at once. Elsewhere reading makes the host wait for the
# device, so a step must go on without knowing them. (An attrgetter costs no Python call.)
on_host: Callable[[Tensor], bool] = attrgetter("is_cpu")


# The real part of a real tensor is that tensor. (Again without a Python call, in every step.)
_as_it_is: Callable[[Tensor], Tensor] = attrgetter("real")


@dataclass(frozen=True)
class Direction:
    """The gradient of the clean loss, parameter by parameter: where the scores are measured along."""

    names: tuple[str, ...]
    parameters: tuple[nn.Parameter, ...]
    values: Sequence[Tensor]
    # Where the values are shards: adds numbers up over the processes that hold the others.
    total: Callable[[Tensor], Tensor] = _as_it_is
    # The gradient itself, where the values are its product with something (update/preconditioner.py).
    plain: Direction | None = None
    # Where the number of copies differs between parameters: how much of each a process counts (dtensors.py).
    shares: Sequence[float] = ()

    def inner(self, left: Sequence[Tensor | None], right: Sequence[Tensor | None]) -> Tensor:
        """The inner product of two lists of tensors like the parameters, over all processes that hold
        parts of them; None counts as zero."""
        return self.total(self.part(left, right))

    def part(self, left: Sequence[Tensor | None], right: Sequence[Tensor | None]) -> Tensor:
        """As `inner`, what this process has to add to it."""
        shares = self.shares or (1.0,) * len(self.parameters)
        known = [
            (local(a), local(b) * share if self.shares else b)
            for a, b, share in zip(left, right, shares, strict=True)
            if a is not None and b is not None
        ]
        if not known:
            return torch.zeros((), device=self.parameters[0].device)
        return dot(*zip(*known, strict=True))

    def norm_squared(self) -> Tensor:
        """|grad G|^2 over these parameters."""
        if self.shares:
            return self.inner(self.values, self.values)
        return self.total(norm_squared(self.values))


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """Parameters with `requires_grad`, tied ones once; an error if there is none."""
    found = {name: p for name, p in model.named_parameters() if p.requires_grad}
    for name, p in found.items():
        if isinstance(p, UninitializedParameter):
            raise UnsupportedModelError(
                f"parameter {name!r} is not initialised yet (a lazy layer); expected a built model: "
                f"run one forward pass first"
            )
        if p.is_complex():
            raise UnsupportedModelError(
                f"parameter {name!r} is complex ({p.dtype}); expected real parameters: "
                f"use torch.view_as_real, or leave it out with params="
            )
    if not found:
        count = sum(1 for _ in model.parameters())
        raise NoGradientError(
            f"{type(model).__name__} has no trainable parameter ({count} in all, none with "
            f"requires_grad); expected at least one: unfreeze some, or check which model was passed"
        )
    return found


def select(model: nn.Module, params: Params) -> dict[str, nn.Parameter]:
    """The trainable parameters that `params` picks.

    A name, a prefix (`"fc"` picks `fc.weight` and `fc.bias`), a pattern (`"*.bias"`), several of
    these, or a function of (name, parameter); None picks all.
    """
    everything = trainable(model)
    if params is None:
        return everything
    if callable(params):
        chosen = {name: p for name, p in everything.items() if params(name, p)}
        if not chosen:
            raise SettingError(
                f"params= picked none of {len(everything)} trainable parameters; expected at least "
                f"one: {', '.join(list(everything)[:5])}, ..."
            )
        return chosen
    patterns = [params] if isinstance(params, str) else list(params)
    chosen = {}
    for pattern in patterns:
        hits = {name: p for name, p in everything.items() if _matches(name, pattern)}
        if not hits:
            _explain_missing(model, pattern, everything)
        chosen |= hits
    if not chosen:
        raise SettingError("params= is empty; expected names, patterns, or None for all")
    return {name: p for name, p in everything.items() if name in chosen}


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or name.startswith(pattern + ".") or fnmatchcase(name, pattern)


def _explain_missing(model: nn.Module, pattern: str, everything: Iterable[str]) -> None:
    for name, p in model.named_parameters():
        if _matches(name, pattern):
            kind = "is frozen" if p.is_floating_point() else f"holds integers ({p.dtype})"
            raise SettingError(
                f"params= names {name!r}, which {kind}; expected trainable floating parameters"
            )
    modules = {name.rpartition(".")[0] for name in everything} - {""}
    raise unknown("parameter", pattern, [*everything, *sorted(modules)])


def dot(left: Sequence[Tensor], right: Sequence[Tensor]) -> Tensor:
    """The inner product of two lists of tensors, summed in float32 or better."""
    terms = [torch.dot(_wide(a), _wide(b)) for a, b in zip(left, right, strict=True)]
    return torch.stack(terms).sum()


def norm_squared(values: Sequence[Tensor]) -> Tensor:
    """The squared length of a list of tensors, in float32 or better."""
    dense = [value.to_dense() if value.is_sparse else value for value in values]
    lengths = torch.stack(torch._foreach_norm(dense))
    return (lengths if lengths.dtype == torch.float64 else lengths.float()).square().sum()


def _wide(tensor: Tensor) -> Tensor:
    flat = tensor.reshape(-1)
    return flat if flat.dtype in (torch.float32, torch.float64) else flat.float()
