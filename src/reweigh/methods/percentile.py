"""A moving percentile of the losses: what counts as a large loss at this point of training.

lambda <- decay * lambda + (1 - decay) * quantile_p(losses of the batch);  at first the quantile
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import SettingError
from .method_state import MethodState


def moving_percentile(device: torch.device) -> MethodState:
    """The memory of one; not a number until the first update."""
    return MethodState(threshold=torch.full((), torch.nan, device=device))


def update(memory: MethodState, losses: Tensor, *, percentile: float, decay: float) -> Tensor:
    """Take in a batch of losses [n], and return the threshold, a scalar."""
    before = memory["threshold"]
    now = losses.float().quantile(percentile).to(before.device)
    memory["threshold"] = torch.where(before.isnan(), now, decay * before + (1 - decay) * now)
    return memory["threshold"].clone()


def check(percentile: float, decay: float, burn_in: float) -> None:
    """Refuse what is no share."""
    for name, value in (("percentile", percentile), ("decay", decay), ("burn_in", burn_in)):
        if not 0 <= value <= 1:
            raise SettingError(f"{name} is {value}; expected a share, 0 to 1")
