"""MentorNet's predefined curriculum: train on examples with losses under a moving threshold.

    lambda     moving average of the 70th percentile of the batches' losses (method_state.py)
    v_i        1 if f_i <= lambda, else max(0, 1 - (f_i - lambda) / slack)
    weight_i   v_i / n;   1/n during the first fifth of the run (burn-in)

Jiang, Zhou, Leung, Li, Fei-Fei: MentorNet: Learning Data-Driven Curriculum for Very Deep Neural
Networks on Corrupted Labels, 2018. slack = 0 (the default) is the hard threshold.
"""

import torch
from torch import Tensor

from ..errors import SettingError
from .contract import Method, Problem, View, plain_method
from .method_state import MovingPercentile


def mentornet_predefined(
    problem: Problem,
    *,
    percentile: float = 0.7,
    decay: float = 0.9,
    slack: float = 0.0,
    burn_in: float = 0.2,
) -> Method:
    """Train on the examples whose loss is at most a moving percentile of the losses."""
    device = problem.train_labels.device
    moving = MovingPercentile(device, percentile=percentile, decay=decay, burn_in=burn_in)
    if slack < 0:
        raise SettingError(f"slack is {slack}; expected 0 or more, in units of the loss")

    def weights(view: View, losses: Tensor) -> Tensor:
        over = losses - moving.update(losses).to(losses)
        if view.step < burn_in * problem.steps:
            v = torch.ones_like(losses)
        elif slack == 0:
            v = (over <= 0).to(losses)
        else:
            v = (1 - over / slack).clamp(0, 1)
        return v / len(losses)

    return plain_method(problem, "mentornet_predefined", weights, state={"percentile": moving})
