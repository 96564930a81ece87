"""One loss per sequence, turn or token, for the models of transformers.

    classification, regression   the loss of the label
    token labels [n, T]          mean over the labels of the sequence that are not -100

    level       losses                                             a weight is given to
    sequence    [n], the mean over the tokens of each sequence     an example
    turn        [n, k], the mean over each run of labels           an answer of a chat
    token       [n, k]                                             a token

For causal language models, position t is compared with label t + 1, as in transformers itself.
transformers averages over all tokens of a batch. Here the mean is per sequence, so before weighing
every sequence counts the same, whatever its length. A sequence without labels has loss 0. What has
no label weighs nothing.

Rows that hold several examples (packing, padding-free batches) have one loss per example: n is then the
number of examples, in the order of the rows (token_parts.py).

The clean side is the mean over all sequences, turns or tokens that have labels. A clean batch in which
nothing has a label is refused.
"""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from ..core import Batch, Loss
from ..errors import BatchError, LossShapeError, unknown
from ..optional import missing_framework
from .token_parts import IGNORED, LEVELS, parts_of, segment_starts

try:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
except ImportError as error:
    raise missing_framework("transformers", error) from error


def sequence_loss(model: nn.Module, *, level: str = "sequence", packed: bool | None = None) -> Loss:
    """`loss(model, batch) -> Tensor[n]` or `[n, k]` for batches that are dicts with `labels`.

    level:  what gets a weight of its own: "sequence", "turn" or "token".
    packed: whether rows hold several examples. None: where `position_ids` restart, or `seq_idx` or
            `segment_ids` say so. True: one of them must be there. False: never.

    Whether labels are shifted is read from the model (inside PEFT's wrapper, if any) once, here.
    """
    if level not in LEVELS:
        raise unknown("level", level, LEVELS)
    return SequenceLoss(level, packed, shifted=is_causal(model))


class SequenceLoss:
    """What `sequence_loss` returns.

    counts_examples: the number of losses is the number of examples, whatever the batch looks like.
    """

    counts_examples = True

    def __init__(self, level: str, packed: bool | None, *, shifted: bool) -> None:
        self.level, self.packed, self.shifted = level, packed, shifted

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        """The losses of a train batch, [n] or [n, k]."""
        return self._losses(model, batch)[0]

    def clean(self, model: nn.Module, batch: Batch) -> Tensor:
        """The losses of a clean batch, one for each part that has a label: [number of parts]."""
        losses, counts = self._losses(model, batch)
        if counts is None:
            return losses
        some = counts > 0
        if len(losses) and not some.any():
            raise BatchError(
                f"no token of the clean batch has a label: all {tuple(batch['labels'].shape)} of them are "
                f"{IGNORED}; expected checked examples with completion tokens: look at the template, the "
                f"mask of prompts and the cut at the maximal length"
            )
        return losses if losses.ndim == 1 else losses[some]

    def _losses(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """The losses, and the number of labels behind each; None where there is one each."""
        inputs = dict(batch)
        labels = inputs.pop("labels", None)
        if labels is None:
            raise LossShapeError(
                f"the batch has {sorted(inputs)}; expected 'labels' among them: "
                f"check the data collator, or pass ReweighTrainer(loss=...) a loss of your own"
            )
        required = self.packed is True
        starts = None
        if self.packed is not False and labels.ndim == 2 and not labels.is_floating_point():
            starts = segment_starts(inputs, labels.shape, required=required)
        inputs.pop("segment_ids", None)
        if starts is not None and hasattr(getattr(bare(model), "config", None), "use_cache"):
            inputs.setdefault("use_cache", False)  # with one, transformers lets packed examples mix
        if encodes_and_decodes(model):
            inputs["labels"] = labels  # the model makes the decoder's inputs from them
        logits = logits_of(model(**inputs))
        if logits.ndim == 2:
            if self.level != "sequence":
                raise LossShapeError(
                    f"level={self.level!r} with logits {tuple(logits.shape)}; expected a model with "
                    f"logits for every token: use level='sequence'"
                )
            return _one_label(_wide(logits), labels), None
        if starts is None and self.level == "sequence":
            return _by_sequence(logits, labels, shifted=self.shifted)
        values = token_losses(logits, labels, shifted=self.shifted)
        parts = parts_of(labels, starts, level=self.level, shifted=self.shifted)
        losses, counts = parts.means(values)
        return (losses, counts) if parts.width > 1 else (losses[:, 0], counts[:, 0])


def losses_of(logits: Tensor, labels: Tensor, *, shifted: bool = False) -> Tensor:
    """The loss [n] of each sequence, from logits [n, C] or [n, T, C]."""
    if logits.ndim == 2:
        return _one_label(_wide(logits), labels)
    return _by_sequence(logits, labels, shifted=shifted)[0]


def _by_sequence(logits: Tensor, labels: Tensor, *, shifted: bool) -> tuple[Tensor, Tensor]:
    """The mean over each row, and how many labels it has."""
    values = token_losses(logits, labels, shifted=shifted)
    counts = (labels[:, 1 if shifted else 0 :] != IGNORED).sum(1)
    return values.sum(1) / counts.clamp(min=1), counts


def token_losses(logits: Tensor, labels: Tensor, *, shifted: bool) -> Tensor:
    """[n, T], from logits [n, T, C]: the loss of each label, at its own place; 0 where there is none.

    shifted: label t is predicted at t - 1. Then the first has no loss.
    """
    if labels.shape != logits.shape[:2]:
        raise LossShapeError(
            f"logits {tuple(logits.shape)} and labels {tuple(labels.shape)}; expected labels "
            f"{tuple(logits.shape[:2])}, one a token: or pass ReweighTrainer(loss=...) your own"
        )
    if shifted:
        logits, labels = logits[:, :-1], labels[:, 1:]
    values = functional.cross_entropy(
        _wide(logits).transpose(1, 2), labels, ignore_index=IGNORED, reduction="none"
    )
    return functional.pad(values, (1, 0)) if shifted else values


def _wide(logits: Tensor) -> Tensor:
    """In float32 or wider."""
    return logits if logits.element_size() >= 4 else logits.float()


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
