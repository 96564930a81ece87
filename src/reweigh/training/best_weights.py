"""Early stopping: the weights with the lowest loss on the hyper-validation part, and when to stop looking.

    after each evaluation   loss below the lowest so far: keep the weights; else one more in vain
    after `patience` in vain   the main phase ends, with the weights that were kept

A loss that is no number is never the lowest. One copy of the weights is held; a checkpoint has it too, so a
run that goes on ends with the same bits.
"""

import math
from typing import Any

from torch import Tensor, nn


class BestWeights:
    """`loss` and `step` are those of the weights that are kept."""

    def __init__(self, patience: int) -> None:
        self.patience = patience
        self.loss, self.step, self.in_vain = math.inf, 0, 0
        self._weights: dict[str, Tensor] = {}

    @property
    def settled(self) -> bool:
        """Whether to stop."""
        return self.in_vain >= self.patience

    def look(self, loss: float, step: int, model: nn.Module) -> None:
        """The loss of `model` after `step` steps."""
        if loss < self.loss:
            self.loss, self.step, self.in_vain = loss, step, 0
            self._weights = {name: t.detach().clone() for name, t in model.state_dict().items()}
        else:
            self.in_vain += 1

    def restore(self, model: nn.Module) -> None:
        """Give `model` the weights that were kept, if there are any."""
        if self._weights:
            model.load_state_dict(self._weights)

    def state_dict(self) -> dict[str, Any]:
        """As tensors and numbers."""
        numbers = {"loss": self.loss, "step": self.step, "in_vain": self.in_vain}
        return {**numbers, "weights": dict(self._weights)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict()`."""
        self.loss, self.step, self.in_vain = state["loss"], state["step"], state["in_vain"]
        self._weights = dict(state["weights"])
