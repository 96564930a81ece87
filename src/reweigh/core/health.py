"""Ways in which a run goes wrong without an error: NaN, collapsed weights, a forgotten eval mode.

Counting happens on the device and is read once in `PATIENCE` steps, so that a step never waits for
it. The check for NaN is immediate on the CPU, where it costs nothing. Elsewhere the flag of a step is
read at the next step, when it has long been computed.
"""

import math

import torch
from torch import Tensor

from .._warn import warn
from ..errors import NonFiniteError
from .model import ModelView, on_host, require_finite
from .rule import BatchSummary
from .torch_internals import BatchNormBase, DropoutBase

PATIENCE = 50  # steps in a row before a warning
ALL_OF_IT = 0.99  # the weight of one example from which on the others count for nothing

ONLY_ZEROS = (
    "no example of the train batch has had a positive score for {steps} steps, so nothing is "
    "trained. Try: a lower learning rate, more clean examples, a larger train batch; and check that "
    "clean and train labels mean the same"
)
ONLY_ONE = (
    "one example has had all the weight for {steps} steps. Try: a larger train batch, more clean "
    "examples per step, or gradient clipping against outliers with huge gradients"
)


class RunHealth:
    """Counts steps in a row that handed out no weight, or all of it to one example."""

    def __init__(self) -> None:
        self._steps = 0
        self._zeros: Tensor | int = 0
        self._ones: Tensor | int = 0
        self._pending: tuple[Tensor, Tensor, Tensor] | None = None
        self._warned: set[str] = set()

    def finite(
        self, train: Tensor, clean: Tensor, scores: Tensor, joined: BatchSummary | None = None
    ) -> None:
        """Raise if a loss or score is not finite; off the CPU, one step later.

        joined: then all processes that share the batch raise when one has reason to.
        """
        if on_host(train) or joined is not None:
            _require(train, clean, scores)
            if joined is not None and not joined.finite:
                raise NonFiniteError(
                    "the scores of another process are not finite; expected finite losses and "
                    "gradients everywhere: its own log names the rows"
                )
            return
        pending, self._pending = self._pending, (train, clean, scores)
        if pending is not None:
            _require(*pending)

    def weights(self, weights: Tensor, joined: BatchSummary | None = None) -> None:
        """Count this step, and warn once when a bad streak is long enough."""
        largest: Tensor | float = weights.max() if joined is None else joined.largest
        if on_host(weights) or joined is not None:
            largest = float(largest)  # plain numbers are counted faster
        alone = (weights.numel() if joined is None else joined.count) == 1  # one is all there is
        self._zeros = (self._zeros + 1) * (largest == 0)
        self._ones = (self._ones + 1) * (largest > ALL_OF_IT) * (not alone)
        self._steps += 1
        if self._steps % PATIENCE == 0:
            for count, message in ((self._zeros, ONLY_ZEROS), (self._ones, ONLY_ONE)):
                if message not in self._warned and int(count) >= PATIENCE:
                    self._warned.add(message)
                    warn(message.format(steps=int(count)))


def _require(train: Tensor, clean: Tensor, scores: Tensor) -> None:
    # One NaN or infinity is enough to show in the sum; so is an overflow, which is then let pass.
    values = (
        (train, clean, scores) if scores.ndim == 1 else (train.flatten(), clean, scores.flatten())
    )
    if math.isfinite(float(torch.cat(values).sum())):
        return
    require_finite(clean, which="clean")
    require_finite(train, which="train")
    rows = (~torch.isfinite(scores)).nonzero()[:, 0].tolist()
    if not rows:
        return
    raise NonFiniteError(
        f"the losses are finite but the gradients of train rows {rows[:10]} or of the clean batch "
        f"are not; expected finite gradients: look for sqrt or log at zero, or lower the learning "
        f"rate"
    )


EVAL_MODE = (
    "the model is in eval mode, so dropout is off and BatchNorm does not learn its statistics.",
    "call model.train() before training, unless that is meant",
)  # what is wrong, and the fix


def likely_left_in_eval(view: ModelView) -> bool:
    """Whether the model as a whole is in eval mode and has parts to which that matters."""
    return not view.model.training and any(
        isinstance(m, (BatchNormBase, DropoutBase)) and getattr(m, "p", 1) > 0 for m in view.modules
    )
