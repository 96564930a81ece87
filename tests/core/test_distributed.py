"""Processes that share a batch do what one does on the joined batch: weights, gradients, parameters."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

from support.process_faults import (
    by_itself,
    empty_everywhere,
    joint_scores,
    not_finite,
    refused,
    sharded_auto,
    sharded_coupled,
)
from support.processes import together
from support.shared_batches import Metered, Shared, evened, softened

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
    "a window": Shared(train=(7, 2, 5), clean=(3, 4), window=2),
    "a window, plain, literal": Shared(
        wrap="plain", train=(1, 6), window=4, options={"safeguard": None}
    ),
    "a window, nothing here": Shared(train=(0, 5), clean=(5, 0), window=1),
    "a window, negative": Shared(opposed=0, window=1, options={"safeguard": None}),
    "a rule of one's own": Shared(train=(6, 3), options={"rule": softened}),
    "a rule of one's own, literal": Shared(
        wrap="plain", options={"rule": softened, "safeguard": None}
    ),
    "parts": Shared(train=(6, 3), parts=True),
    "parts, nothing here": Shared(train=(0, 5), parts=True, options={"safeguard": None}),
    "parts, a rule of one's own": Shared(parts=True, options={"rule": evened}),
    "forward_mode": Shared(options={"backend": "forward_mode"}),
    "double_backward": Shared(options={"backend": "double_backward"}),
}
FAR = {"backend": "finite_difference"}
SHARDED = {
    "sharded": Shared(wrap="fsdp", train=(6, 3), steps=6),
    "sharded, accumulated, literal": Shared(
        wrap="fsdp", accumulate=2, steps=6, options={"safeguard": None}
    ),
    "sharded, nothing here": Shared(wrap="fsdp", train=(7, 0), clean=(0, 5), steps=6),
    "sharded, last layer": Shared(wrap="fsdp", train=(6, 3), steps=3, options={"params": "2"}),
    "sharded, parts": Shared(wrap="fsdp", parts=True, train=(3, 6), steps=3),
    "sharded, forward_mode, nothing here": Shared(
        wrap="fsdp", train=(0, 5), steps=6, options={"backend": "forward_mode"}
    ),
    "sharded, window": Shared(wrap="fsdp", train=(6, 5), clean=(4, 3), window=2, steps=6),
    "sharded, window of ones, literal, negative": Shared(
        wrap="fsdp", opposed=0, window=1, steps=3, options={"safeguard": None}
    ),
    "sharded, window, forward_mode, last layer": Shared(
        wrap="fsdp", window=2, steps=3, options={"backend": "forward_mode", "params": "2"}
    ),
    "sharded, chunks, a rule of one's own": Shared(
        wrap="fsdp", train=(7, 9), steps=3, options={"chunk": 3, "rule": softened}
    ),
    "sharded, differences": Shared(wrap="fsdp", steps=6, options=FAR),
}
METERED = {
    "literal": Metered(options={"safeguard": None}),
    "guarded": Metered(),
    "last layer": Metered(options={"safeguard": None, "params": "2"}),
    "sharded": Metered(wrap="fsdp", options={**FAR, "safeguard": None}),
}
FAULTS = {
    "refused": refused,
    "sharded, auto": sharded_auto,
    "sharded, coupled": sharded_coupled,
    "not finite": not_finite,
    "empty": empty_everywhere,
    "by itself": by_itself,
    "joint scores": joint_scores,
}


# The fully_shard of PyTorch 2.6 itself does not run on CPUs.
SHARDS = torch.__version__ >= "2.7"


def possible(name: str) -> Any:
    """The name of a case, to be skipped where it needs fully_shard and that does not run."""
    skipped = pytest.mark.skipif(
        not SHARDS, reason="fully_shard of PyTorch 2.6 does not run on CPUs"
    )
    return pytest.param(name, marks=skipped if name.startswith("sharded") else ())


@functools.cache
def ran(world: int):
    more = {**SHARDED, **{f"metered: {n}": s for n, s in METERED.items()}, **FAULTS}
    more = {name: one for name, one in more.items() if SHARDS or "sharded" not in name}
    return together(world, {**SCENARIOS, **more} if world == 2 else SCENARIOS)


@functools.cache
def expected(name: str, world: int):
    return {**SCENARIOS, **SHARDED}[name].alone(world)


# Where it matters which back-end "auto" settles on: one that follows joint statistics exactly.
BACKEND = {
    "even": "ghost",
    "joint statistics": "double_backward",
    "joint statistics, nothing here": "double_backward",
    "sharded": "ghost",
    "sharded, parts": "forward_mode",
}


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_many_processes_train_what_one_trains(world, name):
    assert_as_one(world, name, 1e-9)


@pytest.mark.parametrize("name", [possible(n) for n in SHARDED])
def test_sharded_parameters_train_what_whole_ones_do(name):
    far = name == "sharded, differences"
    assert_as_one(2, name, 1e-5 if far else 1e-9)  # 1e-5: a quotient in float64, over some steps


def assert_as_one(world, name, error):
    found, one = ran(world)[name], expected(name, world)
    for result in found:
        assert isinstance(result, dict), result
        assert result["backend"] == BACKEND.get(name, result["backend"]) or world == 1
    close = functools.partial(torch.testing.assert_close, rtol=error, atol=error)
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


def own(sent):
    """Without what fully_shard exchanges by itself."""
    return [(name, size) for name, size in sent if name in ("allreduce_", "allgather_")]


@pytest.mark.parametrize("name", [possible(n) for n in METERED])
def test_a_step_exchanges_what_the_docs_say(name):
    float64, numbers = 8, 10
    gathered = ("allgather_", numbers * float64)
    for result in ran(2)[f"metered: {name}"]:
        assert isinstance(result, dict), result
        size = result["size"]
        expected = {
            "literal": [("allreduce_", (size + 2) * float64), gathered],
            "guarded": [("allreduce_", (size + 2) * float64), gathered],  # after the first step
            "last layer": [("allreduce_", (8 * 3 + 3 + 2) * float64), gathered],
            "sharded": [("allreduce_", 2 * float64), ("allreduce_", 2 * float64), gathered],
        }  # fmt: skip
        assert own(result["sent"]) == expected[name]


@pytest.mark.parametrize("name", [possible(n) for n in FAULTS])
def test_what_one_process_meets_all_are_told(name):
    assert ran(2)[name] == ["fine", "fine"]
