"""TRL's trainers, guided by a clean set: supervised fine-tuning, reward models, DPO.

    ReweighSFTTrainer(model=..., args=SFTConfig(...), train_dataset=..., clean_dataset=...)

Data sets are prepared as TRL prepares them, the clean one too. The arguments besides TRL's own are those
of `TrainerMixin` (transformers.py): accumulation windows, the ledger, logs and checkpoints work the same.
In reward models and DPO a pair has one loss, one score and one weight (pair_loss.py). Evaluation is TRL's.
"""

from typing import Any

import torch
from torch import nn

from ..core import Loss
from ..errors import SettingError
from ..optional import missing_framework
from .pair_loss import KINDS, PreferenceLoss, RewardPairLoss, completion_logps

try:
    from trl import DPOTrainer, RewardTrainer, SFTTrainer
    from trl.trainer.utils import use_adapter
except ImportError as error:
    raise missing_framework("trl", error) from error

from .transformers import TrainerMixin

__all__ = ["ReweighDPOTrainer", "ReweighRewardTrainer", "ReweighSFTTrainer"]


class _Written(TrainerMixin):
    """With the weights as columns of the train set."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._given_rows = options.get("train_dataset")
        self._formatting = options.get("formatting_func")
        super().__init__(*args, **options)

    def weighed_dataset(self) -> Any:
        """The train set as it was given, with columns `mean_weight` and `zero_share` from the ledger.

        Rows that were not seen have NaN.
        """
        rows: Any = self._given_rows
        if self.ledger is None or not hasattr(rows, "add_column"):
            raise SettingError(
                f"a train set of type {type(rows).__name__}; expected a datasets.Dataset, passed by name, "
                f"to which columns can be added"
            )
        table = self.ledger.table()
        if len(table["mean_weight"]) != len(rows):
            raise SettingError(
                f"{len(rows)} rows that TRL has made into {len(table['mean_weight'])}; expected as many: "
                f"packing and dropped rows leave no weight per row"
            )
        for name in ("mean_weight", "zero_share"):
            rows = rows.add_column(name, table[name].tolist())
        return rows


class ReweighSFTTrainer(_Written, SFTTrainer):  # type: ignore[misc]
    """TRL's SFTTrainer; `level` says whether sequences, turns or tokens are weighed."""

    def _prepared_clean(self, dataset: Any) -> Any:
        if self.args.loss_type != "nll" or self.aux_loss_enabled:
            raise SettingError(
                f"loss_type={self.args.loss_type!r}, auxiliary losses {self.aux_loss_enabled}; expected "
                f"loss_type='nll' without them: others are no sum over examples"
            )
        if self._skip_prepare_dataset:
            return dataset
        return self._prepare_dataset(
            dataset, self.processing_class, self.args, False, self._formatting, "clean"
        )


class ReweighRewardTrainer(_Written, RewardTrainer):  # type: ignore[misc]
    """TRL's RewardTrainer; pairs are weighed as pairs."""

    def _prepared_clean(self, dataset: Any) -> Any:
        return self._prepare_dataset(dataset, self.processing_class, self.args, "clean")

    def _default_loss(self, model: nn.Module) -> Loss:
        return RewardPairLoss(center=self.args.center_rewards_coefficient or 0.0)


class ReweighDPOTrainer(_Written, DPOTrainer):  # type: ignore[misc]
    """TRL's DPOTrainer; pairs are weighed as pairs. `loss_type` is "sigmoid", "robust" or "hinge"."""

    def _prepared_clean(self, dataset: Any) -> Any:
        plain = self.f_divergence_type == "reverse_kl" and self.ld_alpha is None
        if len(self.loss_types) != 1 or self.loss_types[0] not in KINDS or not plain:
            raise SettingError(
                f"loss_type={self.loss_types}, f_divergence_type={self.f_divergence_type!r}, ld_alpha="
                f"{self.ld_alpha}; expected one of {', '.join(KINDS)} with TRL's defaults, or loss= of your own"
            )
        return self._prepare_dataset(dataset, self.processing_class, self.args, "clean")

    def _default_loss(self, model: nn.Module) -> Loss:
        kind = self.loss_types[0]
        smoothing = self.label_smoothing if kind == "robust" else 0.0  # as TRL has it
        return PreferenceLoss(beta=self.beta, kind=kind, smoothing=smoothing)

    def _completed(self, batch: dict[str, Any]) -> dict[str, Any]:
        """With log p_ref, which does not depend on the model and is computed once."""
        if "ref_chosen_logps" in batch:
            given = [batch.pop(f"ref_{side}_logps") for side in ("chosen", "rejected")]
            return {**batch, "reference_logps": torch.cat(given)}
        with torch.no_grad():
            if self.ref_model is not None:
                return {**batch, "reference_logps": completion_logps(self.ref_model, batch)}
            adapted = self.accelerator.unwrap_model(self.model)
            # TRL's own: the copy of an adapter that goes on, or else the model without adapters.
            name = "ref" if "ref" in adapted.peft_config else None
            with use_adapter(adapted, adapter_name=name):
                return {**batch, "reference_logps": completion_logps(adapted, batch)}
