"""Self-paced learning: easy examples first, all of them at the end.

    weight_i = 1 / k  for the k smallest losses of the batch, else 0
    k        = ceil(s n),   s = start + (1 - start) t / (T - 1)      start = .5

t is the step, T the number of steps of the run. Kumar, Packer, Koller: Self-Paced Learning for
Latent Variable Models, 2010. There an example is used if its loss is below a threshold that grows
until all are used. Here the threshold is the quantile s of the batch's losses, so it has no unit to
tune.
"""

import math

import torch
from torch import Tensor

from ..errors import SettingError
from .contract import Method, Problem, View, plain_method


def self_paced(problem: Problem, *, start: float = 0.5) -> Method:
    """Train on the easiest share of each batch; the share grows to the whole batch."""
    if not 0 < start <= 1:
        raise SettingError(f"start is {start}; expected a share of the batch, above 0 and up to 1")

    def weights(view: View, losses: Tensor) -> Tensor:
        progress = min(1.0, view.step / max(1, problem.steps - 1))
        share = start + (1 - start) * progress
        k = max(1, min(len(losses), math.ceil(share * len(losses))))
        kept = losses.topk(k, largest=False).indices
        return torch.zeros_like(losses).index_fill(0, kept, 1 / k)

    return plain_method(problem, "self_paced", weights)
