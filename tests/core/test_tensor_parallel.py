"""Cut by tensor parallelism, scores, weights and gradients are those of the definition on the whole model."""

from __future__ import annotations

import functools

import pytest
import torch

from support.processes import together

if torch.__version__ < "2.13":
    pytest.skip("it is promised for PyTorch 2.13 and later", allow_module_level=True)

from support import tensor_parallel_faults as faults
from support.tensor_parallel import Parallel

MODELS = {
    "perceptron": Parallel(guarded=True),
    "heads": Parallel("words", "heads", guarded=True),
    "vocabulary": Parallel("words", "vocabulary"),
    "sequence": Parallel("words", "sequence", guarded=True),
    "activations": Parallel("words", "activations"),
    "dropout": Parallel("words, dropout", "heads"),
    "window": Parallel("words", "heads", window=3),
    "window of ones": Parallel(window=3, sizes=(1,)),
    "chunks": Parallel(options={"chunk": 2}),
    "one share": Parallel("words", "vocabulary", (1, 2), guarded=True),
    "finite_difference": Parallel(backend="finite_difference", close=1e-5),
}
ON_FOUR = {
    "perceptron": Parallel(mesh=(2, 2), guarded=True),
    "heads": Parallel("words", "heads", mesh=(2, 2), guarded=True),
    "sequence": Parallel("words", "sequence", mesh=(2, 2), guarded=True),
    "window": Parallel("words", "vocabulary", mesh=(2, 2), window=2),
    "an empty share": Parallel(mesh=(2, 2), sizes=(4, 0)),
    "kept": Parallel(mesh=(2, 2), fully_shard={"reshard_after_forward": False}),
    "finite_difference": Parallel(mesh=(2, 2), backend="finite_difference", close=1e-5),
}


FAULTS = {
    name: getattr(faults, name)
    for name in ("asked_about", "losses_in_parts", "parts_of_examples", "refusals")
}


@functools.cache
def ran(world: int):
    alone = {"a part": faults.a_part_of_the_processes}
    return together(world, {**MODELS, **FAULTS} if world == 2 else {**ON_FOUR, **alone})


def assert_defined(case: Parallel, results) -> None:
    for result in results:
        assert isinstance(result, dict), result
        assert max(result["worst"].values()) < case.close, result["worst"]
        named = case.expected if case.backend == "auto" else case.backend
        assert result["backend"] == named, result["reason"]


@pytest.mark.parametrize("name", MODELS)
def test_a_cut_model_gives_what_the_definition_gives(name):
    assert_defined(MODELS[name], ran(2)[name])


@pytest.mark.parametrize("name", ON_FOUR)
def test_so_does_one_that_is_cut_along_one_dimension_and_sharded_along_another(name):
    assert_defined(ON_FOUR[name], ran(4)[name])


@pytest.mark.parametrize("name", ON_FOUR)
def test_weights_sum_to_one_over_the_shares_and_are_the_same_where_the_batch_is(name):
    by_share: dict[int, list[torch.Tensor]] = {}
    for result in ran(4)[name]:
        by_share.setdefault(result["share"], []).append(result["weights"])
    assert sorted(by_share) == [0, 1]
    for first, second in by_share.values():
        assert torch.equal(first, second)
    assert float(sum(copies[0].sum() for copies in by_share.values())) == pytest.approx(1)


# In sizes of what is left of the parameters when tensor parallelism has cut them: gathered, reduced.
MOVED = {
    "perceptron": (5, 2),  # clean and train forward and backward, clean gradient; two backwards
    "kept": (3, 2),  # one forward each, clean gradient
}


@pytest.mark.parametrize("name", MOVED)
def test_fully_shard_moves_as_much_as_it_does_without_tensor_parallelism(name):
    for result in ran(4)[name]:
        assert (result["gathered"], result["reduced"]) == pytest.approx(MOVED[name])


@pytest.mark.parametrize("name", FAULTS)
def test_what_else_a_cut_model_may_meet(name):
    assert ran(2)[name] == ["fine"] * 2


def test_processes_outside_of_the_mesh_are_not_taken_for_a_part_of_the_batch():
    assert ran(4)["a part"] == ["fine"] * 4
