"""What a method keeps between steps: named tensors of fixed shape.

One of them is a moving percentile of the losses, a threshold above which a loss is large at this point
of training:

    lambda <- decay * lambda + (1 - decay) * quantile_p(losses of the batch);   lambda_0 = quantile_p
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from ..errors import SettingError


class MethodState:
    """Tensors by name; their values change, their shapes do not.

    >>> import torch
    >>> state = MethodState(count=torch.zeros(2))
    >>> state["count"][0] += 1
    >>> state.state_dict()
    {'count': tensor([1., 0.])}
    """

    def __init__(self, **tensors: Tensor) -> None:
        self._tensors = tensors

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def __setitem__(self, name: str, value: Tensor) -> None:
        self._tensors[name].copy_(value)

    def state_dict(self) -> dict[str, Tensor]:
        """The tensors themselves, not copies, as in a module's `state_dict`."""
        return dict(self._tensors)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Copy the values; refuses other names or other shapes."""
        came = {name: tuple(value.shape) for name, value in state.items()}
        expected = {name: tuple(value.shape) for name, value in self._tensors.items()}
        if came != expected:
            raise SettingError(
                f"a method's saved state holds {came}; expected {expected}: resume with the data "
                f"and options that the run was started with"
            )
        for name, value in state.items():
            self[name] = value


class MovingPercentile(MethodState):
    """Keeps lambda, NaN until the first update. Raises unless all options are shares."""

    def __init__(self, device: torch.device, *, percentile: float, decay: float, burn_in: float):
        shares = {"percentile": percentile, "decay": decay, "burn_in": burn_in}
        for name, value in shares.items():
            if not 0 <= value <= 1:
                raise SettingError(f"{name} is {value}; expected a share, 0 to 1")
        super().__init__(threshold=torch.full((), torch.nan, device=device))
        self._percentile, self._decay = percentile, decay

    def update(self, losses: Tensor) -> Tensor:
        """Update lambda with a batch of losses [n], and return it, a scalar."""
        before, decay = self["threshold"], self._decay
        now = losses.float().quantile(self._percentile).to(before.device)
        self["threshold"] = torch.where(before.isnan(), now, decay * before + (1 - decay) * now)
        return self["threshold"].clone()
