"""Early stopping: the run ends with the weights of its lowest hyper-validation loss, also after a stop."""

from dataclasses import replace

import pytest
import torch

from reweigh.errors import SettingError
from reweigh.training import fit
from support.runs import Power, assert_same, cut_at, digits_task, tiny, tiny_config

# Steps that are too long: the loss rises soon, and then jumps about.
WILD = {"evaluate_every": 2, "checkpoint_every": 3, "steps": 40, "drops": ()}


def validated():
    task = digits_task()
    return replace(task, hyper_validation=task.test)


def wild(patience, **changes):
    config = tiny_config("uniform", **{**WILD, **changes})
    optimizer = replace(config.optimizer, learning_rate=1.0, momentum=0.0)
    return replace(config, optimizer=optimizer, patience=patience)


def losses(outcome):
    return {p["step"]: p["hyper_loss"] for p in outcome.curve if p["step"]}


def test_it_ends_after_so_many_in_vain_with_the_best_weights():
    task = validated()
    whole = losses(fit(tiny, task, wild(None)))
    stopped = fit(tiny, task, wild(2))
    # By hand: where the lowest so far is two evaluations old.
    lowest, since, expected = float("inf"), 0, []
    for step, loss in whole.items():
        expected.append(step)
        lowest, since = (loss, 0) if loss < lowest else (lowest, since + 1)
        if since == 2:
            break
    assert len(expected) < len(whole)
    assert list(losses(stopped)) == expected
    best = min(expected, key=whole.__getitem__)
    again = fit(tiny, task, wild(None, steps=best))
    for one, other in zip(stopped.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert stopped.metrics["hyper_loss"] == pytest.approx(whole[best], rel=1e-6)


@pytest.mark.parametrize("step", [3, 7])
def test_a_run_that_was_cut_ends_with_the_same_bits(step, tmp_path):
    task, config = validated(), wild(2)
    whole = fit(tiny, task, config)
    with pytest.raises(Power):
        fit(tiny, task, config, out=tmp_path, progress=cut_at(step))
    assert_same(fit(tiny, task, config, out=tmp_path), whole)
    read_back = fit(tiny, task, config, out=tmp_path)
    assert (read_back.metrics, read_back.curve) == (whole.metrics, whole.curve)


def test_it_needs_rows_and_evaluations():
    with pytest.raises(SettingError, match="no hyper-validation part"):
        fit(tiny, replace(validated(), hyper_validation=digits_task().train.head(0)), wild(2))
    with pytest.raises(SettingError, match="evaluate_every"):
        wild(2, evaluate_every=0)
