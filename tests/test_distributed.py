"""Processes that share a batch do what one does on the joined batch: weights, gradients, parameters."""

from __future__ import annotations

import functools

import pytest
import torch

from processes import together
from shared_batches import Shared

SCENARIOS = {
    "even": Shared(),
    "uneven": Shared(train=(6, 3, 1, 5), clean=(2, 5, 3, 1)),
    "literal": Shared(train=(6, 3), options={"safeguard": None}),
    "accumulated": Shared(train=(6, 3), accumulate=4),
    "accumulated, literal": Shared(accumulate=4, options={"safeguard": None}),
    "negative": Shared(opposed=0),
    "negative everywhere but here": Shared(train=(4, 5), opposed=1, options={"safeguard": None}),
    "no train examples": Shared(train=(7, 0)),
    "no clean examples": Shared(clean=(0, 6)),
    "neither": Shared(model="folded", train=(0, 5), clean=(0, 4)),
    "joint statistics": Shared(model="joint_norm", train=(6, 3), clean=(5, 3)),
    "joint statistics, nothing here": Shared(model="joint_norm", train=(0, 9), clean=(7, 0)),
    "plain": Shared(wrap="plain", train=(6, 3)),
    "plain, literal": Shared(wrap="plain", train=(0, 5), options={"safeguard": None}),
    "last layer": Shared(options={"params": "2"}, train=(6, 3)),
    "chunks": Shared(train=(7, 2), options={"chunk": 3}),
    "forward_mode": Shared(options={"backend": "forward_mode"}),
    "double_backward": Shared(options={"backend": "double_backward"}),
}


@functools.cache
def ran(world: int):
    return together(world, SCENARIOS)


@functools.cache
def expected(name: str, world: int):
    return SCENARIOS[name].alone(world)


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_many_processes_train_what_one_trains(world, name):
    found, one = ran(world)[name], expected(name, world)
    for result in found:
        assert isinstance(result, dict), result
    close = functools.partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)
    for step in range(len(one["weights"])):
        for kind in ("weights", "scores"):
            close(torch.cat([r[kind][step] for r in found]), one[kind][step])
        for kind in ("factor", "clean_loss", "ess", "zeros"):
            for result in found:
                close(result[kind][step].double(), one[kind][step].double(), check_dtype=False)
    for result in found:
        for mine, right in zip(result["gradient"], one["gradient"], strict=True):
            close(mine, right)
        for key, right in one["state"].items():
            close(result["state"][key], right)
