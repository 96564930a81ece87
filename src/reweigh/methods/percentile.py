"""A moving percentile of the losses: a threshold above which a loss is large at this point of training.

lambda <- decay * lambda + (1 - decay) * quantile_p(losses of the batch);   lambda_0 = quantile_p
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import SettingError
from .method_state import MethodState


def moving_percentile(device: torch.device) -> MethodState:
    """The state of a moving percentile: lambda, NaN until the first update."""
    return MethodState(threshold=torch.full((), torch.nan, device=device))


def update_percentile(
    state: MethodState, losses: Tensor, *, percentile: float, decay: float
) -> Tensor:
    """Update lambda with a batch of losses [n], and return it, a scalar."""
    before = state["threshold"]
    now = losses.float().quantile(percentile).to(before.device)
    state["threshold"] = torch.where(before.isnan(), now, decay * before + (1 - decay) * now)
    return state["threshold"].clone()


def check_shares(percentile: float, decay: float, burn_in: float) -> None:
    """Raise unless all three are shares."""
    for name, value in (("percentile", percentile), ("decay", decay), ("burn_in", burn_in)):
        if not 0 <= value <= 1:
            raise SettingError(f"{name} is {value}; expected a share, 0 to 1")
