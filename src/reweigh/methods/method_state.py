"""What a method keeps between steps: named tensors of fixed shape."""

from __future__ import annotations

from collections.abc import Mapping

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
