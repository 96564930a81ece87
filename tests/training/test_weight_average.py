"""The average of the weights over a run: its formula, what it leaves out, and that it survives a stop."""

import pytest
import torch
from torch import nn

from reweigh.errors import SettingError
from reweigh.training import Config, fit
from reweigh.training.weight_average import WeightAverage
from support.runs import Power, assert_same, cut_at, digits_task, tiny, tiny_config


@pytest.mark.parametrize("share", [1.0, 0.1])
def test_it_follows_its_formula(share):
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    average, history = WeightAverage(model, share), []
    for step in range(6):
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(torch.randn_like(p))
            model[1].num_batches_tracked.fill_(step + 1)
        history.append(model[0].weight.detach().clone())
        average.add(model)
    expected = history[0]
    for t, theta in enumerate(history[1:], start=2):
        expected = expected + (theta - expected) / (1 + share * (t - 1))
    assert torch.allclose(average.model[0].weight, expected, atol=1e-6)
    if share == 1:
        assert torch.allclose(expected, torch.stack(history).mean(0), atol=1e-6)
    assert int(average.model[1].num_batches_tracked) == 6  # a count is not averaged
    assert not torch.equal(model[0].weight, average.model[0].weight)


@pytest.mark.parametrize("method", ["reweigh", "uniform+ft"])
def test_a_run_keeps_the_average_and_goes_on_with_it(method, tmp_path):
    task, config = digits_task(), tiny_config(method, average=0.5)
    whole = fit(tiny, task, config)
    last = fit(tiny, task, tiny_config(method))
    assert any(
        not torch.equal(a, b)
        for a, b in zip(whole.model.parameters(), last.model.parameters(), strict=True)
    )
    assert all(p.requires_grad for p in whole.model.parameters())
    with pytest.raises(Power):
        fit(tiny, task, config, out=tmp_path, progress=cut_at(config.steps - 3))
    assert_same(whole, fit(tiny, task, config, out=tmp_path))


def test_a_share_that_is_none():
    with pytest.raises(SettingError, match="average is 2"):
        Config(average=2)
