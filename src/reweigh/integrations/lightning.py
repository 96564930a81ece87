"""Reweighed training in a LightningModule: you give the loss per example and the clean examples.

    class Net(ReweighMixin, LightningModule):
        def losses(self, batch): ...          # one value per example, instead of training_step
        def clean_dataloader(self): ...       # checked examples

The mixin's `training_step` weighs the batch, logs, and returns the loss. Lightning does the rest:
precision, devices, DDP. Under `accumulate_grad_batches` all micro-batches between two optimizer steps
are weighed as one batch, in the memory of one, when the last of them is there. Every checkpoint also holds the safeguard's state, the ledger
and the position in the clean set. Under DDP the batches of all processes are weighed as one batch,
and Lightning averages the gradients.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..audit import Ledger
from ..core import Reweighter, Step, Window, group_of
from ..errors import SettingError
from ..optional import missing_framework
from .numbered import Numbered, NumberedItem

try:
    from lightning.pytorch import LightningModule
except ImportError as error:
    raise missing_framework("lightning", error) from error

__all__ = ["Numbered", "ReweighMixin"]

STATE = "reweigh"  # the key in a checkpoint
LOGGED = ("clean_loss", "effective_sample_size", "zero_share")


class ReweighMixin:
    """Mixed into a LightningModule, before it in the list of bases.

    reweigh_options: a class attribute with options of `reweigh.Reweighter`, if any.
    ledger:          what each example counted; only if the train data set is wrapped in `Numbered`.

    Logged at every step: clean_loss, effective_sample_size, zero_share.
    """

    reweigh_options: dict[str, Any] = {}  # noqa: RUF012 - to be replaced, not changed
    ledger: Ledger | None = None
    _weigh: Reweighter | None = None
    _clean: Iterator[Any] | None = None
    _clean_loader: Any = None
    _waiting: Sequence[Any] = ()
    _clean_step = 0
    _saved: dict[str, Any] | None = None

    def losses(self, batch: Any) -> Tensor:
        """The losses [n] of a batch, one per example: for you to write."""
        raise NotImplementedError(
            f"{type(self).__name__} has no losses(batch); expected one that returns a value per "
            f"example: what training_step computed, with reduction='none'"
        )

    def clean_dataloader(self) -> Any:
        """A loader of checked examples, batches as those of train_dataloader: for you to write."""
        raise NotImplementedError(
            f"{type(self).__name__} has no clean_dataloader(); expected one that returns a loader "
            f"of checked examples"
        )

    def weigh(self, batch: Any) -> Step:
        """Weigh a train batch against the next clean batch; for a training_step of your own."""
        numbers = None
        if isinstance(batch, NumberedItem):
            batch, numbers = batch
        step = self._reweighter()(batch, self._next_clean())
        if numbers is not None and self.ledger is not None:
            self.ledger.record(
                numbers, step.weights, step.scores, step.losses, shared_by=step.shared_by
            )
        return step

    def weigh_window(self, batches: Sequence[Any]) -> Window:
        """Weigh micro-batches as one batch, against as many clean batches, or all if there are fewer."""
        items = [b.item if isinstance(b, NumberedItem) else b for b in batches]
        clean = [self._next_clean() for _ in range(self._clean_count(len(items)))]
        window = self._reweighter().window(items, clean)
        for batch, *values in zip(
            batches, window.weights, window.scores, window.losses, strict=True
        ):
            if isinstance(batch, NumberedItem) and self.ledger is not None:
                self.ledger.record(batch.number, *values, shared_by=window.step.shared_by)
        return window

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The weighted loss of the batch; under accumulation of the window, at its last batch."""
        trainer = self.trainer  # type: ignore[attr-defined]
        pieces = trainer.accumulate_grad_batches
        if pieces == 1:
            step = self.weigh(batch)
            return self._logged(step, step.loss)
        self._waiting = [*(self._waiting if batch_idx % pieces else ()), batch]
        if (batch_idx + 1) % pieces and not trainer.is_last_batch:
            return torch.zeros((), device=self.device, requires_grad=True)  # type: ignore[attr-defined]
        batches, self._waiting = self._waiting, []
        window = self.weigh_window(batches)
        return self._logged(window.step, window.loss * pieces)  # which Lightning divides by

    def _logged(self, step: Step, loss: Tensor) -> Tensor:
        values = {name: getattr(step, name) for name in LOGGED}
        self.log_dict(values, batch_size=len(step.weights))  # type: ignore[attr-defined]
        return loss

    def on_train_start(self) -> None:
        """Make the ledger if the data set is `Numbered`; continue from a checkpoint if there is one."""
        super().on_train_start()  # type: ignore[misc]
        loader = self.trainer.train_dataloader  # type: ignore[attr-defined]
        data = getattr(loader, "dataset", None)
        if self.ledger is None and isinstance(data, Numbered):
            self.ledger = Ledger(len(data))
        saved, self._saved = self._saved, None
        if saved is None:
            return
        self._reweighter().load_state_dict(saved["reweighter"])
        # The checkpoint holds the sum over the processes' ledgers. Only one process continues from
        # it, so that the sum stays the same.
        if self.ledger is not None and saved["ledger"] is not None and _rank() == 0:
            self.ledger.load_state_dict(saved["ledger"])
        self._skip(int(saved["clean_step"]))

    def whole_ledger(self) -> Ledger | None:
        """The joined ledger of all processes; under DDP every process must call this."""
        if self.ledger is None or not (dist.is_available() and dist.is_initialized()):
            return self.ledger
        states: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(states, self.ledger.state_dict())
        return self.ledger.joined(states)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save the reweighter's state together with the model's."""
        super().on_save_checkpoint(checkpoint)  # type: ignore[misc]
        ledger = self.whole_ledger()
        checkpoint[STATE] = {
            "reweighter": {} if self._weigh is None else self._weigh.state_dict(),
            "ledger": None if ledger is None else ledger.state_dict(),
            "clean_step": self._clean_step,
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep the saved state until training starts."""
        super().on_load_checkpoint(checkpoint)  # type: ignore[misc]
        self._saved = checkpoint.get(STATE)

    def _reweighter(self) -> Reweighter:
        if not isinstance(self, LightningModule):
            raise SettingError(
                f"{type(self).__name__} is no LightningModule; expected "
                f"`class Net(ReweighMixin, LightningModule)`"
            )
        weigh: Reweighter | None = self._weigh
        if weigh is None or weigh.model is not self:
            # Under DDP, Lightning calls this module inside a wrapper; its processes share the batch.
            options = {"group": group_of(_wrapped(self)), **self.reweigh_options}
            weigh = self._weigh = Reweighter(self, _own_losses, **options)
        return weigh

    def _clean_count(self, batches: int) -> int:
        """Clean batches for so many train batches: no more than there are."""
        if self._clean is None:
            self._clean_loader = self.clean_dataloader()
            self._clean = _endless(self._clean_loader)
        known = hasattr(self._clean_loader, "__len__")
        return max(1, min(batches, len(self._clean_loader))) if known else batches

    def _next_clean(self) -> Any:
        self._clean_count(1)
        assert self._clean is not None
        batch = next(self._clean)
        self._clean_step += 1
        if isinstance(batch, NumberedItem):
            batch = batch.item
        device: torch.device = self.device  # type: ignore[attr-defined]
        return self.transfer_batch_to_device(batch, device, 0)  # type: ignore[attr-defined]

    def _skip(self, steps: int) -> None:
        """Skip the clean batches used before the checkpoint; a shuffled loader gives another order."""
        self._clean = None
        self._clean_count(1)
        loader = self._clean_loader
        assert self._clean is not None
        for _ in range(steps % max(1, len(loader)) if hasattr(loader, "__len__") else 0):
            next(self._clean)
        self._clean_step = steps

    def __getstate__(self) -> dict[str, Any]:
        """Without the reweighter and the clean batches: a copy makes its own."""
        state: Any = super().__getstate__()
        own: dict[str, Any] = {
            "_weigh": None,
            "_clean": None,
            "_clean_loader": None,
            "_waiting": [],
        }
        return {**state, **own}


def _own_losses(model: nn.Module, batch: Any) -> Tensor:
    losses: Tensor = model.losses(batch)  # type: ignore[operator]
    return losses


def _wrapped(module: LightningModule) -> nn.Module:
    """The module as its trainer has wrapped it; the module itself if it has no trainer."""
    trainer = getattr(module, "_trainer", None)
    wrapped: nn.Module | None = None if trainer is None else trainer.model
    return module if wrapped is None else wrapped


def _endless(loader: Any) -> Iterator[Any]:
    while True:
        empty = True
        for batch in loader:
            empty = False
            yield batch
        if empty:
            raise SettingError("clean_dataloader() gave no batch; expected checked examples")


def _rank() -> int:
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
