"""Each changed loss against its definition, written out in probabilities."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from reweigh.errors import LossShapeError, SettingError
from reweigh.methods import Problem, View, make
from reweigh.methods.probabilities import log_probabilities
from reweigh.methods.s_model import NoiseLayer
from support.method_cases import Given, problem

P = np.array([[0.7, 0.2, 0.1], [0.05, 0.15, 0.8], [0.3, 0.4, 0.3]])
Y = np.array([0, 1, 1])
OWN = P[np.arange(3), Y]

DEFINITIONS = {
    ("focal", ()): -((1 - OWN) ** 2) * np.log(OWN),
    ("focal", (("gamma", 0.0),)): -np.log(OWN),
    ("gce", ()): (1 - OWN**0.7) / 0.7,
    ("gce", (("q", 1.0),)): 1 - OWN,
    ("reed_hard", ()): -0.8 * np.log(OWN) - 0.2 * np.log(P.max(1)),
    ("reed_soft", ()): -0.95 * np.log(OWN) - 0.05 * (P * np.log(P)).sum(1),
    ("reed_soft", (("beta", 1.0),)): -np.log(OWN),
}


def task(classes=3, **changes):
    return Problem(
        criterion=lambda outputs, targets: outputs,
        classes=classes,
        train_labels=torch.from_numpy(Y) % classes,
        clean_labels=torch.tensor([0, 0, 2]) % classes,
        clean=changes.pop("clean", (torch.zeros(3, classes), torch.tensor([0, 0, 2]) % classes)),
        steps=10,
        **changes,
    )


@pytest.mark.parametrize(("name", "options"), DEFINITIONS, ids=str)
def test_the_loss_is_its_definition(name, options):
    method = make(name, task(), **dict(options))
    shifted = torch.from_numpy(np.log(P) + np.array([[3.0], [-2.0], [0.5]]))  # logits: any offset
    found = method.losses(Given(torch.float64), (shifted, torch.from_numpy(Y)))
    np.testing.assert_allclose(found.detach(), DEFINITIONS[name, options], rtol=1e-12)


BINARY = ["focal", "gce", "reed_hard", "reed_soft", "s_model", "s_model_conf", "glc"]


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("form", ["n", "n by 1"])
def test_one_logit_is_two_logits_with_the_first_at_zero(name, form):
    confusion = torch.tensor([[5.0, 2.0], [1.0, 7.0]])
    z = torch.tensor([0.3, -2.0, 1.5], dtype=torch.float64)
    y = torch.tensor([1, 0, 0])
    two = torch.stack([torch.zeros_like(z), z], 1)
    found = []
    for inputs, targets in ((z if form == "n" else z[:, None], y.double()), (two, y)):
        pretrained = Given(torch.float64)
        clean = (inputs, targets)
        this = task(2, confusion=confusion, pretrained=pretrained, clean=clean)
        method = make(name, this)
        model = Given(torch.float64)
        model = method.wrap(model) if method.wrap else model
        losses = method.losses(model, (inputs, targets))
        losses.sum().backward()
        base = getattr(model, "base", model)
        found.append(torch.cat([losses.detach(), base.factor.grad[None]]))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("name", ["focal", "gce", "reed_hard", "reed_soft"])
def test_the_gradient_is_the_numerical_derivative_and_finite_at_the_extremes(name):
    method = make(name, task())
    y = torch.from_numpy(Y)
    z = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(lambda x: method.losses(nn.Identity(), (x, y)), z)
    for size in (0.0, 80.0, 1e4):
        extreme = torch.tensor([[size, 0, 0], [-size, 0, 0], [0, size, 0]]).requires_grad_()
        losses = method.losses(nn.Identity(), (extreme, torch.zeros(3, dtype=torch.long)))
        (gradient,) = torch.autograd.grad(losses.sum(), extreme)
        assert torch.isfinite(losses).all()
        assert torch.isfinite(gradient).all()


def test_outputs_that_are_no_class_scores_are_refused():
    method = make("gce", task())
    for outputs in (torch.zeros(3), torch.zeros(3, 1), torch.zeros(3, 4), torch.zeros(3, 3, 2)):
        with pytest.raises(LossShapeError, match=r"expected logits \(n, 3\)"):
            method.losses(nn.Identity(), (outputs, torch.from_numpy(Y)))


def test_log_probabilities_come_back_as_they_are():
    log_p = torch.from_numpy(np.log(P))
    torch.testing.assert_close(log_probabilities(log_p, classes=3), log_p)


def test_s_model_mixes_the_classes_by_its_transitions():
    transitions = np.array([[0.8, 0.1, 0.1], [0.25, 0.5, 0.25], [0.0625, 0.0625, 0.875]])
    layer = NoiseLayer(Given(torch.float64), torch.from_numpy(transitions))
    logits = torch.from_numpy(np.log(P))
    np.testing.assert_allclose(layer(logits).exp().detach(), P @ transitions, rtol=1e-12)
    losses = make("s_model", task()).losses(layer, (logits, torch.from_numpy(Y)))
    expected = -np.log((P @ transitions)[np.arange(3), Y])
    np.testing.assert_allclose(losses.detach(), expected, rtol=1e-12)


def transitions(method):
    return method.wrap(Given()).logits.softmax(1).detach()


def test_s_model_begins_near_the_identity():
    expected = torch.tensor([[0.9, 0.05, 0.05], [0.05, 0.9, 0.05], [0.05, 0.05, 0.9]])
    torch.testing.assert_close(transitions(make("s_model", task())), expected)


def test_s_model_conf_begins_from_the_confusion_with_one_example_a_row_near_the_identity():
    confusion = torch.tensor([[7, 2, 0], [0, 0, 0], [1, 0, 3]])
    found = transitions(make("s_model_conf", task(confusion=confusion)))
    expected = torch.tensor(
        [[7.9, 2.05, 0.05], [0.05, 0.9, 0.05], [1.05, 0.05, 3.9]]
    ) / torch.tensor([[10.0], [1.0], [5.0]])
    torch.testing.assert_close(found, expected)


def test_s_model_leaves_the_users_model_as_base_and_trains_both():
    base = nn.Linear(4, 3)
    method = make("s_model", task())
    layer = method.wrap(base)
    assert layer.base is base
    batch = (torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1]))
    method.losses(layer, batch).mean().backward()
    assert all(float(p.grad.abs().sum()) > 0 for p in layer.parameters())
    torch.testing.assert_close(  # without the layer the loss is the plain one
        method.losses(base, batch),
        nn.functional.cross_entropy(base(batch[0]), batch[1], reduction="none"),
    )


def test_the_noise_layer_finds_the_transitions_behind_the_labels():
    """With classes known for sure, the best layer is the frequency of labels given the class."""
    truth = torch.tensor([[0.6, 0.4, 0.0], [0.1, 0.8, 0.1], [0.0, 0.3, 0.7]])
    counts = (truth * 100).int()
    classes = torch.repeat_interleave(torch.arange(3), 100)
    labels = torch.cat([torch.repeat_interleave(torch.arange(3), row) for row in counts])
    method = make("s_model", task())
    layer = method.wrap(nn.Identity())
    sure = 30.0 * nn.functional.one_hot(classes, 3)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.1)
    for _ in range(200):
        optimizer.zero_grad()
        method.losses(layer, (sure, labels)).mean().backward()
        optimizer.step()
    torch.testing.assert_close(layer.logits.softmax(1).detach(), truth, atol=0.01, rtol=0)


def test_glc_measures_its_transitions_on_the_clean_set():
    p = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.1, 0.1, 0.8]])
    this = task(clean=(p.log(), torch.tensor([0, 0, 2])), pretrained=Given())
    method = make("glc", this)
    expected = torch.tensor([[0.4, 0.5, 0.1], [0.0, 1.0, 0.0], [0.1, 0.1, 0.8]])
    found = method.state["transitions"].state_dict()["transitions"]
    torch.testing.assert_close(found, expected)
    losses = method.losses(Given(torch.float64), (torch.from_numpy(np.log(P)), torch.from_numpy(Y)))
    own = (P @ expected.double().numpy())[np.arange(3), Y]
    np.testing.assert_allclose(losses.detach(), -np.log(own), rtol=1e-6)


@pytest.mark.parametrize(("options", "share"), [({}, 3 / 12), ({"clean_share": 0.2}, 0.2)])
def test_glc_counts_each_example_of_both_sets_the_same(options, share):
    this = task(pretrained=nn.Identity(), clean=(10.0 * torch.eye(3), torch.tensor([0, 1, 2])))
    this = replace(this, train_labels=torch.from_numpy(Y).repeat(3))  # nine, and three clean
    method = make("glc", this, **options)
    model = Given()
    train = (torch.from_numpy(np.log(P)).float(), torch.from_numpy(Y))
    clean = (torch.tensor([[0.5, 0.25, 0.25]]).log(), torch.tensor([1]))
    weighed = method.weigh(View(model, train, clean, torch.arange(3), 0, 0.1), method.losses)
    expected = (1 - share) * float(method.losses(model, train).mean().detach()) + share * np.log(4)
    assert float(weighed.loss.detach()) == pytest.approx(expected, rel=1e-5)
    assert float(weighed.clean_loss) == pytest.approx(np.log(4), rel=1e-5)
    torch.testing.assert_close(weighed.weights, torch.full((3,), (1 - share) / 3))


def test_glc_leaves_the_pretrained_model_in_its_mode():
    net = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5))
    net[1].eval()
    this, _ = problem(pretrained=net)
    make("glc", this)
    assert net.training
    assert not net[1].training


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("focal", {"gamma": 0.5}), ("focal", {"gamma": -1}), ("gce", {"q": 0}), ("gce", {"q": 1.1}),
        ("reed_hard", {"beta": 1.5}), ("reed_soft", {"beta": -0.1}), ("s_model", {"noise": 0}),
        ("glc", {"clean_share": 1}), ("self_paced", {"start": 0}),
        ("co_teaching", {"forget_rate": 1}), ("co_teaching", {"ramp": 2}),
        ("mentornet", {"percentile": 70}), ("mentornet", {"burn_in": -1}), ("mentornet", {"window": 0}),
        ("mentornet_predefined", {"slack": -1}), ("meta_weight_net", {"hidden": 0}),
    ],
    ids=str,
)  # fmt: skip
def test_an_option_outside_its_range_is_refused(name, options):
    with pytest.raises(SettingError, match=f"{next(iter(options))} is .*; expected"):
        make(name, problem()[0], **options)
