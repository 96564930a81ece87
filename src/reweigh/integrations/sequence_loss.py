"""One loss per sequence, for the models of transformers.

    classification, regression   the loss of the label
    token labels [n, T]          mean over the labels of the sequence that are not -100

For causal language models, position t is compared with label t + 1, as in transformers itself.
transformers averages over all tokens of a batch. Here the mean is per sequence, so before weighing
every sequence counts the same, whatever its length. A sequence without labels has loss 0.
"""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from ..core import Batch, Loss
from ..errors import LossShapeError
from ..optional import missing_framework

try:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
except ImportError as error:
    raise missing_framework("transformers", error) from error

IGNORED = -100


def sequence_loss(model: nn.Module) -> Loss:
    """`loss(model, batch) -> Tensor[n]` for batches that are dicts with `labels`.

    Whether labels are shifted is read from the model (inside PEFT's wrapper, if any) once, here.
    """
    shifted = is_causal(model)

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        inputs = dict(batch)
        labels = inputs.pop("labels", None)
        if labels is None:
            raise LossShapeError(
                f"the batch has {sorted(inputs)}; expected 'labels' among them: "
                f"check the data collator, or pass ReweighTrainer(loss=...) a loss of your own"
            )
        if encodes_and_decodes(model):
            inputs["labels"] = labels  # the model makes the decoder's inputs from them
        return losses_of(logits_of(model(**inputs)), labels, shifted=shifted)

    return loss


def losses_of(logits: Tensor, labels: Tensor, *, shifted: bool = False) -> Tensor:
    """The loss [n] of each sequence, from logits [n, C] or [n, T, C]."""
    if logits.ndim == 2:
        return _one_label(logits.float(), labels)
    if labels.shape != logits.shape[:2]:
        raise LossShapeError(
            f"logits {tuple(logits.shape)} and labels {tuple(labels.shape)}; expected labels "
            f"{tuple(logits.shape[:2])}, one a token: or pass ReweighTrainer(loss=...) your own"
        )
    if shifted:
        logits, labels = logits[:, :-1], labels[:, 1:]
    counted = labels != IGNORED
    values = functional.cross_entropy(
        logits.float().transpose(1, 2), labels, ignore_index=IGNORED, reduction="none"
    )
    return values.sum(1) / counted.sum(1).clamp(min=1)


def _one_label(logits: Tensor, labels: Tensor) -> Tensor:
    if labels.is_floating_point() and logits.shape[1] == 1:
        return (logits[:, 0] - labels.view(-1).float()).square()
    if labels.is_floating_point():  # several labels per example
        values = functional.binary_cross_entropy_with_logits(
            logits, labels.float(), reduction="none"
        )
        return values.mean(1)
    return functional.cross_entropy(logits, labels.view(-1), reduction="none")


def logits_of(outputs: Any) -> Tensor:
    """The logits in a model's outputs, which may be an object or a tuple."""
    if isinstance(outputs, Tensor):
        return outputs
    logits = outputs.get("logits") if hasattr(outputs, "get") else outputs[0]
    if not isinstance(logits, Tensor):
        raise LossShapeError(
            f"the model returned {type(outputs).__name__} without logits; expected a model with a "
            f"head, or ReweighTrainer(loss=...) with a loss of your own"
        )
    return logits


def bare(model: nn.Module) -> nn.Module:
    """The model inside PEFT's wrapper."""
    inside = getattr(model, "get_base_model", None)
    return inside() if callable(inside) else model


def is_causal(model: nn.Module) -> bool:
    """Whether the model predicts the next token."""
    names = {
        part
        for value in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()
        for part in ([value] if isinstance(value, str) else value)
    }
    return type(bare(model)).__name__ in names


def encodes_and_decodes(model: nn.Module) -> bool:
    """Whether the model makes the decoder's inputs from the labels."""
    return bool(getattr(getattr(bare(model), "config", None), "is_encoder_decoder", False))
