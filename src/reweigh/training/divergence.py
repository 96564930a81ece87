"""Stopping a run that has diverged, with what there is to know about it.

On the CPU every step is looked at, which costs nothing there. Elsewhere the first bad step is noted
on the device and read every `PATIENCE` steps, and before anything is saved or evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from ..data import Pair
from ..errors import DivergedError
from ..methods import Weighed

PATIENCE = 50


class Watch:
    """Remembers the first step whose loss was NaN or infinite. `pair(step)` gives its batches."""

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
        """Look at a step's losses."""
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
        """Raise if a step was bad."""
        if not self._immediate and (step := int(self._first)) >= 0:
            raise self.error(step)

    def parameters(self, model: nn.Module, step: int) -> None:
        """Raise unless every parameter is finite: before a model is judged or saved."""
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
        """What happened, to which examples, and the likely cause."""
        pair = self._pair(step)
        ids = pair.train_ids.tolist()
        guilty = _rows(pair.train.inputs)
        bad = [] if losses is None or len(losses) != len(ids) else _rows(losses)
        if guilty or (at_clean := _rows(pair.clean.inputs)):
            cause = (
                f"the inputs of train examples {_listed([ids[r] for r in guilty])} are not finite"
                if guilty
                else f"the inputs of clean examples {_listed(pair.clean_ids[at_clean].tolist())} are not finite"
            ) + ": mend or drop them"  # fmt: skip
        else:
            cause = (
                f"the learning rate, {self._learning_rate(step):g}, is too large for this model: "
                f"lower it, or set clip"
            )
        named = [ids[r] for r in bad] or ids
        return DivergedError(
            f"{what} step {step}, train examples {_listed(named)}; expected finite values. "
            f"Likely cause: {cause}"
        )


def _rows(values: Tensor) -> list[int]:
    found: list[int] = (~torch.isfinite(values.flatten(1) if values.ndim > 1 else values[:, None])).any(1).nonzero().flatten().tolist()  # fmt: skip
    return found


def _listed(ids: list[int]) -> str:
    return ", ".join(map(str, ids[:10])) + (f", ... ({len(ids)})" if len(ids) > 10 else "")
