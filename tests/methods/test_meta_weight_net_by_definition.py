"""The virtual step and its meta-gradient against brute force."""

import copy

import pytest
import torch
from torch import nn

from reweigh.methods import View, make
from reweigh.methods.meta_weight_net import meta_gradient, weight_network
from support.method_cases import Run, cross_entropy, problem

RATE = 0.5


def small_net(kind):
    torch.manual_seed(4)
    middle = nn.BatchNorm1d(5) if kind == "batch norm" else nn.Tanh()
    net = nn.Sequential(nn.Linear(4, 5), middle, nn.Tanh(), nn.Linear(5, 3)).double()
    if kind == "frozen":
        net[0].weight.requires_grad_(False)
    return net


def clean_loss_after_the_virtual_step(network, net, train, clean):
    """G(theta^), with the step taken for real on a copy."""
    ahead = copy.deepcopy(net)
    losses = cross_entropy(ahead(train[0]), train[1])
    v = network(losses.detach().unsqueeze(1)).squeeze(1).detach()
    theta = [p for p in ahead.parameters() if p.requires_grad]
    grads = torch.autograd.grad((v * losses).sum() / len(v), theta)
    with torch.no_grad():
        for p, g in zip(theta, grads, strict=True):
            p.sub_(RATE * g)
        return float(cross_entropy(ahead(clean[0]), clean[1]).mean())


@pytest.mark.parametrize("kind", ["plain", "batch norm", "frozen"])
def test_the_meta_gradient_is_the_numerical_derivative(kind):
    generator = torch.Generator().manual_seed(0)
    train, clean = (
        (torch.randn(n, 4, generator=generator, dtype=torch.float64), torch.arange(n) % 3)
        for n in (6, 5)
    )
    net, network = small_net(kind), weight_network(7).double()
    view = View(net, train, clean, torch.arange(6), 0, RATE)

    def loss(model, batch):
        return cross_entropy(model(batch[0]), batch[1])

    before = clean_loss_after_the_virtual_step(network, net, train, clean)
    found_loss, found = meta_gradient(network, view, loss, loss(net, train))
    assert float(found_loss.detach()) == pytest.approx(before, rel=1e-9)

    epsilon = 1e-5
    for parameter, gradient in zip(network.parameters(), found, strict=True):
        flat, flat_gradient = parameter.data.view(-1), gradient.flatten()
        assert float(flat_gradient.abs().max()) > 0
        for i in range(len(flat)):
            value = float(flat[i])
            sides = []
            for side in (value + epsilon, value - epsilon):
                flat[i] = side
                sides.append(clean_loss_after_the_virtual_step(network, net, train, clean))
            flat[i] = value
            numerical = (sides[0] - sides[1]) / (2 * epsilon)
            assert float(flat_gradient[i]) == pytest.approx(numerical, rel=1e-4, abs=1e-9)


def test_a_step_is_adam_on_theta_then_training_on_the_new_weights():
    task, inputs = problem()
    run = Run("meta_weight_net", task, inputs, net=small_net("plain").float(), learning_rate=RATE)
    network = run.method.state["network"]
    mine = copy.deepcopy(network)
    view = run.view()
    losses = cross_entropy(run.model(view.train[0]), view.train[1])
    _, gradient = meta_gradient(mine, view, run.method.losses, losses)
    adam = torch.optim.Adam(mine.parameters(), lr=1e-3, weight_decay=1e-4)
    for p, g in zip(mine.parameters(), gradient, strict=True):
        p.grad = g
    adam.step()
    with torch.no_grad():
        expected = mine(losses.unsqueeze(1)).squeeze(1) / len(losses)

    weighed = run.method.weigh(view, run.method.losses)
    torch.testing.assert_close(weighed.weights, expected)
    weighed.loss.backward()
    direct = torch.autograd.grad((expected * losses).sum(), list(run.model.parameters()))
    for p, g in zip(run.model.parameters(), direct, strict=True):
        torch.testing.assert_close(p.grad, g)


def test_the_weight_network_is_one_hundred_units_wide_and_begins_the_same_for_a_seed():
    one, same, other = (
        make("meta_weight_net", problem(seed=seed)[0]).state["network"] for seed in (0, 0, 1)
    )
    assert [tuple(p.shape) for p in one.parameters()] == [(100, 1), (100,), (1, 100), (1,)]
    assert torch.equal(one[0].weight, same[0].weight)
    assert not torch.equal(one[0].weight, other[0].weight)


def test_it_learns_to_distrust_large_losses_where_large_losses_are_wrong():
    """At a network that is nearly right, every second label wrong: the weight falls with the loss."""
    x = torch.randn(48, 4, generator=torch.Generator().manual_seed(0))
    truth = x[:, :3].argmax(1)
    given = torch.where(torch.arange(48) % 2 == 0, (truth + 1) % 3, truth)
    net = nn.Linear(4, 3, bias=False)
    nn.init.eye_(net.weight)
    task, _ = problem()
    method = make("meta_weight_net", task)
    clean = (x[:24], truth[:24])
    view = View(net, (x[24:], given[24:]), clean, torch.arange(24), 0, RATE)
    found = [method.weigh(view, method.losses) for _ in range(200)]
    right = torch.arange(24) % 2 == 1
    begin, end = (f.weights[right].mean() / f.weights[~right].mean() for f in (found[0], found[-1]))
    assert float(begin) == pytest.approx(1, abs=0.1)
    assert float(end) > 1.5
    assert float(found[-1].clean_loss) < float(found[0].clean_loss)
