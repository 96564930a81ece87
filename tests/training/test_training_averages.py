"""Averages over steps are those of the steps, however they are grouped or saved in between."""

import pytest
import torch

from reweigh.core import effective_sample_size
from reweigh.methods import Weighed
from reweigh.training.averages import GROUP, Averages

CPU = torch.device("cpu")


def steps(count, *, clean):
    torch.manual_seed(0)
    for _ in range(count):
        weights = torch.rand(7).where(torch.rand(7) < 0.5, torch.zeros(7))
        yield Weighed(
            torch.zeros(()), weights, torch.rand(7), None, torch.rand(()) if clean else None
        )


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("count", [1, GROUP - 1, GROUP, 2 * GROUP + 3])
def test_they_are_the_means_of_the_steps(count, clean):
    averages, seen = Averages(CPU), list(steps(count, clean=clean))
    for one in seen:
        averages.add([one])
    found = averages.read()
    assert found["loss"] == pytest.approx(sum(float(s.losses.mean()) for s in seen) / count)
    assert found["zero_share"] == pytest.approx(
        sum(float((s.weights == 0).float().mean()) for s in seen) / count
    )
    assert found["effective_sample_size"] == pytest.approx(
        sum(float(effective_sample_size(s.weights)) for s in seen) / count
    )
    if clean:
        assert found["clean_batch_loss"] == pytest.approx(
            sum(float(s.clean_loss) for s in seen) / count
        )
    assert ("clean_batch_loss" in found) == clean
    assert averages.read() == {}


def test_saving_in_between_changes_no_bit():
    seen = list(steps(2 * GROUP + 9, clean=True))
    whole, parts = Averages(CPU), Averages(CPU)
    for number, one in enumerate(seen):
        whole.add([one])
        parts.add([one])
        if number % 10 == 0:
            state, parts = parts.state_dict(), Averages(CPU)
            parts.load_state_dict(state)
    assert whole.read() == parts.read()
