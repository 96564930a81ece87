"""Ending a run that has diverged with an error that names the step, the examples and the cause.

On the CPU the loss of every step is checked, which costs nothing there. On other devices a check
would wait for the device, so the first bad step is noted there, and the note is read every
`PATIENCE` steps and before anything is saved or evaluated.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from ..data import Pair
from ..errors import DivergedError
from ..methods import Weighed

PATIENCE = 50
MOST_NAMED = 10  # examples in a message


class DivergenceCheck:
    """Finds the first step whose loss was NaN or infinite. `pair(step)` gives its batches."""

    def __init__(
        self,
        pair: Callable[[int], Pair],
        device: torch.device,
        learning_rate: Callable[[int], float],
    ) -> None:
        self._pair, self._learning_rate = pair, learning_rate
        self._first = torch.full((), -1, dtype=torch.int64, device=device)
        self._immediate = device.type == "cpu"

    def after(self, step: int, pieces: Sequence[Weighed]) -> None:
        """Check the losses of a step."""
        for weighed in pieces:
            value = weighed.loss.detach() + weighed.losses.sum()
            if self._immediate:
                if not torch.isfinite(value):
                    raise self.error(step, weighed.losses)
            else:
                bad = ~torch.isfinite(value) & (self._first < 0)
                self._first = torch.where(bad, step, self._first)
        if not self._immediate and (step + 1) % PATIENCE == 0:
            self.settle()

    def settle(self) -> None:
        """Raise if a bad step was noted."""
        if not self._immediate and (step := int(self._first)) >= 0:
            raise self.error(step)

    def parameters(self, model: nn.Module, step: int) -> None:
        """Raise unless every parameter is finite: called before a model is evaluated or saved."""
        self.settle()
        total = sum((p.detach().float().sum() for p in model.parameters()), torch.zeros(()))
        if not torch.isfinite(total) and not all(
            torch.isfinite(p).all() for p in model.parameters()
        ):
            raise self.error(step, what="a parameter of the model is NaN or infinite after")

    def error(
        self,
        step: int,
        losses: Tensor | None = None,
        *,
        what: str = "the loss is NaN or infinite at",
    ) -> DivergedError:
        """The error for `step`: what happened, to which examples, and the likely cause."""
        pair = self._pair(step)
        ids = pair.train_ids.tolist()
        bad = [] if losses is None or len(losses) != len(ids) else _non_finite_rows(losses)
        named = [ids[row] for row in bad] or ids
        return DivergedError(
            f"{what} step {step}, train examples {_listed(named)}; expected finite values. "
            f"Likely cause: {self._cause(step, pair)}"
        )

    def _cause(self, step: int, pair: Pair) -> str:
        for which, batch, ids in (
            ("train", pair.train, pair.train_ids),
            ("clean", pair.clean, pair.clean_ids),
        ):
            if rows := _non_finite_rows(batch.inputs):
                named = _listed(ids[rows].tolist())
                return f"the inputs of {which} examples {named} are not finite: mend or drop them"
        return (
            f"the learning rate, {self._learning_rate(step):g}, is too large for this model: "
            f"lower it, or set clip"
        )


def _non_finite_rows(values: Tensor) -> list[int]:
    """The rows of values [n, ...] that hold NaN or infinity."""
    rows = values.flatten(1) if values.ndim > 1 else values[:, None]
    return (~torch.isfinite(rows)).any(1).nonzero().flatten().tolist()


def _listed(ids: list[int]) -> str:
    """The ids as text, cut after `MOST_NAMED`."""
    more = f", ... ({len(ids)})" if len(ids) > MOST_NAMED else ""
    return ", ".join(map(str, ids[:MOST_NAMED])) + more
