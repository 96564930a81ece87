"""What all phases of a run share, and what they ask of it: models, batches, judgements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..audit import Ledger
from ..data import AnyPart, AnyTask, BatchOptions, PairedBatches, Part
from ..errors import SettingError
from ..methods import Criterion, Sampling
from ..optional import optional
from .config import Config
from .evaluation import Judged, judge
from .problem import ModelFactory, classes_of, make_seeded

FEW = 1000  # examples of a stream that stand in for the clean part of a method that has none


@dataclass(frozen=True)
class Job:
    """A model factory, a task and a config on an accelerator."""

    make_model: ModelFactory
    task: AnyTask
    config: Config
    criterion: Criterion
    accelerator: Any

    def __post_init__(self) -> None:
        share, pieces = self.config.batch.size // self.processes, self.config.accumulate
        if share % pieces:
            raise SettingError(
                f"a batch of {self.config.batch.size} on {self.processes} processes cannot be cut "
                f"into {pieces} equal pieces; take a multiple of {self.processes * pieces}"
            )

    @property
    def device(self) -> torch.device:
        """Where this process computes."""
        found: torch.device = self.accelerator.device
        return found

    @property
    def processes(self) -> int:
        """How many share the work."""
        return int(self.accelerator.num_processes)

    @property
    def writes(self) -> bool:
        """Whether this process is the one that writes files."""
        return bool(self.accelerator.is_main_process)

    def model(self, state: Mapping[str, Tensor] | None = None) -> nn.Module:
        """A new model under the run's seed, with `state` if given, on the device."""
        model = make_seeded(self.make_model, self.config.seed)
        if state is not None:
            load(model, state)
        return model.to(self.device)

    def pairs(self, sample: Sampling) -> PairedBatches:
        """This process's share of the batches that a method asks for."""
        options = replace(
            self.config.batch,
            balanced=self.config.batch.balanced or sample.balanced,
            rank=int(self.accelerator.process_index),
            world=self.processes,
        )
        clean = sample.source == "clean"
        return make_pairs(self.task, self.config.seed, options, clean=clean, device=self.device)

    def judge(self, model: nn.Module, part: AnyPart) -> tuple[Judged, Judged]:
        """The model on a part, against given and true labels; all processes share the work."""
        if self.processes > 1:
            # Running averages of the process that saves: the others' have seen other examples.
            for buffer in model.buffers():
                torch.distributed.broadcast(buffer, src=0)
        return judge(
            model,
            part,
            self.criterion,
            classes=classes_of(self.task),
            options=self.config.batch,
            device=self.device,
            accelerator=self.accelerator,
        )

    def gathered(self, ledger: Ledger) -> Ledger:
        """The ledgers of all processes as one."""
        if self.processes == 1:
            return ledger
        accelerate = optional("accelerate.utils", package="accelerate", needed_for="training")
        merged = ledger.like()
        for state in accelerate.gather_object([ledger.state_dict()]):
            other = ledger.like()
            other.load_state_dict(state)
            merged = merged.merge(other)
        return merged


def make_pairs(
    task: AnyTask,
    seed: int,
    options: BatchOptions,
    *,
    clean: bool = False,
    device: torch.device | str = "cpu",
) -> PairedBatches:
    """Train and clean batches; `clean` trains on the clean part."""
    # Without a clean part (a method that needs one refuses) any examples stand in for it.
    train = task.train
    trusted = (
        task.clean if len(task.clean) else train if isinstance(train, Part) else train.head(FEW)
    )
    train = trusted if clean else train
    return PairedBatches(train, trusted, seed=seed, options=options, device=device)


def load(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Put a saved state into a model; an error that says so if it is of another."""
    try:
        model.load_state_dict(dict(state))
    except RuntimeError as error:
        raise SettingError(
            f"the saved state is of another model ({str(error).splitlines()[1].strip()}); expected "
            f"what make_model makes: use the model the run was started with, or another folder"
        ) from None
