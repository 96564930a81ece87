"""Where random numbers come from: the generators of torch, Python and numpy, and a model's own.

A pass that is undone, or replayed, must draw the same numbers again, whoever draws them.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn


class RandomSource(NamedTuple):
    """A generator: how to read, write and seed its state. seeds: how many seeds it takes."""

    get: Callable[[], Any]
    set: Callable[[Any], Any]
    seed: Callable[[int], Any]
    seeds: int = 2**63


_PYTHON = RandomSource(random.getstate, random.setstate, random.seed)
_NUMPY = RandomSource(np.random.get_state, np.random.set_state, np.random.seed, 2**32)


GENERATORS = frozenset({torch.Generator, random.Random, np.random.RandomState, np.random.Generator})


def sources_of(modules: Sequence[nn.Module], own: Iterable[Any] = ()) -> list[RandomSource]:
    """All that a model of these modules may draw from: what the process shares, and its own generators."""
    shared = (torch.default_generator, *_cuda_generators(modules))
    once = {id(x): x for x in (*shared, *own)}
    return [*map(_source_of, once.values()), _PYTHON, _NUMPY]


def same_state(a: Any, b: Any) -> bool:
    """Whether two states of one generator are the same."""
    if isinstance(a, Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return all(same_state(a[key], b[key]) for key in a)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same_state, a, b))
    return bool(np.all(a == b))


def _source_of(x: Any) -> RandomSource:
    if isinstance(x, torch.Generator):
        return RandomSource(x.get_state, x.set_state, x.manual_seed)
    if isinstance(x, random.Random):
        return RandomSource(x.getstate, x.setstate, x.seed)
    if isinstance(x, np.random.RandomState):
        return RandomSource(x.get_state, x.set_state, x.seed, 2**32)
    bits, fresh = x.bit_generator, type(x.bit_generator)
    return RandomSource(
        lambda: bits.state,
        lambda state: setattr(bits, "state", state),
        lambda seed: setattr(bits, "state", fresh(seed).state),
    )


def _cuda_generators(modules: Sequence[nn.Module]) -> list[torch.Generator]:
    if not torch.cuda.is_initialized():
        return []
    devices = {p.device for m in modules for p in m._parameters.values() if p is not None}
    return [
        torch.cuda.default_generators[
            torch.cuda.current_device() if device.index is None else device.index
        ]
        for device in devices
        if device.type == "cuda"
    ]
