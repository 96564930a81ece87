"""Each rule of weighing against its definition, on cases worked out by hand."""

import math

import numpy as np
import pytest
import torch

from reweigh.methods import METHODS, Sampling, make
from support.method_cases import Run, losses_problem, problem, weigh_losses

TEN = [0] * 6 + [1] * 3 + [2]  # train labels: six, three, one


def close(found, expected):
    torch.testing.assert_close(found, torch.as_tensor(expected, dtype=found.dtype))


def test_uniform_counts_everything_the_same_and_trains_on_the_mean():
    weighed = weigh_losses(make("uniform", losses_problem(TEN)), [3.0, 1.0, 2.0, 0.0])
    close(weighed.weights, [0.25] * 4)
    close(weighed.loss.detach(), 1.5)


def test_proportion_is_the_inverse_frequency_over_the_batch():
    method = make("proportion", losses_problem(TEN, classes=3))
    weighed = weigh_losses(method, [1.0, 1.0, 1.0, 1.0], ids=[0, 6, 9, 1])
    # 1/6, 1/3, 1/1, 1/6 over their sum 10/6
    close(weighed.weights, [0.1, 0.2, 0.6, 0.1])


def test_proportion_gives_every_class_the_same_total_over_the_train_part():
    method = make("proportion", losses_problem(TEN, classes=3))
    weights = weigh_losses(method, torch.ones(10)).weights
    close(torch.stack([weights[:6].sum(), weights[6:9].sum(), weights[9]]), [1 / 3] * 3)


def test_resample_asks_for_balanced_batches_and_counts_evenly():
    method = make("resample", losses_problem(TEN, classes=3))
    assert method.sample == Sampling("train", balanced=True)
    close(weigh_losses(method, [5.0, 1.0]).weights, [0.5, 0.5])


def test_clean_only_asks_for_the_clean_set_and_counts_evenly():
    method = make("clean_only", losses_problem(TEN))
    assert method.sample == Sampling("clean", balanced=False)
    close(weigh_losses(method, [5.0, 1.0]).weights, [0.5, 0.5])


@pytest.mark.parametrize("name", sorted(set(METHODS) - {"resample", "clean_only"}))
def test_all_others_draw_from_the_train_part_as_it_is(name):
    assert make(name, problem()[0]).sample == Sampling("train", balanced=False)


@pytest.mark.parametrize(
    ("labels", "classes", "ids", "losses", "kept"),
    [
        # two classes, 0 the majority: both minority examples, and the two hardest others
        ([0] * 8 + [1] * 2, 2, [0, 1, 2, 3, 8, 9], [1.0, 4.0, 2.0, 3.0, 0.1, 0.2], [1, 3, 4, 5]),
        # no minority example in the batch: the hardest one
        ([0] * 8 + [1] * 2, 2, [0, 1, 2], [1.0, 4.0, 2.0], [1]),
        # fewer majority examples than minority ones: everything
        ([0] * 8 + [1] * 2, 2, [0, 8, 9], [1.0, 4.0, 2.0], [0, 1, 2]),
        # three classes of ten: only 0 has more than a third
        (TEN, 3, [0, 1, 2, 6, 9], [0.5, 0.9, 0.7, 9.0, 0.0], [1, 2, 3, 4]),
        # two classes above a third compete for the places together
        ([0] * 4 + [1] * 4 + [2], 3, [0, 1, 4, 5, 8], [0.5, 0.9, 0.7, 1.0, 0.0], [3, 4]),
        # equally frequent classes: no majority
        ([0, 0, 1, 1, 2, 2], 3, [0, 1, 2, 4], [0.5, 0.9, 0.7, 1.0], [0, 1, 2, 3]),
    ],
)
def test_hard_mining_keeps_the_minority_and_the_hardest_of_the_majority(
    labels, classes, ids, losses, kept
):
    method = make("hard_mining", losses_problem(labels, classes=classes))
    expected = torch.zeros(len(ids))
    expected[kept] = 1 / len(kept)
    close(weigh_losses(method, losses, ids=ids).weights, expected)


def test_random_weights_are_rectified_gaussians_over_their_sum():
    n = 200_000
    method = make("random", losses_problem([0] * n))
    weights = weigh_losses(method, torch.ones(n)).weights.double()
    assert abs(float(weights.sum()) - 1) < 1e-4
    assert abs(float((weights == 0).double().mean()) - 0.5) < 0.01
    # E[z+]^2 / E[z+^2] = (1 / 2 pi) / (1 / 2), and E[z+^4] / E[z+^2]^2 = (3/2) / (1/4)
    assert abs(float(1 / (n * weights.square().sum())) - 1 / math.pi) < 0.01
    assert abs(float(n * weights.pow(4).sum() / weights.square().sum() ** 2) - 6) < 0.2


def test_random_weights_depend_on_seed_and_step_alone():
    def at(step, seed=0):
        method = make("random", losses_problem([0] * 8, seed=seed))
        return weigh_losses(method, torch.rand(8), step=step).weights

    assert torch.equal(at(3), at(3))
    assert not torch.equal(at(3), at(4))
    assert not torch.equal(at(3), at(3, seed=1))


def test_weighted_follows_the_share_of_right_labels():
    task = losses_problem(TEN, classes=3, right_share=torch.tensor([0.2, 0.8, 0.5]))
    weights = weigh_losses(make("weighted", task), [1.0, 2.0, 3.0, 4.0], ids=[0, 6, 7, 5]).weights
    close(weights, [0.1, 0.4, 0.4, 0.1])


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (0, [0, 1 / 2, 0, 1 / 2]),  # half
        (4, [0, 1 / 3, 1 / 3, 1 / 3]),  # .5 + .5 * 4/9 = .72: three of four
        (9, [1 / 4] * 4),  # all
    ],
)
def test_self_paced_takes_a_growing_share_of_the_easiest(step, expected):
    method = make("self_paced", losses_problem([0] * 4, steps=10))
    close(weigh_losses(method, [4.0, 1.0, 3.0, 2.0], step=step).weights, expected)


@pytest.mark.parametrize("slack", [0.0, 2.0])
def test_the_predefined_mentor_compares_with_a_moving_percentile(slack):
    method = make(
        "mentornet_predefined", losses_problem([0] * 5, steps=5), slack=slack, burn_in=0.2
    )
    batches = np.random.default_rng(0).gamma(2.0, size=(4, 5)).astype("float32")
    threshold = None
    for step, losses in enumerate(batches):
        now = float(np.quantile(losses, 0.7))
        threshold = now if threshold is None else 0.9 * threshold + 0.1 * now
        if step < 1:
            v = np.ones(5)
        elif slack == 0:
            v = np.where(losses <= threshold, 1.0, 0.0)
        else:
            v = np.clip(1 - (losses - threshold) / slack, 0, 1)
        close(weigh_losses(method, losses, step=step).weights, v / 5)


def gradients(model, losses):
    """Of each loss by itself, [n, parameters]."""
    rows = []
    for value in losses:
        grads = torch.autograd.grad(value, list(model.parameters()), retain_graph=True)
        rows.append(torch.cat([g.flatten() for g in grads]))
    return torch.stack(rows)


@pytest.mark.parametrize("name", ["reweigh", "reweigh_literal"])
def test_ours_is_the_alignment_with_the_clean_gradient(name):
    task, inputs = problem("binary")
    run = Run(name, task, inputs, kind="binary")
    view = run.view()
    train = gradients(run.model, run.method.losses(run.model, view.train))
    clean = gradients(run.model, run.method.losses(run.model, view.clean)).mean(0)
    scores = train @ clean
    weights = scores.clamp(min=0) / scores.clamp(min=0).sum()

    weighed = run.method.weigh(view, run.method.losses)
    close(weighed.scores, scores)
    close(weighed.weights, weights)
    weighed.loss.backward()
    found = torch.cat([p.grad.flatten() for p in run.model.parameters()])
    if name == "reweigh_literal":
        close(found, weights @ train)
    else:
        factor = found.norm() / (weights @ train).norm()
        assert 0 < float(factor) <= 1 + 1e-5
        close(found, factor * (weights @ train))


def test_only_ours_with_the_safeguard_remembers_trust():
    task, inputs = problem()
    states = {}
    for name in ("reweigh", "reweigh_literal"):
        run = Run(name, task, inputs)
        run.advance(1)
        states[name] = run.method.state["reweighter"].state_dict()
    assert "trust" in states["reweigh"]
    assert states["reweigh_literal"] == {}


def test_a_state_loaded_before_the_first_step_is_honoured():
    task, inputs = problem()
    first = Run("reweigh", task, inputs)
    first.advance(5)
    known = first.method.state["reweighter"].state_dict()
    fresh = Run("reweigh", task, inputs)
    fresh.method.state["reweighter"].load_state_dict(known)
    assert fresh.method.state["reweighter"].state_dict() == known  # before it has seen a model
    fresh.advance(1)
    assert float(fresh.method.state["reweighter"].state_dict()["step"]) == 6
