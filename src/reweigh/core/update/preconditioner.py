"""Scores in the geometry of the optimizer that takes the step.

An adaptive optimizer does not step along the gradient g but along P g, with a diagonal P that it
keeps itself: 1 / (sqrt(v) + eps) for Adam, v its bias-corrected second moment. The paper's question,
how the clean loss changes with the weight of example i in the next step, then has the answer

    score_i = < grad f_i , P grad G >

(with P as it stands; momentum cancels, since it is the same whatever the weights). Parameter groups
count by their learning rates, relative to the largest. Until the optimizer has taken a step P is
the identity; a parameter that it has not stepped yet counts as the others do on average, one that
it does not hold not at all.

Cost: one product with the clean gradient. The safeguard sees everything in coordinates scaled by
sqrt(P), in which <., P .> is the plain inner product.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn, optim

from ...errors import SettingError, UnsupportedModelError
from ..model import Direction

Geometry = optim.Optimizer | Callable[[nn.Parameter], Tensor] | None
"""An optimizer to read P from, or `P(parameter) -> Tensor` of its shape; None is the plain one."""


def _adam(state: dict[str, Any], group: dict[str, Any]) -> Tensor:
    name = "max_exp_avg_sq" if group.get("amsgrad") else "exp_avg_sq"
    corrected = state[name] / (1 - group["betas"][1] ** float(state["step"]))
    return torch.as_tensor(corrected.sqrt() + group["eps"])


def _adamax(state: dict[str, Any], group: dict[str, Any]) -> Tensor:
    return torch.as_tensor(state["exp_inf"])


def _rmsprop(state: dict[str, Any], group: dict[str, Any]) -> Tensor:
    mean = state["square_avg"]
    if group["centered"]:
        mean = mean - state["grad_avg"].square()
    return torch.as_tensor(mean.sqrt() + group["eps"])


def _adagrad(state: dict[str, Any], group: dict[str, Any]) -> Tensor:
    return torch.as_tensor(state["sum"].sqrt() + group["eps"])


# What an optimizer divides its step by; an entry also speaks for its subclasses.
DENOMINATORS: dict[type, Callable[[dict[str, Any], dict[str, Any]], Tensor] | None] = {
    optim.Adam: _adam,
    optim.AdamW: _adam,
    optim.NAdam: _adam,
    optim.Adamax: _adamax,
    optim.RMSprop: _rmsprop,
    optim.Adagrad: _adagrad,
    optim.SGD: None,
}


@dataclass(frozen=True)
class Diagonal:
    """P, parameter by parameter."""

    entries: tuple[Tensor, ...]

    def bend(self, direction: Direction) -> Direction:
        """P grad G: the direction to measure scores along."""
        return replace(direction, values=self._times(direction.values, self.entries))

    def rooted(self, direction: Direction) -> Direction:
        """sqrt(P) grad G."""
        values = self._times(direction.values, self._roots())
        return replace(direction, values=values, plain=direction)

    def rooted_gradient(self, gradient: Sequence[Tensor | None]) -> list[Tensor | None]:
        """sqrt(P) d."""
        pairs = zip(gradient, self._roots(), strict=True)
        return [None if g is None else (g * root).to(g.dtype) for g, root in pairs]

    def _roots(self) -> tuple[Tensor, ...]:
        return tuple(entry.sqrt() for entry in self.entries)

    @staticmethod
    def _times(values: Sequence[Tensor], entries: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return tuple((v * e).to(v.dtype) for v, e in zip(values, entries, strict=True))


def require_geometry(geometry: Geometry) -> Geometry:
    """Return `geometry` if P can be had from it."""
    if geometry is None or not isinstance(geometry, optim.Optimizer):
        return geometry
    if not any(isinstance(geometry, kind) for kind in DENOMINATORS):
        known = ", ".join(kind.__name__ for kind in DENOMINATORS)
        raise SettingError(
            f"geometry={type(geometry).__name__}(...); expected one of {known}, or a function from "
            f"a parameter to the factors that its gradient is multiplied with"
        )
    return geometry


def diagonal(geometry: Geometry, direction: Direction, *, sharded: bool) -> Diagonal | None:
    """P for the parameters of `direction` as it stands; None where it is the identity."""
    if geometry is None:
        return None
    if sharded:
        raise UnsupportedModelError(
            "geometry= with parameters that fully_shard or tensor parallelism has spread; expected whole "
            "ones: leave geometry out, or train under DistributedDataParallel"
        )
    if not isinstance(geometry, optim.Optimizer):
        return Diagonal(tuple(geometry(p) for p in direction.parameters))
    groups = {id(p): group for group in geometry.param_groups for p in group["params"]}
    largest = max(float(group["lr"]) for group in geometry.param_groups)
    entries = [_entry(geometry, p, groups.get(id(p)), largest) for p in direction.parameters]
    stepped = [e for e in entries if e is not None and (e.ndim > 0 or e != 0)]
    if not stepped:
        return None
    mean = torch.cat([entry.reshape(-1) for entry in stepped]).mean()
    return Diagonal(tuple(mean if entry is None else entry for entry in entries))


def _entry(
    optimizer: optim.Optimizer, p: nn.Parameter, group: dict[str, Any] | None, largest: float
) -> Tensor | None:
    """P of one parameter; None if the optimizer has not stepped it yet."""
    if group is None:
        return torch.zeros((), dtype=p.dtype, device=p.device)
    rate = float(group["lr"]) / largest if largest > 0 else 1.0
    rule = next(DENOMINATORS[kind] for kind in type(optimizer).__mro__ if kind in DENOMINATORS)
    if rule is None:
        return torch.full_like(p, rate, requires_grad=False)
    state = optimizer.state.get(p)
    if not state:
        return None
    denominator = rule(state, group)
    # Where no gradient has ever come, there is nothing to divide by, and nothing to divide.
    return torch.where(denominator > 0, rate / denominator, torch.zeros_like(denominator))
