"""The clean gradient where `fully_shard` has spread the parameters: shards, or factors that all have.

The gradient of a linear layer is V = C'B (low_rank.py), and the clean rows of N processes are one after the
other in B and C. For k rows in all there are two ways to a V that every process can use:

    by shards     V is reduced to shards, and gathered again where it is needed     2 in out numbers go round
    by factors    every process gets the rows of all others                         k (in + out)

Factors are taken where they also cost fewer products (`factors_pay`). Who looks at a value of the gradient
gets its shard; of a product only then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, overload
from zlib import crc32

import torch
from torch import Tensor

from ..model import local
from ..ops import Layer, Linear
from ..processes import Group, Shard, ShardedUnit
from .low_rank import Factors, PartlyFactored, factors_pay, unshared_linear


class ShardedGradient(Sequence[Tensor]):
    """The gradient in shards, parameter by parameter; some are products that are not made yet.

    shards:  by place; None where there are factors. factors: by place, on all processes the same.
    """

    def __init__(
        self,
        units: Sequence[ShardedUnit],
        shards: Sequence[Tensor | None],
        factors: dict[int, Factors],
    ) -> None:
        self._units, self._shards, self._factors = units, list(shards), factors
        self._homes = {s.place: (unit, s) for unit in units for s in unit.aligned}

    def scaled(self, scale: Tensor) -> ShardedGradient:
        """Times a number."""
        return ShardedGradient(
            self._units,
            [None if v is None else (v * scale).to(v.dtype) for v in self._shards],
            {
                place: part._replace(gradients=part.gradients * scale.to(part.gradients.dtype))
                for place, part in self._factors.items()
            },
        )

    def whole(self, unit: ShardedUnit) -> PartlyFactored:
        """Whole values for one unit, by place; None for the parameters of others. An exchange, for
        those without factors."""
        parts: list[Tensor | Factors | None] = [None] * len(self)
        missing = []
        for shard in unit.aligned:
            assert shard.place is not None
            parts[shard.place] = self._factors.get(shard.place)
            if parts[shard.place] is None:
                missing.append(shard)
        for place, value in unit.gathered(missing, self._shards).items():
            parts[place] = value
        return PartlyFactored(parts)

    @overload
    def __getitem__(self, place: int) -> Tensor: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Tensor, ...]: ...
    def __getitem__(self, place: int | slice) -> Tensor | tuple[Tensor, ...]:
        if isinstance(place, slice):
            return tuple(self[i] for i in range(*place.indices(len(self))))
        value = self._shards[place]
        if value is None:
            unit, shard = self._homes[range(len(self))[place]]
            value = self._shards[place] = unit.cut(shard, self._factors[place].product())
        return value

    def __len__(self) -> int:
        return len(self._shards)


def whole_values(unit: ShardedUnit, values: Sequence[Tensor]) -> PartlyFactored:
    """Whole values of the parameters of one unit, by place, from the shards of a gradient."""
    known = values if isinstance(values, ShardedGradient) else ShardedGradient([unit], values, {})
    return known.whole(unit)


def factored_together(
    layers: Sequence[Layer], theta: Sequence[Any], group: Group
) -> dict[int, list[int]] | None:
    """The layers, by position, that all processes leave as factors, with the number of rows on each process;
    None if they do not see the same layers. Two small exchanges. theta: the sharded parameters."""
    seen = repr([(type(layer).__name__, layer.uses) for layer in layers])
    alike = torch.tensor([float(crc32(seen.encode()))], dtype=torch.float64, device=theta[0].device)
    if len(group.gathered(alike).unique()) > 1:
        return None
    candidates = unshared_linear(layers)
    if not candidates:
        return {}
    rows = [float(layers[i].inputs[0].shape[0]) for i in candidates]
    counts = group.gathered(alike.new_tensor(rows)).long()
    chosen: dict[int, list[int]] = {}
    for i, of_all in zip(candidates, counts.unbind(1), strict=True):
        layer, weight = layers[i], layers[i].uses[1]
        assert isinstance(layer, Linear)
        assert weight is not None
        if factors_pay(layer, theta[weight.place], int(of_all.max()) * group.size):
            chosen[i] = of_all.tolist()
    return chosen


def collected_together(
    units: Sequence[ShardedUnit], layers: Sequence[Layer], outputs: Sequence[Tensor | None],
    factored: Mapping[int, list[int]], group: Group,
) -> ShardedGradient:  # fmt: skip
    """The mean over the processes of the gradient of every parameter, from those at the results of all
    layers (`outputs`). Factors are exchanged for `factored`, the rest is reduced unit by unit."""
    factors: dict[int, Factors] = {}
    for i, counts in factored.items():
        (x,), g, (bias, weight) = layers[i].inputs, outputs[i], layers[i].uses
        assert weight is not None
        assert g is not None
        sent = x.new_zeros(max(counts), x.shape[1] + g.shape[1])
        sent[: len(x)] = torch.cat([x, g / group.size], dim=1)
        of_all = zip(group.gathered(sent), counts, strict=True)
        rows = torch.cat([part[:n] for part, n in of_all])
        inputs, gradients = (
            part.contiguous() for part in rows.split([x.shape[1], g.shape[1]], dim=1)
        )
        factors[weight.place] = Factors(inputs, gradients, weight.transposed)
        if bias is not None:
            factors[bias.place] = Factors(None, gradients, transposed=False)
    shards: list[Tensor | None] = [None] * sum(len(unit.aligned) for unit in units)
    for unit in units:
        rest = [shard for shard in unit.aligned if shard.place not in factors]
        for shard, value in zip(
            rest, unit.reduced(rest, _wholes(layers, outputs, rest)), strict=True
        ):
            assert shard.place is not None
            shards[shard.place] = local(value)
    return ShardedGradient(units, shards, factors)


def _wholes(
    layers: Sequence[Layer], outputs: Sequence[Tensor | None], shards: Sequence[Shard]
) -> list[Tensor | None]:
    """This process's gradients of some parameters: sums over the layers that use them."""
    found: dict[int, Tensor] = {}
    like = {shard.place: shard.sharded for shard in shards}
    with torch.no_grad():
        for layer, g in zip(layers, outputs, strict=True):
            if g is None or not any(use and use.place in like for use in layer.uses):
                continue
            for use, part in zip(layer.uses, on_stand_ins(layer).gradients(g), strict=True):
                if use and use.place in like and part is not None:
                    own = like[use.place]
                    more = part.to(own.dtype).reshape(own.shape)
                    found[use.place] = found[use.place] + more if use.place in found else more
    return [None if shard.place is None else found.get(shard.place) for shard in shards]


def on_stand_ins(layer: Layer) -> Layer:
    """The layer with NaN for parameters that are not in memory.

    The result of a layer is linear in each parameter, so its gradient for it does not depend on its
    value. Kernels ask for one all the same; if one used it, the proof would tell.
    """
    fixed = tuple(
        torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=x.device).fill_(torch.nan)
        if isinstance(x, Tensor) and x.numel() and not x.untyped_storage().size()
        else x
        for x in layer.fixed
    )
    return replace(layer, fixed=fixed)
