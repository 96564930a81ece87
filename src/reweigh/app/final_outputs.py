"""What the final model says of each row, taken down while it is said: each row is predicted once.

The evaluation that ends a run goes through all train and test rows anyway. It shows its outputs to
an object of one of these classes, which keeps a few numbers per row:

    TrainOutputs    p_given          probability of the given label
                    rival, p_rival   the likeliest other class, and its probability
                    values           in a regression instead: the model's output
    TestOutputs     values           right or not (1, 0), or the absolute error in the target's units
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from ..data import AnyPart, BatchOptions, in_order
from ..training import EVALUATION_BATCH, evaluating

PREDICTED_AT_ONCE = 2000
Values = npt.NDArray[np.float64]


class FinalOutputs(ABC):
    """Called with the outputs of a part in order, a batch at a time."""

    def __init__(self, part: AnyPart) -> None:
        self.part, self.done = part, 0
        self.values: Values = np.empty(len(part))

    def __call__(self, outputs: Tensor) -> None:
        """Take down the next rows."""
        rows = slice(self.done, self.done + len(outputs))
        self._take(outputs.double().cpu(), rows)
        self.done = rows.stop

    @abstractmethod
    def _take(self, outputs: Tensor, rows: slice) -> None: ...

    def complete(self, model: nn.Module, options: BatchOptions) -> None:
        """Predict now, if nobody showed the outputs: so it is with a run that was read back."""
        if self.done < len(self.part):
            self.done = 0
            for batch in outputs(model, self.part, options, size=EVALUATION_BATCH):
                self(batch)


class TrainOutputs(FinalOutputs):
    """Of the train part: what the ranking needs."""

    def __init__(self, part: AnyPart) -> None:
        super().__init__(part)
        self.regression = part.targets.is_floating_point()
        n = 0 if self.regression else len(part)
        self.p_given, self.rival, self.p_rival = np.empty(n), np.empty(n, np.int64), np.empty(n)

    def _take(self, outputs: Tensor, rows: slice) -> None:
        if self.regression:
            self.values[rows] = outputs.numpy()
            return
        p = outputs.softmax(1).numpy()
        each, given = np.arange(len(p)), self.part.targets[rows].numpy()
        self.p_given[rows] = p[each, given]
        p[each, given] = -1
        self.rival[rows] = p.argmax(1)
        self.p_rival[rows] = p[each, self.rival[rows]]


class TestOutputs(FinalOutputs):
    """Of the test part: how good the model is. `scale` is that of the targets in a regression."""

    def __init__(self, part: AnyPart, *, scale: float) -> None:
        super().__init__(part)
        self.scale = scale
        self.regression = part.truth.is_floating_point()

    def _take(self, outputs: Tensor, rows: slice) -> None:
        truth = self.part.truth[rows].numpy()
        if self.regression:
            self.values[rows] = np.abs(outputs.numpy() - truth) * self.scale
        else:
            self.values[rows] = outputs.numpy().argmax(1) == truth


def said(raw: Tensor) -> Values:
    """Outputs as probabilities [n, classes]; numbers as a column [n, 1]."""
    shaped = raw.double()[:, None] if raw.ndim == 1 else raw.double().softmax(1)
    return np.asarray(shaped.numpy())


def outputs(
    model: nn.Module, part: AnyPart, options: BatchOptions, *, size: int = PREDICTED_AT_ONCE
) -> Iterator[Tensor]:
    """The model's raw outputs on `part`, in order, `size` rows at a time."""
    with evaluating(model):
        for batch in in_order(part, size=size, options=options):
            yield model(batch.inputs).float()
