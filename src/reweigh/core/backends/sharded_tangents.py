"""Tangents of parameters that `fully_shard` has spread: whole for as long as the parameters are.

forward_mode starts from the tangent V of every parameter. fully_shard gathers the parameters of a unit before
its module's forward, and lets them go after it. V comes and goes with them: it is gathered when
the forward begins and freed when it ends.

Cost: one exchange of the size of the parameters for each forward, and the V of the units that are at work. A unit
whose modules run several times, or that is several modules, gathers its V each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..clean import whole_values
from ..model import Direction, is_spread
from ..ops import TangentMode, drop_cell
from ..processes import ShardedUnit, as_shard_of, units_of


@contextmanager
def by_unit(mode: TangentMode, model: nn.Module, direction: Direction) -> Iterator[None]:
    """While the block runs, each forward of a unit finds the tangents of its parameters."""
    units = [unit for unit in units_of(model, direction.parameters) if unit.aligned]
    handles = []
    for unit in units:
        begin, end = _hooks(mode, unit, direction)
        for module in unit.modules:
            # Hooks run in the order in which they were registered: fully_shard has gathered before.
            handles += [module.register_forward_pre_hook(begin), module.register_forward_hook(end)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for unit in units:
            for shard in unit.aligned:
                drop_cell(shard.whole)


def _hooks(
    mode: TangentMode, unit: ShardedUnit, direction: Direction
) -> tuple[Callable[..., None], Callable[..., None]]:
    held: list[Tensor] = []

    def begin(*_: Any) -> None:
        with torch.no_grad():
            whole = whole_values(unit, direction.values)
        for shard in unit.aligned:
            assert shard.place is not None
            tangent = whole[shard.place].to(shard.whole.dtype)
            held.append(tangent)
            mode.attach(shard.whole, _as_seen(shard.whole, tangent))

    def end(*_: Any) -> None:
        for shard in unit.aligned:
            drop_cell(shard.whole)
        mode.forget(held)
        held.clear()

    return begin, end


def _as_seen(parameter: Tensor, tangent: Tensor) -> Tensor:
    """The tangent as passes see the parameter: a DTensor, if tensor parallelism has cut it."""
    return as_shard_of(parameter, tangent) if is_spread(parameter) else tangent
