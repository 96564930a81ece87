"""Two networks: who picks what for whom, and how the second one begins."""

import copy

import pytest
import torch
from torch import nn

from reweigh.methods import View, make
from reweigh.methods.co_teaching import TwoNetworks, shuffled
from support.method_cases import losses_problem


class Losses(nn.Module):
    """One trainable loss per example."""

    def __init__(self, values):
        super().__init__()
        self.values = nn.Parameter(torch.tensor(values))

    def forward(self, inputs):
        return self.values[inputs]


def weighed(step, **options):
    method = make("co_teaching", losses_problem([0] * 5, steps=100), **options)
    pair = TwoNetworks(Losses([5.0, 1.0, 2.0, 3.0, 4.0]), Losses([1.0, 2.0, 3.0, 5.0, 4.0]))
    ids = torch.arange(5)
    found = method.weigh(View(pair, (ids, ids), None, ids, step, 0.1), method.losses)
    found.loss.backward()
    return found, pair


def test_each_trains_on_what_the_other_finds_easy():
    found, pair = weighed(step=50)  # past the ramp: int(.6 * 5) = 3 kept
    third = 1 / 3
    torch.testing.assert_close(pair.base.values.grad, torch.tensor([third, third, third, 0, 0]))
    torch.testing.assert_close(pair.peer.values.grad, torch.tensor([0, third, third, third, 0]))
    torch.testing.assert_close(found.weights, torch.tensor([third, third, third, 0, 0]))
    torch.testing.assert_close(found.losses, pair.base.values.detach())
    torch.testing.assert_close(found.loss.detach(), torch.tensor((5 + 1 + 2 + 2 + 3 + 5) / 3))


@pytest.mark.parametrize(
    ("step", "kept"),
    [(0, 5), (1, 4), (3, 3), (5, 3), (99, 3)],  # R = 0, .08, .24, .4, .4 of five
)
def test_the_share_forgotten_grows_over_the_first_twentieth(step, kept):
    assert int((weighed(step)[0].weights > 0).sum()) == kept


def test_one_example_is_kept_at_least():
    assert int((weighed(99, forget_rate=0.95)[0].weights > 0).sum()) == 1


def test_nothing_is_forgotten_at_rate_zero():
    torch.testing.assert_close(weighed(99, forget_rate=0.0)[0].weights, torch.full((5,), 0.2))


def net():
    torch.manual_seed(5)
    model = nn.Sequential(
        nn.Embedding(7, 6, padding_idx=0), nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 2)
    )
    nn.init.zeros_(model[1].bias)
    nn.init.normal_(model[3].weight, std=3.0)  # an initialisation of the model's own
    return model


def test_the_second_network_is_another_draw_of_the_same_initialisation():
    model = net()
    peer = shuffled(model, torch.Generator().manual_seed(0))
    for (name, one), other in zip(model.named_parameters(), peer.parameters(), strict=True):
        assert torch.equal(one.flatten().sort()[0], other.flatten().sort()[0]), name
        if one.std() > 0 and one.numel() > 9:  # two values may fall into place again
            assert not torch.equal(one, other), name
    assert not peer[0].weight[0].any()  # padding stays padding
    assert not peer[1].bias.any()
    assert torch.equal(peer[2].weight, torch.ones(5))


def test_the_second_network_does_not_depend_on_the_memory_layout():
    model = nn.Conv2d(3, 4, 2)
    strided = copy.deepcopy(model).to(memory_format=torch.channels_last)
    one, other = (shuffled(m, torch.Generator().manual_seed(0)) for m in (model, strided))
    assert torch.equal(one.weight, other.weight)
    assert not torch.equal(one.weight, model.weight)
    assert other.weight.is_contiguous(memory_format=torch.channels_last)


def test_what_is_frozen_stays_equal_and_the_first_network_untouched():
    model = net()
    model[3].weight.requires_grad_(False)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    peer = shuffled(model, torch.Generator().manual_seed(0))
    assert torch.equal(peer[3].weight, model[3].weight)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_the_second_network_depends_on_the_seed_alone():
    def peer(seed):
        model = nn.Linear(4, 3)
        nn.init.normal_(model.weight, generator=torch.Generator().manual_seed(2))
        return make("co_teaching", losses_problem([0], seed=seed)).wrap(model).peer.weight

    assert torch.equal(peer(0), peer(0))
    assert not torch.equal(peer(0), peer(1))


def test_the_users_model_is_the_base_and_its_losses_are_the_methods():
    model = Losses([1.0, 2.0])
    method = make("co_teaching", losses_problem([0, 0]))
    pair = method.wrap(model)
    assert pair.base is model
    ids = torch.arange(2)
    assert torch.equal(method.losses(pair, (ids, ids)), method.losses(model, (ids, ids)))
