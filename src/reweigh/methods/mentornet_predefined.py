"""MentorNet's predefined curriculum: train on examples with losses under a moving threshold.

    lambda     moving average of the 70th percentile of the batches' losses (percentile.py)
    v_i        1 if f_i <= lambda, else max(0, 1 - (f_i - lambda) / slack)
    weight_i   v_i / n;   1/n during the first fifth of the run (burn-in)

Jiang, Zhou, Leung, Li, Fei-Fei: MentorNet: Learning Data-Driven Curriculum for Very Deep Neural
Networks on Corrupted Labels, 2018. slack = 0 (the default) is the hard threshold.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import SettingError
from .contract import Method, Problem, View, plain_losses, weighed_by
from .percentile import check_shares, moving_percentile, update_percentile


def mentornet_predefined(
    problem: Problem,
    *,
    percentile: float = 0.7,
    decay: float = 0.9,
    slack: float = 0.0,
    burn_in: float = 0.2,
) -> Method:
    """Train on the examples whose loss is at most a moving percentile of the losses."""
    check_shares(percentile, decay, burn_in)
    if slack < 0:
        raise SettingError(f"slack is {slack}; expected 0 or more, in units of the loss")
    state = moving_percentile(problem.train_labels.device)

    def weights(view: View, losses: Tensor) -> Tensor:
        over = losses - update_percentile(state, losses, percentile=percentile, decay=decay).to(
            losses
        )
        if view.step < burn_in * problem.steps:
            v = torch.ones_like(losses)
        elif slack == 0:
            v = (over <= 0).to(losses)
        else:
            v = (1 - over / slack).clamp(0, 1)
        return v / len(losses)

    return Method(
        "mentornet_predefined",
        losses=plain_losses(problem),
        weigh=weighed_by(weights),
        state={"percentile": state},
    )
