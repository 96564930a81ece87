"""Everything a method remembers is in its state: a run saved in the middle goes on to the bit."""

import io
from dataclasses import replace

import pytest
import torch
from torch import nn

from reweigh.errors import SettingError
from reweigh.methods import METHODS
from support.method_cases import SIZE, Run, kinds, problem

CASES = [(name, kind) for name in METHODS for kind in kinds(name)]


def same(left, right):
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def content(run):
    return torch.load(io.BytesIO(run.saved()), weights_only=True)


def assert_equal(left, right):
    torch.testing.assert_close(left, right, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_run_goes_on_to_the_bit(name, kind):
    through = Run(name, *problem(kind), kind=kind)
    through.advance(7)
    saved = through.saved()
    expected = through.advance(7)

    resumed = Run(name, *problem(kind), kind=kind)
    torch.manual_seed(99)  # what else has been drawn must not matter
    resumed.load(saved)
    found = resumed.advance(7)

    assert same(through.model.parameters(), resumed.model.parameters())
    for one, other in zip(expected, found, strict=True):
        assert torch.equal(one.loss, other.loss)
        assert torch.equal(one.weights, other.weights)
    assert_equal(content(through), content(resumed))


REMEMBERS = {
    "mentornet", "mentornet_predefined", "meta_weight_net", "reweigh", "reweigh_bootstrap", "reweigh_hedged",
    "glc",
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_state_is_there_where_there_is_something_to_remember(name):
    run = Run(name, *problem())
    run.advance(2)
    parts = [part.state_dict() for part in run.method.state.values()]
    assert any(parts) == (name in REMEMBERS)


@pytest.mark.parametrize("name", sorted(REMEMBERS - {"glc"}))
def test_without_its_state_a_run_goes_elsewhere(name):
    """So that the test above can fail: the state matters."""
    through = Run(name, *problem(), learning_rate=0.3)
    through.advance(7)
    resumed = Run(name, *problem(), learning_rate=0.3)
    resumed.model.load_state_dict(through.model.state_dict())
    resumed.optimizer.load_state_dict(through.optimizer.state_dict())
    resumed.step = through.step
    through.advance(5)
    resumed.advance(5)
    assert not same(through.model.parameters(), resumed.model.parameters())


def test_a_saved_state_of_other_data_is_refused():
    run = Run("mentornet", *problem())
    run.advance(1)
    task, inputs = problem()
    other = Run("mentornet", replace(task, train_labels=task.train_labels[:-1]), inputs[:-1])
    with pytest.raises(SettingError, match="resume with the data"):
        other.load(run.saved())


@pytest.mark.parametrize("name", METHODS)
def test_memory_does_not_grow(name):
    run = Run(name, *problem())
    run.advance(2)
    early = len(run.saved())
    run.advance(10)
    assert len(run.saved()) - early < 200


@pytest.mark.parametrize("name", METHODS)
def test_batch_norm_takes_in_each_train_batch_once_and_nothing_else(name):
    def net():
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))

    task, inputs = problem(pretrained=net())
    run = Run(name, task, inputs, net=net())
    outcomes = run.advance(3)
    assert all(bool(torch.isfinite(o.loss)) for o in outcomes)
    base = getattr(run.model, "base", run.model)
    batches = 2 if name == "glc" else 1  # it trains on the clean batch as well
    assert int(base[1].num_batches_tracked) == 3 * batches
    plain = Run("clean_only" if name == "clean_only" else "uniform", task, inputs, net=net())
    plain.advance(1)
    first = Run(name, task, inputs, net=net())
    first.advance(1)
    if name != "glc":
        base = getattr(first.model, "base", first.model)
        assert torch.equal(base[1].running_mean, plain.model[1].running_mean)


@pytest.mark.parametrize("name", METHODS)
def test_the_global_generator_is_left_as_a_plain_step_leaves_it(name):
    def after(method):
        run = Run(method, *problem())
        run.advance(1)
        return torch.get_rng_state()

    if name in {"co_teaching", "glc"}:  # two forward passes that train, each with its dropout
        return
    plain = "clean_only" if name == "clean_only" else "uniform"
    assert torch.equal(after(name), after(plain))
    assert SIZE <= 9  # the clean set fills a batch, so that both draw masks of one shape
