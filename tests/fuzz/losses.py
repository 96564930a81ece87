"""The losses of random models: from `per_example`, and written by hand, as users do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reweigh import per_example

CLASSES = 3


def labels(n: int) -> Tensor:
    return torch.randint(CLASSES, (n,))


def numbers(n: int) -> Tensor:
    return torch.randn(n, CLASSES)


def shares(n: int) -> Tensor:
    return torch.rand(n, CLASSES).softmax(-1)


def several_labels(n: int) -> Tensor:
    return (torch.rand(n, CLASSES) < 0.5).to(torch.get_default_dtype())


def signs(n: int) -> Tensor:
    return torch.rand(n, CLASSES).sub(0.5).sign()


def token_labels(n: int) -> Tensor:
    return torch.randint(-1, CLASSES, (n, 2))  # -1 is ignored


@dataclass(frozen=True)
class Criterion:
    """make: the loss of a model and a batch. outputs: of the model, per example.

    couples, opaque: as of a layer.
    """

    make: Callable[[], Any]
    targets: Callable[[int], Tensor] = labels
    outputs: int = CLASSES
    couples: bool = False
    opaque: bool = False


def parts_of(batch: Any) -> tuple[Tensor, Tensor]:
    """Inputs and targets, whatever the batch is made of (grammar.batch_of)."""
    if not isinstance(batch, Mapping):
        return tuple(batch)
    x = batch["in"]["x"] if "in" in batch else batch["x"]
    y = batch["y"] if "y" in batch else batch.pop("target")
    return torch.stack(x) if isinstance(x, list) else x, y


def written(judge: Callable[[Tensor, Tensor], Tensor]) -> Callable[[], Any]:
    """A loss written by hand: model and batch to losses [n]."""

    def make() -> Any:
        def loss(model: nn.Module, batch: Any) -> Tensor:
            x, y = parts_of(batch)
            return judge(model(x), y)

        return loss

    return make


def stock(criterion: Callable[..., Tensor], **options: Any) -> Callable[[], Any]:
    """A loss by `per_example`."""

    def make() -> Any:
        return per_example(criterion, **options)

    return make


def each(values: Tensor) -> Tensor:
    return values.flatten(1).mean(1)


def token_cross_entropy(out: Tensor, y: Tensor) -> Tensor:
    parts = F.cross_entropy(out.view(len(y), CLASSES, 2), y, ignore_index=-1, reduction="none")
    return parts.sum(1) / (y >= 0).sum(1).clamp(min=1)


def flat_token_cross_entropy(out: Tensor, y: Tensor) -> Tensor:
    """As language models do it: all tokens of all examples in one list."""
    logits = out.view(-1, CLASSES)
    return (
        F.cross_entropy(logits, y.flatten(), ignore_index=-1, reduction="none").view(y.shape).sum(1)
    )


def per_token(out: Tensor, y: Tensor) -> Tensor:
    """[n, 2]: a part of the loss for each token."""
    return F.cross_entropy(out.view(len(y), CLASSES, 2), y, ignore_index=-1, reduction="none")


def two_tasks(out: Tensor, y: Tensor) -> Tensor:
    """[n, 2]: two tasks on the same outputs."""
    return torch.stack([(out - y).square().mean(1), (out - y.flip(1)).abs().sum(1)], 1)


def ctc(out: Tensor, y: Tensor) -> Tensor:
    steps = out.view(len(y), 6, CLASSES).log_softmax(-1).transpose(0, 1)
    lengths = torch.full((len(y),), 6)
    return F.ctc_loss(
        steps, y.clamp(min=0)[:, :1] % 2 + 1, lengths, torch.ones_like(lengths), reduction="none"
    )


def focal(out: Tensor, y: Tensor) -> Tensor:
    p = out.log_softmax(-1).gather(1, y[:, None]).squeeze(1)
    return -((1 - p.exp()) ** 2) * p


def generalised(out: Tensor, y: Tensor) -> Tensor:
    p = out.softmax(-1)[torch.arange(len(y)), y]
    return (1 - p**0.7) / 0.7


def hinge(out: Tensor, y: Tensor) -> Tensor:
    right = out.gather(1, y[:, None])
    margins = (1 - right + out).clamp(min=0)
    return margins.masked_fill(F.one_hot(y, CLASSES).bool(), 0.0).amax(1)


def weighted_by_class(out: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(out, y, weight=out.new_tensor([0.5, 1.0, 2.0]), reduction="none")


def gaussian(out: Tensor, y: Tensor) -> Tensor:
    return each(F.gaussian_nll_loss(out, y, F.softplus(out.flip(-1)) + 0.1, reduction="none"))


def bootstrapped(out: Tensor, y: Tensor) -> Tensor:
    soft = 0.8 * F.one_hot(y, CLASSES) + 0.2 * out.detach().softmax(-1)
    return -(soft * out.log_softmax(-1)).sum(-1)


def contrastive(out: Tensor, y: Tensor) -> Tensor:
    z = F.normalize(out, dim=-1)
    return F.cross_entropy(z @ z.t() * 3, torch.arange(len(y)).flip(0), reduction="none")


def balanced(out: Tensor, y: Tensor) -> Tensor:
    own = 1.0 + y
    return F.cross_entropy(out, y, reduction="none") * (own / own.mean()).to(out.dtype)


def centred(out: Tensor, y: Tensor) -> Tensor:
    losses = F.cross_entropy(out, y, reduction="none")
    return losses / (losses.detach().mean() + 0.1)


def hardest(out: Tensor, y: Tensor) -> Tensor:
    losses = F.cross_entropy(out, y, reduction="none")
    return losses * (losses >= losses.median()).to(losses.dtype)


def smoothed_at_random(out: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(out + 0.1 * torch.rand_like(out), y, reduction="none")


def regularised() -> Any:
    def loss(model: nn.Module, batch: Any) -> Tensor:
        x, y = parts_of(batch)
        weights = sum(p.square().sum() for p in model.parameters() if p.requires_grad)
        return F.cross_entropy(model(x), y, reduction="none") + 1e-2 * weights

    return loss


class Remembering:
    """A loss with a state: it counts its calls, and follows the mean of its losses."""

    def __init__(self) -> None:
        self.calls, self.mean = 0, torch.zeros(())

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        x, y = parts_of(batch)
        losses = F.cross_entropy(model(x), y, reduction="none")
        self.calls += 1
        self.mean = 0.9 * self.mean + 0.1 * losses.detach().mean().to(self.mean.dtype)
        return losses * (1 + self.mean.to(losses.dtype))


class WithBuffer(nn.Module):
    """A criterion that is a module with a buffer, which it writes in place."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(CLASSES, dtype=torch.long))

    def forward(self, model: nn.Module, batch: Any) -> Tensor:
        x, y = parts_of(batch)
        self.seen += torch.bincount(y, minlength=CLASSES)
        return F.cross_entropy(model(x), y, reduction="none")


def one_by_one() -> Any:
    """Each example through the model by itself."""

    def loss(model: nn.Module, batch: Any) -> Tensor:
        x, y = parts_of(batch)
        return torch.stack(
            [F.cross_entropy(model(x[i : i + 1]), y[i : i + 1]) for i in range(len(y))]
        )

    return loss


def two_views() -> Any:
    """Two passes through the model for one loss."""

    def loss(model: nn.Module, batch: Any) -> Tensor:
        x, y = parts_of(batch)
        first, second = model(x), model(x.flip(-1))
        return F.cross_entropy(first, y, reduction="none") + 0.3 * each((first - second).square())

    return loss


CRITERIA: dict[str, Criterion] = {
    "cross_entropy": Criterion(stock(F.cross_entropy)),
    "written_cross_entropy": Criterion(
        written(lambda out, y: F.cross_entropy(out, y, reduction="none"))
    ),
    "mse": Criterion(stock(F.mse_loss), numbers),
    "label_smoothing": Criterion(stock(F.cross_entropy, label_smoothing=0.1)),
    "soft_labels": Criterion(stock(F.cross_entropy), shares),
    "weighted_by_class": Criterion(written(weighted_by_class)),
    "nll": Criterion(written(lambda out, y: F.nll_loss(out.log_softmax(-1), y, reduction="none"))),
    "multi_margin": Criterion(stock(F.multi_margin_loss)),
    "multi_label_margin": Criterion(stock(F.multilabel_soft_margin_loss), several_labels),
    "bce_with_logits": Criterion(stock(F.binary_cross_entropy_with_logits), several_labels),
    "bce": Criterion(
        written(lambda out, y: each(F.binary_cross_entropy(out.sigmoid(), y, reduction="none"))),
        several_labels,
    ),
    "huber": Criterion(stock(F.huber_loss), numbers),
    "smooth_l1": Criterion(stock(F.smooth_l1_loss), numbers),
    "l1": Criterion(written(lambda out, y: (out - y).abs().mean(1)), numbers),
    "kl": Criterion(
        written(lambda out, y: F.kl_div(out.log_softmax(-1), y, reduction="none").sum(1)), shares
    ),
    "poisson": Criterion(
        written(
            lambda out, y: each(F.poisson_nll_loss(out.clamp(max=3), y.abs(), reduction="none"))
        ),
        numbers,
    ),
    "gaussian": Criterion(written(gaussian), numbers),
    "soft_margin": Criterion(stock(F.soft_margin_loss), signs),
    "cosine": Criterion(written(lambda out, y: 1 - F.cosine_similarity(out, y)), numbers),
    "cosine_embedding": Criterion(
        written(lambda out, y: F.cosine_embedding_loss(out, y, y[:, 0].sign(), reduction="none")),
        numbers,
    ),
    "triplet": Criterion(
        written(lambda out, y: F.triplet_margin_loss(out, y, y.flip(1), reduction="none")), numbers
    ),
    "ctc": Criterion(written(ctc), token_labels, 6 * CLASSES),
    "tokens": Criterion(written(token_cross_entropy), token_labels, 2 * CLASSES),
    "flat_tokens": Criterion(written(flat_token_cross_entropy), token_labels, 2 * CLASSES),
    "per_token": Criterion(written(per_token), token_labels, 2 * CLASSES),
    "two_tasks": Criterion(written(two_tasks), numbers),
    "focal": Criterion(written(focal)),
    "generalised": Criterion(written(generalised)),
    "hinge": Criterion(written(hinge)),
    "bootstrapped": Criterion(written(bootstrapped), opaque=True),
    "regularised": Criterion(regularised),
    "remembering": Criterion(Remembering, couples=True, opaque=True),
    "with_buffer": Criterion(WithBuffer),
    "one_by_one": Criterion(one_by_one, couples=True),  # where the size of a batch matters
    "two_views": Criterion(two_views, couples=True),
    "contrastive": Criterion(written(contrastive), couples=True),
    "balanced": Criterion(written(balanced), couples=True),
    "centred": Criterion(written(centred), couples=True, opaque=True),
    "hardest": Criterion(written(hardest), couples=True),
    "smoothed_at_random": Criterion(written(smoothed_at_random)),
}
