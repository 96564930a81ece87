"""One phase, from any step to its end.

for each pair: seed -> step -> watch -> count -> [evaluate] -> [save] -> [stop]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..core import effective_sample_size
from ..data import PairedBatches
from ..errors import NonFiniteError
from ..methods import Method, Weighed
from .config import Config
from .divergence import Watch
from .environment import seed_step
from .phases import Phase
from .step import Trainer


class Averages:
    """Means over the steps since the last evaluation, kept on the device."""

    def __init__(self, device: torch.device) -> None:
        self._names = ("loss", "clean_loss", "effective_sample_size", "zero_share")
        self._sums = torch.zeros(len(self._names), device=device)
        self._count = 0
        self._clean = False

    def add(self, pieces: Sequence[Weighed]) -> None:
        """One step's."""
        for one in pieces:
            weights = one.weights.detach().float()
            clean = torch.zeros_like(one.losses[0]) if one.clean_loss is None else one.clean_loss
            self._clean = one.clean_loss is not None
            self._sums += torch.stack(
                [
                    one.losses.mean().float(),
                    clean.detach().float(),
                    effective_sample_size(weights),
                    (weights == 0).float().mean(),
                ]
            )
            self._count += 1

    def read(self) -> dict[str, float]:
        """The means, from zero again afterwards; empty if there was no step."""
        found = {}
        if self._count:
            means = (self._sums / self._count).tolist()
            found = dict(zip(self._names, means, strict=True))
            if not self._clean:
                del found["clean_loss"]
        self._sums.zero_()
        self._count = 0
        return found

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"sums": self._sums.clone(), "count": self._count, "clean": self._clean}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from it."""
        self._sums.copy_(state["sums"])
        self._count, self._clean = int(state["count"]), bool(state["clean"])


@dataclass
class Stage:
    """A phase in progress: what `run` moves forward and a checkpoint holds."""

    phase: Phase
    trainer: Trainer
    method: Method
    base: nn.Module
    pairs: PairedBatches
    averages: Averages
    pretrained: dict[str, Tensor] | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def state_dict(self) -> dict[str, Any]:
        """All of it, in tensors, numbers, strings, lists and dicts."""
        accelerator = self.trainer.accelerator
        scaler = accelerator.scaler
        return {
            "model": accelerator.unwrap_model(self.trainer.model).state_dict(),
            "optimizer": self.trainer.optimizer.state_dict(),
            "scaler": None if scaler is None else scaler.state_dict(),
            "method": {name: dict(part.state_dict()) for name, part in self.method.state.items()},
            "pairs": self.pairs.state_dict(),
            "averages": self.averages.state_dict(),
            "pretrained": self.pretrained,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from it."""
        accelerator = self.trainer.accelerator
        accelerator.unwrap_model(self.trainer.model).load_state_dict(state["model"])
        self.trainer.optimizer.load_state_dict(state["optimizer"])
        if accelerator.scaler is not None and state["scaler"] is not None:
            accelerator.scaler.load_state_dict(state["scaler"])
        for name, part in self.method.state.items():
            part.load_state_dict(state["method"][name])
        self.pairs.load_state_dict(state["pairs"])
        self.averages.load_state_dict(state["averages"])


def run(
    stage: Stage,
    config: Config,
    *,
    evaluate: Callable[[int], None],
    save: Callable[[int], None],
    pause: Callable[[int], bool],
    show: Callable[[int, Weighed], None],
) -> None:
    """Train to the end of the phase, or until `pause` says so.

    `evaluate` and `save` are called when they are due, in that order, with the steps done.
    """
    phase, trainer, accelerator = stage.phase, stage.trainer, stage.trainer.accelerator
    steps = phase.schedule.steps
    watch = Watch(stage.pairs.pair, accelerator.device, phase.learning_rate)
    stage.trainer.model.train()
    for pair in stage.pairs.until(steps):
        step = stage.pairs.step - 1
        seed_step(config.seed, phase.name, step,
                  rank=accelerator.process_index, device=accelerator.device)  # fmt: skip
        try:
            pieces = trainer.step(pair, step=step, learning_rate=phase.learning_rate(step))
        except NonFiniteError as error:
            raise watch.error(step) from error
        watch.after(step, pieces)
        stage.averages.add(pieces)
        done = step + 1
        show(done, pieces[-1])
        last = done == steps
        evaluating = last or (config.evaluate_every and done % config.evaluate_every == 0)
        saving = last or (config.checkpoint_every and done % config.checkpoint_every == 0)
        stopping = pause(done)
        if evaluating or saving or stopping:
            watch.parameters(trainer.model, step)
        if evaluating:
            evaluate(done)
        if saving or stopping:
            save(done)
        if stopping:
            return
