"""The mentor: what it sees, what it is taught, and what comes of it."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from reweigh.methods import make
from reweigh.methods.mentor import Mentor, labelled_twice, losses_of_both, remembered
from support.method_cases import CLASSES, SIZE, M, N, Run, problem


def test_a_history_keeps_the_last_visits_in_order():
    nan = torch.nan
    history = torch.full((2, 3, 2), nan)
    expected = [
        [[1, 1, 1], [2, 2, 2]],  # seen for the first time: has been so for ever
        [[1, 1, 3], [2, 2, 4]],
        [[1, 3, 5], [2, 4, 6]],
        [[3, 5, 7], [4, 6, 8]],
    ]
    for visit, rows in zip([(1, 2), (3, 4), (5, 6), (7, 8)], expected, strict=True):
        losses = torch.tensor(visit, dtype=torch.float32)
        history = remembered(history, torch.stack([losses, -losses], 1))
        assert history[:, :, 0].tolist() == rows
        assert torch.equal(history[:, :, 1], -history[:, :, 0])


def test_the_mentor_is_a_bidirectional_lstm_with_two_embeddings():
    mentor = Mentor(CLASSES)
    history, labels = torch.randn(4, 5, 2), torch.tensor([0, 1, 2, 0])
    outputs, _ = mentor.lstm(history)
    last = torch.cat([outputs[:, -1, :10], outputs[:, 0, 10:]], dim=1)  # each at its own end
    row = torch.cat([last, mentor.label.weight[labels], mentor.progress.weight[37].expand(4, 5)], 1)
    one, two = mentor.head[0], mentor.head[2]
    expected = torch.tanh(row @ one.weight.T + one.bias) @ two.weight.T + two.bias
    torch.testing.assert_close(mentor(history, labels, 0.375), expected.squeeze(1))
    assert torch.isfinite(mentor(history, labels, 1.0)).all()  # the end of training is no overflow


@pytest.mark.parametrize("kind", ["classes", "binary"])
def test_every_clean_example_is_labelled_once_right_and_once_wrong(kind):
    task, _ = problem(kind)
    right, wrong = labelled_twice(task)
    assert torch.equal(right, task.clean[1])
    assert not (right == wrong).any()
    assert int(wrong.min()) >= 0
    assert int(wrong.max()) < task.classes


def test_wrong_labels_are_drawn_evenly():
    targets = torch.zeros(3000, dtype=torch.long)
    task, _ = problem(clean=(torch.zeros(3000, 4), targets), clean_labels=targets)
    counts = labelled_twice(task)[1].bincount(minlength=CLASSES)
    assert counts[0] == 0
    assert abs(int(counts[1]) - 1500) < 150


@pytest.mark.parametrize("size", [M, 4, 2])
def test_the_losses_of_the_lessons_are_the_models_own_and_leave_no_trace(size):
    task, _ = problem()
    net = nn.Linear(4, CLASSES)
    lessons = labelled_twice(task)
    state = torch.get_rng_state()
    found = losses_of_both(task, net, lessons, size=size)
    expected = [task.criterion(net(task.clean[0]), y) for y in lessons]
    torch.testing.assert_close(found, torch.cat(expected).detach())
    assert torch.equal(state, torch.get_rng_state())


def test_weights_are_what_the_mentor_says_of_each_history():
    task, inputs = problem(steps=10)
    run = Run("mentornet", task, inputs, net=nn.Linear(4, CLASSES), burn_in=0.2, window=3)
    visits = {i: [] for i in range(N)}
    threshold = None
    for step in range(8):
        view = run.view()
        with torch.no_grad():
            losses = run.method.losses(run.model, view.train).numpy()
        (weighed,) = run.advance(1)
        now = np.quantile(losses, 0.7)
        threshold = now if threshold is None else 0.9 * threshold + 0.1 * now
        for i, value in zip(view.ids.tolist(), losses, strict=True):
            visits[i].append((value, value - threshold))
        if step < 2:  # burn-in
            torch.testing.assert_close(weighed.weights, torch.full((SIZE,), 1 / SIZE))
            continue
        rows = [([visits[i][0]] * 3 + visits[i])[-3:] for i in view.ids.tolist()]
        history = torch.tensor(np.array(rows), dtype=torch.float32)
        epoch = step // (N // SIZE) * (N // SIZE)  # the step at which this epoch began
        mentor = run.method.state["mentor"]
        with torch.no_grad():
            v = mentor(history, task.train_labels[view.ids], epoch / 10).sigmoid()
        torch.testing.assert_close(weighed.weights, v / SIZE, rtol=1e-4, atol=1e-6)
        assert (weighed.weights > 0).all()
        assert (weighed.weights < 1 / SIZE).all()


def test_the_mentor_learns_once_an_epoch():
    run = Run("mentornet", *problem())
    changed = []
    for _ in range(7):
        before = copy.deepcopy(run.method.state["mentor"].state_dict())
        run.advance(1)
        after = run.method.state["mentor"].state_dict()
        changed.append(any(not torch.equal(before[name], after[name]) for name in before))
    assert changed == [True, False, False, True, False, False, True]  # 24 examples, batches of 8


def test_it_comes_to_trust_right_labels_more_than_wrong_ones():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(460, 4, generator=generator)
    truth = x[:, :3].argmax(1)
    given = torch.where(torch.arange(460) < 160, (truth + 1) % 3, truth)  # 40% of the train part
    task, _ = problem(
        train_labels=given[:400], clean=(x[400:], truth[400:]), clean_labels=truth[400:], steps=300
    )
    run = Run("mentornet", task, x[:400], net=nn.Linear(4, 3), rounds=10)
    run.advance(240)
    right, wrong = [], []
    for _ in range(60):
        ids = run.view().ids
        (weighed,) = run.advance(1)
        right.append(weighed.weights[ids >= 160])
        wrong.append(weighed.weights[ids < 160])
    assert float(torch.cat(right).mean()) > 1.5 * float(torch.cat(wrong).mean())


def test_a_mentor_begins_the_same_for_a_seed():
    one, same, other = (
        make("mentornet", problem(seed=seed)[0]).state["mentor"] for seed in (0, 0, 1)
    )
    assert torch.equal(one.head[0].weight, same.head[0].weight)
    assert not torch.equal(one.head[0].weight, other.head[0].weight)
