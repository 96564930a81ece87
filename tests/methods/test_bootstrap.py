"""Two candidates per example, and learning from the clean batch: against definitions worked out by hand."""

import pytest
import torch
from torch.nn import functional

from reweigh.methods import View, make, with_clean
from support.method_cases import SIZE, cross_entropy, model, problem


def view_of(net, task):
    inputs, labels = torch.randn(SIZE, 4), torch.randint(0, 3, (SIZE,))
    return View(net, (inputs, labels), task.clean, torch.arange(SIZE), 0, 0.1)


def gradient(loss, net):
    flat = torch.autograd.grad(loss, list(net.parameters()), retain_graph=True)
    return torch.cat([g.flatten() for g in flat])


def test_candidates_are_weighed_as_the_formula_says():
    torch.manual_seed(4)
    (task, _), net = problem(), model().double()
    net[1].p = 0.0
    task_clean = tuple(x.double() if x.is_floating_point() else x for x in task.clean)
    view = view_of(net, task)
    view = View(net, (view.train[0].double(), view.train[1]), task_clean, view.ids, 0, 0.1)
    weighed = make("reweigh_bootstrap", task, safeguard=None).weigh(view, None)

    direction = gradient(cross_entropy(net(task_clean[0]), task_clean[1]).mean(), net)
    logits = net(view.train[0])
    own = logits.argmax(1)
    losses = [cross_entropy(logits, view.train[1]), cross_entropy(logits, own)]
    scores = torch.stack(
        [torch.stack([gradient(f, net) @ direction for f in column]) for column in losses], dim=1
    )
    positive = scores.clamp(min=0)
    positive[scores[:, 0] >= 0, 1] = 0  # the own label is asked only where the given one does harm
    weights = positive / positive.sum()
    assert (weights[:, 1] > 0).any()
    assert torch.allclose(weighed.scores, scores[:, 0])
    assert torch.allclose(weighed.weights, weights[:, 0])
    expected = gradient((weights * torch.stack(losses, dim=1)).sum(), net)
    net.zero_grad()
    weighed.loss.backward()
    assert torch.allclose(torch.cat([p.grad.flatten() for p in net.parameters()]), expected)


@pytest.mark.parametrize("name", ["uniform", "reweigh"])
def test_clean_rows_count_as_train_rows_do(name):
    torch.manual_seed(0)
    (task, _), net = problem(), model()
    net[1].p = 0.0
    view = view_of(net, task)
    method = make(name, task)
    alone = method.weigh(view, method.losses)
    both = with_clean(make(name, task)).weigh(view, method.losses)
    clean = functional.cross_entropy(net(task.clean[0]), task.clean[1])
    share = len(task.clean[1]) / (len(task.clean[1]) + SIZE)
    assert torch.allclose(both.loss, (1 - share) * alone.loss + share * clean)
    assert torch.equal(both.weights, alone.weights)
    expected = (1 - share) * gradient(alone.loss, net) + share * gradient(clean, net)
    assert torch.allclose(gradient(both.loss, net), expected, atol=1e-7)
