"""Small models are slower, not faster, on many threads; and results should not depend on them."""

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def same_numbers_every_time():
    torch.manual_seed(0)
