"""An average of the model's weights over a run, which is judged and kept in place of the last ones.

    a_1 = theta_1,    a_t = a_(t-1) + (theta_t - a_(t-1)) / (1 + share * (t - 1))

With share = 1 this is the mean of all steps so far; with a smaller one about the last `share` of them
count. Nothing depends on how long the run will be. The steps of reweighed training are noisy, since few
examples carry the weight; an average is not. (Polynomial averaging: Shamir, Zhang, 2013.)

Whole numbers among the buffers, such as counts, are those of the last step; running statistics are
averaged with the weights they belong to.
"""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


class WeightAverage:
    """The average beside a model that is being trained."""

    def __init__(self, model: nn.Module, share: float) -> None:
        self.model = copy.deepcopy(model)
        self._share, self._steps = share, 0

    @torch.no_grad()
    def add(self, model: nn.Module) -> None:
        """Add the weights of one more step."""
        self._steps += 1
        rate = 1 / (1 + self._share * (self._steps - 1))
        for mine, now in zip(_tensors(self.model), _tensors(model), strict=True):
            if mine.is_floating_point():
                mine.lerp_(now.detach().to(mine.dtype), rate)
            else:
                mine.copy_(now)

    def state_dict(self) -> dict[str, Any]:
        """The average, and over how many steps."""
        return {"steps": self._steps, "model": dict(self.model.state_dict())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state_dict()`."""
        self._steps = int(state["steps"])
        self.model.load_state_dict(state["model"])


def _tensors(model: nn.Module) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()]
