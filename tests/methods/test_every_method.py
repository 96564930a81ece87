"""Every method of the table trains, and does so to the same bits: twice, and across a power cut."""

import pytest
import torch

from reweigh.methods import METHODS
from reweigh.training import fit, phases
from support.runs import Power, assert_same, cut_at, digits_task, tiny, tiny_config

PLANS = [*METHODS, "uniform+es", "reweigh+ft", "uniform+es+ft", "reweigh+clean", "uniform+clean+ft"]


@pytest.mark.parametrize("method", PLANS)
def test_it_trains_the_same_twice_and_across_a_power_cut(method, tmp_path):
    task, config = digits_task(), tiny_config(method)
    before = torch.get_rng_state()
    whole = fit(tiny, task, config)
    assert torch.equal(before, torch.get_rng_state())

    fresh = tiny().state_dict()
    assert any(not torch.equal(fresh[n], v) for n, v in whole.model.state_dict().items())
    assert all(torch.isfinite(v).all() for v in whole.model.state_dict().values())

    total = sum(phase.schedule.steps for phase in phases(config, pretrained=False))
    with pytest.raises(Power):
        fit(tiny, task, config, out=tmp_path, progress=cut_at(total - 3))
    assert_same(whole, fit(tiny, task, config))
    assert_same(whole, fit(tiny, task, config, out=tmp_path))


@pytest.mark.parametrize("method", ["reweigh", *(m for m, e in METHODS.items() if e.pretrains)])
def test_it_goes_on_from_every_step(method, tmp_path):
    task = digits_task()
    config = tiny_config(f"{method}+ft", steps=3, drops=(), checkpoint_every=1, evaluate_every=2)
    whole = fit(tiny, task, config)
    total = sum(phase.schedule.steps for phase in phases(config, pretrained=False))
    for step in range(1, total + 1):
        with pytest.raises(Power):
            fit(tiny, task, config, out=tmp_path / "run", progress=cut_at(step))
    assert_same(whole, fit(tiny, task, config, out=tmp_path / "run"))
