"""Which clean rows each step uses: one shuffled pass over the clean set after the other.

    rows of step t = positions [t * size, (t + 1) * size) in the sequence of passes

A pure function of seed and step, so a run resumed at step t draws what it would have drawn. If the
clean set is no larger than the batch, every step uses all of it, which is best while it is small.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from ..errors import BatchError, SettingError


class CleanDraws:
    """Row numbers [size] of a clean set of n rows, step after step.

    >>> draws = CleanDraws(4, 3, seed=0)
    >>> sorted(torch.cat([next(draws) for _ in range(4)]).tolist())
    [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    """

    def __init__(self, n: int, size: int, *, seed: int = 0) -> None:
        if n < 1:
            raise BatchError("the clean set is empty: expected at least one checked example")
        if size < 1:
            raise SettingError(f"clean batches of {size} rows; expected 1 or more")
        self.n, self.size, self.seed = n, min(size, n), seed
        self.step = 0

    def __next__(self) -> Tensor:
        """The rows of the next step."""
        start = self.step * self.size
        self.step += 1
        if self.size == self.n:
            return torch.arange(self.n)
        first, last = start // self.n, (start + self.size - 1) // self.n
        order = torch.cat([self._pass(number) for number in range(first, last + 1)])
        return order[start - first * self.n :][: self.size]

    def _pass(self, number: int) -> Tensor:
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + number) % 2**63)
        return torch.randperm(self.n, generator=generator)

    def state_dict(self) -> dict[str, int]:
        """The number of the next step."""
        return {"step": self.step}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continue from `state_dict()`."""
        self.step = int(state["step"])
