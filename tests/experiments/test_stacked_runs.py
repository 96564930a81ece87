"""Many runs as stacked tensors (benchmarks/stacked_runs.py) are the library's methods, written once more."""

import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = str(Path(__file__).parents[2] / "benchmarks")


@pytest.fixture(scope="module")
def found():
    sys.path.insert(0, BENCHMARKS)
    try:
        import stacked_check
    finally:
        sys.path.remove(BENCHMARKS)
    random = torch.random.get_rng_state()
    yield stacked_check.differences(lr=0.3, steps=25)
    torch.random.set_rng_state(random)


def test_every_method_ends_in_the_weights_of_the_library(found):
    assert len(found) == 9
    assert {name: off for name, off in found.items() if off > 1e-6} == {}
