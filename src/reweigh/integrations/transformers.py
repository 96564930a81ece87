"""A Trainer that weighs every train batch against a clean batch.

    ReweighTrainer(model=..., args=..., train_dataset=..., clean_dataset=...)

Everything else is transformers' own: arguments, collators, evaluation, bf16, adapters, checkpoints.
Under gradient accumulation all micro-batches between two optimizer steps are weighed as one batch, in
the memory of one: the trainer keeps them until the last one is there. If only adapters are trainable, scores are computed from them alone, which is
cheap. A checkpoint also holds the safeguard's state, the ledger and the position in the clean set, in
one file per process; `train(resume_from_checkpoint=...)` continues from them.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..audit import Ledger
from ..core import Loss, Reweighter, Step, inside
from ..errors import BatchError, SettingError, unknown
from ..optional import missing_framework
from .clean_draws import CleanDraws
from .numbered import NUMBER, NumberedCollator, NumberedDicts
from .sequence_loss import sequence_loss
from .token_parts import LEVELS

try:
    from transformers import Trainer, TrainerCallback
    from transformers.trainer_utils import get_last_checkpoint
except ImportError as error:
    raise missing_framework("transformers", error) from error

LOGGED = ("clean_loss", "effective_sample_size", "zero_share")


_Base: Any = Trainer if TYPE_CHECKING else object


class TrainerMixin(_Base):  # type: ignore[misc]
    """What makes a Trainer of transformers weigh its batches; mixed in before the Trainer.

    clean_dataset:    checked examples, of the same form as `train_dataset`.
    clean_batch_size: clean examples per train batch; by default as many as train examples, all if there
                      are fewer. Under gradient accumulation a step has as many such clean batches as
                      micro-batches, each in memory by itself.
    loss:             `loss(model, batch) -> Tensor[n]` for batches that are dicts; by default that
                      of sequence_loss.py: classification, tokens, causal language models.
    level:            what gets a weight of its own: "sequence", "turn" (a run of labels, such as an answer
                      of a chat) or "token"; see sequence_loss.py. Not with `loss`.
    reweigh:          options of `reweigh.Reweighter`, such as {"params": "score"}.

    `ledger` holds what each train example counted, if the train set has a length. Logged with the
    loss: clean_loss, effective_sample_size, zero_share.
    """

    train_dataset: Any
    data_collator: Any
    args: Any

    def __init__(
        self,
        *args: Any,
        clean_dataset: Any,
        clean_batch_size: int | None = None,
        loss: Loss | None = None,
        level: str = "sequence",
        reweigh: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        if self.label_smoother is not None or self.compute_loss_func is not None:
            raise SettingError(
                "label_smoothing_factor and compute_loss_func give one loss for the batch; expected "
                "one per example: pass loss=, such as one that smooths labels"
            )
        # The loss of a step is that of the whole window: transformers must neither divide it by the
        # accumulation steps nor normalise it by a count of items over them.
        self.model_accepts_loss_kwargs = False
        self.loss_is_scaled_for_ga = True
        self._window_size, self._waiting = 1, list[dict[str, Any]]()
        self.ledger: Ledger | None = None
        if self.train_dataset is not None and hasattr(self.train_dataset, "__len__"):
            self.ledger = Ledger(len(self.train_dataset))
            self.train_dataset = NumberedDicts(self.train_dataset)
        self.data_collator = NumberedCollator(self.data_collator)
        self.clean_dataset = self._prepared_clean(clean_dataset)
        self._clean_size = clean_batch_size or self.args.per_device_train_batch_size
        self._clean_draws = CleanDraws(
            len(self.clean_dataset),
            self._clean_size * self.args.gradient_accumulation_steps,
            seed=self.args.seed + 1_000 * self.args.process_index,
        )
        if loss is not None and level != "sequence":
            raise SettingError(f"level={level!r} with loss=; expected one of them")
        if level not in LEVELS:
            raise unknown("level", level, LEVELS)
        self._loss, self._level, self._reweigh_options = loss, level, dict(reweigh or {})
        self._weigh: Reweighter | None = None
        self._saved: dict[str, Any] = {}
        self._seen: dict[str, list[Tensor]] = {name: [] for name in LOGGED}
        self.add_callback(_Keep(self))

    def _set_signature_columns_if_needed(self) -> None:
        """Keep the example's number, which is not an argument of the model and would be dropped."""
        super()._set_signature_columns_if_needed()
        if NUMBER not in self._signature_columns:
            self._signature_columns.append(NUMBER)

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **options: Any) -> Any:
        """Train, as in transformers. Resuming restores the ledger and the safeguard too."""
        folder = resume_from_checkpoint or None
        if folder is True:
            folder = get_last_checkpoint(self.args.output_dir)
        if folder is not None:
            self._restore(Path(folder))
        return super().train(resume_from_checkpoint, *args, **options)

    def compute_loss(
        self, model: nn.Module, inputs: Any, return_outputs: bool = False, **options: Any
    ) -> Any:
        """In training, the weighted loss of the window, at its last batch; in evaluation, transformers'."""
        inputs = dict(inputs)
        if return_outputs or not (model.training and torch.is_grad_enabled()):
            inputs.pop(NUMBER, None)
            return super().compute_loss(model, inputs, return_outputs, **options)
        self._waiting.append(inputs)
        if len(self._waiting) < self._window_size:  # a loss that trains nothing
            return torch.zeros((), device=self.args.device, requires_grad=True)
        batches, self._waiting = self._waiting, []
        numbers = [batch.pop(NUMBER, None) for batch in batches]
        batches = [self._completed(batch) for batch in batches]
        clean = [self._completed(self._prepare_inputs(batch)) for batch in self._next_clean()]
        weigh = self._reweighter(model)
        if len(batches) == len(clean) == 1:
            step = weigh(batches[0], clean[0])
            self._keep(step, [(numbers[0], step.weights, step.scores, step.losses)])
            return step.loss
        window = weigh.window(batches, clean)
        parts = zip(numbers, window.weights, window.scores, window.losses, strict=True)
        self._keep(window.step, parts)
        return window.loss

    def _default_loss(self, model: nn.Module) -> Loss:
        """The loss per example, if none was given."""
        return sequence_loss(model, level=self._level)

    def _prepared_clean(self, dataset: Any) -> Any:
        """The clean set as the train set was prepared."""
        return dataset

    def _completed(self, batch: dict[str, Any]) -> dict[str, Any]:
        """A batch with what the loss needs besides the model."""
        return batch

    def get_batch_samples(self, *args: Any, **options: Any) -> Any:
        """The batches up to the next optimizer step, as transformers collects them: the window."""
        found = super().get_batch_samples(*args, **options)
        self._window_size, self._waiting = len(found[0]), []
        return found

    def _next_clean(self) -> list[dict[str, Any]]:
        rows = next(self._clean_draws).tolist()
        collate = self._get_collator_with_removed_columns(self.data_collator, description="clean")
        return [
            dict(
                collate([self.clean_dataset[row] for row in rows[start : start + self._clean_size]])
            )
            for start in range(0, len(rows), self._clean_size)
        ]

    def _reweighter(self, model: nn.Module) -> Reweighter:
        if self._weigh is None or self._weigh.model is not model:
            loss = self._loss or self._default_loss(inside(model))
            self._weigh = Reweighter(model, loss, **self._reweigh_options)
            self._weigh.load_state_dict(self._saved)
        return self._weigh

    def _keep(self, step: Step, batches: Iterable[tuple[Any, Tensor, Tensor, Tensor]]) -> None:
        """For the ledger, each micro-batch: numbers, weights, scores, losses; for the log, the step."""
        for numbers, *values in batches:
            if self.ledger is None or numbers is None:
                continue
            if len(numbers) > len(values[0]):
                raise BatchError(
                    f"{len(values[0])} losses for a batch of {len(numbers)} train examples; expected one "
                    f"each: if the collator packs examples into one row, it must also give position_ids "
                    f"that restart with each, or seq_idx"
                )
            # Rows that were packed before they became train examples are told apart by nobody.
            if len(numbers) == len(values[0]):
                self.ledger.record(numbers, *values, shared_by=step.shared_by)
        for name in LOGGED:
            self._seen[name].append(getattr(step, name).detach())

    def log(self, logs: dict[str, float], *args: Any, **options: Any) -> None:
        """Log, with the means of our values since the last log."""
        for name, values in self._seen.items():
            if values and "loss" in logs:
                logs[name] = float(torch.stack(values).mean())
                values.clear()
        super().log(logs, *args, **options)

    def _file(self, folder: Path, process: int) -> Path:
        return folder / f"reweigh-{process}.pt"

    def _store(self, folder: Path) -> None:
        state: dict[str, Any] = {"clean": self._clean_draws.state_dict()}
        if self._weigh is not None:
            state["reweighter"] = self._weigh.state_dict()
        if self.ledger is not None:
            state["ledger"] = self.ledger.state_dict()
        if folder.is_dir():
            torch.save(state, self._file(folder, self.args.process_index))

    def _restore(self, folder: Path) -> None:
        path = self._file(folder, self.args.process_index)
        if not path.exists():
            raise SettingError(
                f"{path} is not there; expected a checkpoint that ReweighTrainer wrote with as many "
                f"processes: start anew, or resume with transformers' own Trainer"
            )
        state = torch.load(path, map_location=self.args.device, weights_only=True)
        self._clean_draws.load_state_dict(state["clean"])
        self._saved, self._weigh = state.get("reweighter", {}), None
        if self.ledger is not None and "ledger" in state:
            self.ledger.load_state_dict(state["ledger"])


class ReweighTrainer(TrainerMixin, Trainer):  # type: ignore[misc]
    """transformers' Trainer, guided by a clean set; the arguments besides its own are those of `TrainerMixin`."""


class _Keep(TrainerCallback):  # type: ignore[misc]
    """Adds the reweighter's state to every checkpoint, after transformers has written its own."""

    def __init__(self, trainer: TrainerMixin) -> None:
        self.trainer = trainer

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write our state into the checkpoint's folder."""
        self.trainer._store(Path(args.output_dir) / f"checkpoint-{state.global_step}")
