"""What all phases of a run share: the task, the config, the accelerator, and what is made of them."""

from collections.abc import Callable, Mapping
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
from .criteria import classes_of
from .evaluation import Judged, Observer, judge

ModelFactory = Callable[[], nn.Module]

FEW = 1000  # train examples that stand in for a clean part, if a stream has none


@dataclass(frozen=True)
class RunContext:
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
        """The device of this process."""
        device: torch.device = self.accelerator.device
        return device

    @property
    def processes(self) -> int:
        """How many processes share the work."""
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

    def judge(
        self, model: nn.Module, part: AnyPart, observe: Observer | None = None
    ) -> tuple[Judged, Judged]:
        """The model on a part, against given and true labels; all processes share the work."""
        if self.processes > 1:
            # Each process has running averages of other examples; those of the one that saves count.
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
            observe=observe if self.processes == 1 else None,
        )

    def gathered(self, ledger: Ledger) -> Ledger:
        """The ledgers of all processes as one."""
        if self.processes == 1:
            return ledger
        accelerate = optional("accelerate.utils", package="accelerate", needed_for="training")
        return ledger.joined(accelerate.gather_object([ledger.state_dict()]))


def make_seeded(make_model: ModelFactory, seed: int) -> nn.Module:
    """A new model, the same for the same seed."""
    torch.manual_seed(seed)
    return make_model()


def make_pairs(
    task: AnyTask,
    seed: int,
    options: BatchOptions,
    *,
    clean: bool = False,
    device: torch.device | str = "cpu",
) -> PairedBatches:
    """Train and clean batches; with `clean`, the clean part is also what is trained on.

    If the task has no clean part, train examples stand in for it: a method that needs clean examples
    refuses such a task, and the others ignore the batch.
    """
    train, trusted = task.train, task.clean
    if not len(trusted):
        trusted = train if isinstance(train, Part) else train.head(FEW)
    train = trusted if clean else train
    return PairedBatches(train, trusted, seed=seed, options=options, device=device)


def load(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load a saved state into a model; if it is the state of another model, the error says so."""
    try:
        model.load_state_dict(dict(state))
    except RuntimeError as error:
        raise SettingError(
            f"the saved state is of another model ({str(error).splitlines()[1].strip()}); expected "
            f"what make_model makes: use the model the run was started with, or another folder"
        ) from None
