"""Label transitions: T_ij = p(label j | class i); every row sums to one."""

from __future__ import annotations

import torch
from torch import Tensor


def near_identity(classes: int, noise: float) -> Tensor:
    """T [classes, classes]: 1 - noise on the diagonal, the rest of each row equal.

    >>> near_identity(3, 0.5)
    tensor([[0.5000, 0.2500, 0.2500],
            [0.2500, 0.5000, 0.2500],
            [0.2500, 0.2500, 0.5000]])
    """
    off = noise / (classes - 1)
    return torch.full((classes, classes), off).fill_diagonal_(1 - noise)


def through(log_p: Tensor, log_transitions: Tensor) -> Tensor:
    """log sum_i p_i T_ij, [n, classes], from log p [n, classes] and log T.

    Computed in logarithms, so that there is a gradient even if p underflows. This takes memory for
    n * classes^2 numbers.
    """
    return (log_p.unsqueeze(2) + log_transitions).logsumexp(dim=1)
