"""One loss per preference pair: the pair gets one weight, not its two texts.

    reward    -log sigmoid(r_chosen - r_rejected - margin) + c (r_chosen + r_rejected)^2
    dpo       of  x = beta ( log p/p_ref (chosen) - log p/p_ref (rejected) ),   e the smoothing:
              sigmoid    -(1 - e) log sigmoid(x) - e log sigmoid(-x)              e > 0: conservative DPO
              robust     ( -(1 - e) log sigmoid(x) + e log sigmoid(-x) ) / (1 - 2e)
              hinge      max(0, 1 - x)

A batch of n pairs has 2n rows: the chosen texts, then the rejected ones, as TRL's collators give them.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, logsigmoid

from ..core import Batch
from ..errors import BatchError, unknown


def _sigmoid(x: Tensor, e: float) -> Tensor:
    return -(1 - e) * logsigmoid(x) - e * logsigmoid(-x)


def _robust(x: Tensor, e: float) -> Tensor:
    return (-(1 - e) * logsigmoid(x) + e * logsigmoid(-x)) / (1 - 2 * e)


def _hinge(x: Tensor, e: float) -> Tensor:
    return torch.relu(1 - x)


KINDS: dict[str, Callable[[Tensor, float], Tensor]] = {
    "sigmoid": _sigmoid,
    "robust": _robust,
    "hinge": _hinge,
}


class RewardPairLoss:
    """`loss(model, batch) -> Tensor[n]` for a reward model on n pairs. center: c above."""

    counts_examples = True

    def __init__(self, *, center: float = 0.0) -> None:
        self.center = center

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        """The loss of each pair."""
        inputs = dict(batch)
        margin: Tensor | float = inputs.pop("margin", 0.0)
        rewards: Tensor = model(**{**inputs, "use_cache": False}).logits
        chosen, rejected = rewards.reshape(_even(len(rewards))).chunk(2)
        return -logsigmoid(chosen - rejected - margin) + self.center * (chosen + rejected) ** 2


class PreferenceLoss:
    """`loss(model, batch) -> Tensor[n]` for direct preference optimisation on n pairs.

    The batch has `completion_mask` [2n, T], and `reference_logps` [2n]: log p_ref of each completion.
    """

    counts_examples = True

    def __init__(self, *, beta: float = 0.1, kind: str = "sigmoid", smoothing: float = 0.0) -> None:
        if kind not in KINDS:
            raise unknown("kind of preference loss", kind, KINDS)
        self.beta, self.kind, self.smoothing = beta, kind, smoothing

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        """The loss of each pair."""
        return KINDS[self.kind](self.beta * margins(model, batch), self.smoothing)


def margins(model: nn.Module, batch: Batch) -> Tensor:
    """[n]: how much more the model has raised the chosen text than the rejected one, in log p."""
    reference: Tensor = batch["reference_logps"]
    chosen, rejected = (completion_logps(model, batch) - reference).chunk(2)
    return chosen - rejected


def completion_logps(model: nn.Module, batch: Batch) -> Tensor:
    """[2n]: log p of every completion, summed over its tokens."""
    words: Tensor = batch["input_ids"]
    mask: Tensor = batch["completion_mask"]
    _even(len(words))
    inputs = {key: batch[key] for key in ("input_ids", "attention_mask") if key in batch}
    logits: Tensor = model(**inputs, use_cache=False).logits
    logits = logits if logits.element_size() >= 4 else logits.float()
    values = cross_entropy(logits[:, :-1].transpose(1, 2), words[:, 1:], reduction="none")
    return -(values * mask[:, 1:]).sum(1)


def _even(rows: int) -> int:
    if rows % 2:
        raise BatchError(
            f"{rows} rows of pairs; expected the chosen texts and as many rejected ones"
        )
    return rows
