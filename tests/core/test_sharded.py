"""Under fully_shard, scores, weights and gradients are those of the definition; and what a step moves."""

from __future__ import annotations

import functools

import pytest
import torch

from support.processes import together

if torch.__version__ < "2.7":
    pytest.skip("fully_shard of PyTorch 2.6 does not run on CPUs", allow_module_level=True)

from support import sharded_faults as faults
from support.sharded_models import Sharded

KEPT = {"reshard_after_forward": False}
ONE = {"one_pass": True}
MODELS = {
    "words": Sharded("words"),
    "words, forward_mode": Sharded("words", backend="forward_mode"),
    "words, one pass": Sharded("words", options=ONE),
    "tied": Sharded("tied"),
    "convolutions": Sharded("convolutions"),
    "convolutions, one pass": Sharded("convolutions", sizes=(9, 8), clean=2),
    "batch norm": Sharded("batch norm", expected="forward_mode"),
    "adapters": Sharded("adapters"),
    "a made weight": Sharded("scaled", expected="forward_mode"),
    "uneven": Sharded("perceptron"),
    "even": Sharded("even", sizes=(8, 8), clean=4),
    "even, kept": Sharded("even", sizes=(8, 8), clean=4, fully_shard=KEPT),
    "even, one pass": Sharded("even", sizes=(8, 8), clean=2),
    "even, one pass, kept": Sharded("even", sizes=(8, 8), clean=2, fully_shard=KEPT),
    "even, forward_mode": Sharded("even", backend="forward_mode"),
    "wide": Sharded("wide", sizes=(4, 4), clean=2),
    "wide, one pass": Sharded("wide", sizes=(8, 8), clean=2),
}
ON_FOUR = {
    "words": Sharded("words"),
    "words, copies": Sharded("words", mesh=(2, 2), options=ONE),
    "words, copies, forward_mode": Sharded("words", mesh=(2, 2), backend="forward_mode"),
    "wide, copies": Sharded("wide", mesh=(2, 2), clean=1),
}
FAULTS = {
    name: getattr(faults, name)
    for name in (
        "draws",
        "one_unit_of_two",
        "mixed_precision",
        "nothing_exact",
        "one_pass_declined",
        "asked_about",
        "refusals",
    )
}


@functools.cache
def ran(world: int):
    return together(world, {**MODELS, **FAULTS} if world == 2 else ON_FOUR)


def assert_defined(case: Sharded, results) -> None:
    for result in results:
        assert isinstance(result, dict), result
        assert max(result["worst"].values()) < 1e-9, result["worst"]
        named = case.expected if case.backend == "auto" else case.backend
        assert result["backend"] == named, result["reason"]


@pytest.mark.parametrize("name", MODELS)
def test_shards_give_what_the_definition_gives(name):
    assert_defined(MODELS[name], ran(2)[name])


@pytest.mark.parametrize("name", ON_FOUR)
def test_shards_and_their_copies_on_four_processes_do_as_well(name):
    assert_defined(ON_FOUR[name], ran(4)[name])


# In sizes of the parameters: what is gathered and reduced by a step with its backward.
MOVED = {
    "even": (5, 2),  # clean forward and backward, train forward and backward, clean gradient
    "even, kept": (3, 2),  # one forward each, clean gradient
    "even, one pass": (3, 2),  # one forward, one backward, clean gradient
    "even, one pass, kept": (2, 2),
    "even, forward_mode": (5, 2),
}


@pytest.mark.parametrize("name", MOVED)
def test_a_step_moves_what_the_docs_say(name):
    for result in ran(2)[name]:
        assert (result["gathered"], result["reduced"]) == pytest.approx(MOVED[name])
        assert result["else"] < 100  # numbers


def test_few_clean_rows_go_round_in_place_of_the_clean_gradient():
    size, last = (
        8 * 64 + 64 + 64 * 64 + 64 + 64 * 4 + 4,
        64 * 4 + 4,
    )  # of all, of the layer that does not gain
    rows = 4 * (8 + 64 + 64 + 64)  # of both processes
    for name, passes in (("wide", 4), ("wide, one pass", 2)):
        for result in ran(2)[name]:
            assert result["gathered"] == pytest.approx(passes + last / size)
            assert result["reduced"] == pytest.approx(1 + last / size)
            assert result["else"] == pytest.approx(rows, abs=100)
            both = "both batches in one forward" in result["reason"]
            assert both == (name == "wide, one pass"), result["reason"]


@pytest.mark.parametrize("name", FAULTS)
def test_what_else_a_sharded_model_may_meet(name):
    assert ran(2)[name] == ["fine", "fine"]
