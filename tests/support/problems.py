"""Models, losses and batches that every back-end is tried on; written once, used by many tests."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reweigh import per_example

N, M, CLASSES = 7, 5, 4
cross_entropy = per_example(F.cross_entropy)


@dataclass(frozen=True)
class Problem:
    """A named way to build (model, loss, train, clean) in a given precision."""

    name: str
    build: Callable[[], tuple[nn.Module, Any, Any, Any]]
    refused_by: frozenset[str] = frozenset()  # back-ends that must refuse; all others must not
    auto: str | None = None  # what "auto" takes, where that is not the first that does not refuse
    autocast: torch.dtype | None = None
    only: torch.dtype | None = None  # the one precision in which the problem makes sense

    def make(self, dtype: torch.dtype) -> tuple[nn.Module, Any, Any, Any]:
        torch.manual_seed(3)
        model, loss, train, clean = self.build()
        return model.to(dtype), loss, cast(train, dtype), cast(clean, dtype)

    def context(self) -> contextlib.AbstractContextManager[Any]:
        if self.autocast is None:
            return contextlib.nullcontext()
        return torch.autocast("cpu", self.autocast)

    def __str__(self) -> str:
        return self.name


def cast(batch: Any, dtype: torch.dtype) -> Any:
    return torch.utils._pytree.tree_map(
        lambda t: t.to(dtype) if isinstance(t, Tensor) and t.is_floating_point() else t, batch
    )


def labelled(n: int, *shape: int, classes: int = CLASSES) -> tuple[Tensor, Tensor]:
    return torch.randn(n, *shape), torch.randint(classes, (n,))


def tokens(n: int, length: int = 6, vocabulary: int = 11) -> tuple[Tensor, Tensor]:
    return torch.randint(vocabulary, (n, length)), torch.randint(CLASSES, (n,))


def mlp(inputs: int = 8, outputs: int = CLASSES) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 16), nn.ReLU(), nn.Linear(16, outputs))


def images(n: int, channels: int = 1) -> tuple[Tensor, Tensor]:
    return labelled(n, channels, 8, 8)


def lenet() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 4, 5, padding=2), nn.MaxPool2d(3, 2), nn.ReLU(),
        nn.Conv2d(4, 6, 3, stride=2, padding=1, bias=False), nn.ReLU(inplace=True),
        nn.Flatten(), nn.Linear(24, 10), nn.Tanh(), nn.Linear(10, CLASSES),
    )  # fmt: skip


class Residual(nn.Module):
    """Two convolutions with BatchNorm and a shortcut, in-place activations."""

    def __init__(self, affine: bool = True) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(4, affine=affine)
        self.conv2 = nn.Conv2d(4, 4, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(4, affine=affine)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm1(self.conv1(x)), inplace=True)
        x = F.relu(x + self.norm2(self.conv2(x)))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Layers(nn.Module):
    """Every parametrised layer that needs a rule of its own, in one chain."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 32)
        self.norm = nn.LayerNorm(32)
        self.conv1 = nn.Conv1d(4, 6, 3, padding=1, groups=2)
        self.group = nn.GroupNorm(3, 6)
        self.up1 = nn.ConvTranspose1d(6, 2, 2, stride=2)
        self.conv2 = nn.Conv2d(2, 3, 3, padding=1, dilation=1)
        self.up2 = nn.ConvTranspose2d(3, 2, 2)
        self.conv3 = nn.Conv3d(1, 2, (2, 3, 2))
        self.up3 = nn.ConvTranspose3d(2, 1, 2)
        self.rms = nn.RMSNorm(10)
        self.slope = nn.PReLU(3)
        self.bias = nn.Parameter(torch.randn(10))
        self.scale = nn.Parameter(torch.ones(1))
        self.pair = nn.Bilinear(10, 10, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.norm(self.first(x))).view(len(x), 4, 8)
        x = self.up1(F.silu(self.group(self.conv1(x))))
        x = x.view(len(x), 2, 4, 4)
        x = self.up2(self.slope(self.conv2(x)))
        x = self.up3(self.conv3(x.unsqueeze(1))).flatten(1)[:, :10]
        x = self.rms(x) * self.scale
        x += self.bias
        return self.pair(x, x.tanh())


class Tied(nn.Module):
    """One matrix used three times, as a weight, transposed, and as an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 8)
        self.back = nn.Linear(8, 11, bias=False)
        self.back.weight = self.table.weight
        self.head = nn.Linear(11, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.table(x).mean(1)
        h = torch.tanh(self.back(h)) @ self.table.weight
        return self.head(self.back(h))


class Reshaped(nn.Module):
    """Parameters that are reshaped before they meet the batch, one of them in two ways."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.slope = nn.Conv2d(1, 4, 3), nn.PReLU(4)
        self.scale, self.shift = nn.Parameter(torch.rand(4)), nn.Parameter(torch.randn(2, 2))
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.slope(self.body(x)) * self.scale.view(4, 1, 1) + self.shift.view(1, 4, 1, 1)
        return self.head((h.mean((2, 3)) + self.scale.unsqueeze(0)).tanh())


class Pairs(nn.Module):
    """nn.Bilinear of an activation with itself, in another order."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.pair = nn.Linear(8, 6), nn.Bilinear(6, 6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.body(x).tanh()
        return self.pair(h, h.flip(1))


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.spare = mlp(), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.used(x)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 6, padding_idx=0)
        self.lstm = nn.LSTM(6, 8, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(self.table(x))[0].mean(1))


class RecurrentNormed(nn.Module):
    """A recurrent layer with BatchNorm after it."""

    def __init__(self, kind: type[nn.RNNBase], units: int = 8, words: int = 11) -> None:
        super().__init__()
        self.table, self.body = nn.Embedding(words, 6), kind(6, units, batch_first=True)
        self.norm, self.head = nn.BatchNorm1d(units), nn.Linear(units, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.body(self.table(x))[0][:, -1]))


class Encoder(nn.Module):
    """nn.TransformerEncoder with learned positions; `first` says which dimension is the batch."""

    def __init__(self, dropout: float = 0.0, batch_first: bool = True) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=dropout, batch_first=batch_first)
        self.table, self.places = nn.Embedding(11, 8), nn.Embedding(16, 8)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, CLASSES)
        self.batch_first = batch_first

    def forward(self, x: Tensor) -> Tensor:
        h = self.table(x) + self.places(torch.arange(x.shape[1]))
        h = h if self.batch_first else h.transpose(0, 1)
        h = self.body(h).mean(1 if self.batch_first else 0)
        return self.head(h)


class CausalLM(nn.Module):
    """One block of a decoder, default attention kernel, output tied to the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 8)
        self.places = nn.Parameter(torch.randn(1, 6, 8))
        self.qkv, self.out = nn.Linear(8, 24, bias=False), nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        h = self.table(x) + self.places
        q, k, v = self.qkv(self.norm(h)).view(*x.shape, 3, 2, 4).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h + self.out(a.transpose(1, 2).reshape(*x.shape, 8))
        return self.norm(h) @ self.table.weight.t()


class Centred(nn.Module):
    """A custom norm that no list of modules knows: subtracts the mean of the batch."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0, keepdim=True)


class Tracker(nn.Module):
    """Subtracts a running mean that it updates by itself, in place."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean.mul_(0.9).add_(0.1 * x.detach().mean(0))
        return x - self.mean


class ReversedGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return -0.5 * g


class Adversarial(nn.Module):
    """Backward is not the derivative of forward: only reverse mode follows autograd here."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(8, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(ReversedGradient.apply(self.body(x)).tanh())


class Slices(nn.Module):
    """Writes its result into slices of a fresh tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 2), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        out = x.new_zeros(len(x), CLASSES)
        out[:, :2] = self.a(x)
        out[:, 2:] = self.b(x).tanh()
        return out


class Overwritten(nn.Module):
    """Reads views, made before and after, of tensors that are written in place, whole or in part."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.norm, self.head = nn.Linear(8, 6), nn.BatchNorm1d(6), nn.Linear(12, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.body(x))
        shared = h + 1  # its tangent is that of h, which must not change with it
        left, middle = shared[:, :3], shared.view(len(x), 2, 3)[:, :, 1]
        left.mul_(2)
        shared[:, 2:].add_(h[:, 2:].square())
        shared[:, 5].zero_()
        shared.view(-1).tanh_()
        with torch.no_grad():
            fixed = shared[:, 4:5]
        out = torch.zeros_like(h)
        column = out[:, 0]
        out.add_(shared.flip(1))
        out.transpose_(0, 1)[1:3] = h.t()[:2]
        out = out.t() + column.unsqueeze(1) + middle.sum(1, keepdim=True) * fixed
        return self.head(torch.cat([out, h * left.sum(1, keepdim=True)], 1))


class Slicing(nn.Module):
    """Parameters sliced, transposed, scaled in place, and outputs that the loss does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(9, 8))
        self.scale, self.side = nn.Parameter(torch.rand(6)), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        self.side(x)
        h = x @ self.table[2:8].t()
        h.mul_(self.scale)
        return h.tanh() @ self.table[:6, :CLASSES]


class SparseTable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(11, 6, sparse=True), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.table(x).mean(1))


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag, self.head = nn.EmbeddingBag(11, 6, mode="mean"), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.bag(x))


class Noisy(nn.Module):
    """A variational layer behind BatchNorm: noise of the shape of what it is added to."""

    def __init__(self) -> None:
        super().__init__()
        self.mean, self.spread = nn.Linear(8, 6), nn.Linear(8, 6)
        self.norm, self.head = nn.BatchNorm1d(6), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        mean, spread = self.norm(self.mean(x)), F.softplus(self.spread(x))
        return self.head(mean + spread * torch.randn_like(mean))


class Spectrum(nn.Module):
    """Complex numbers on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(8, 8), nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.fft.rfft(self.body(x)).abs())


class StopGradient(nn.Module):
    """Part of the value is detached, part computed under no_grad."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(8, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.body(x)
        with torch.no_grad():
            gate = torch.sigmoid(self.body(x))
        return self.head(h * gate + h.detach().square())


def language_loss(model: nn.Module, batch: Any) -> Tensor:
    x = batch[0]
    logits = model(x)[:, :-1]
    return F.cross_entropy(logits.transpose(1, 2), x[:, 1:], reduction="none").mean(1)


def contrastive(model: nn.Module, batch: Any) -> Tensor:
    z = F.normalize(model(batch[0]), dim=1)
    return F.cross_entropy(z @ z.t() * 3, torch.arange(len(z)), reduction="none")


def frozen() -> nn.Sequential:
    model = mlp()
    model[0].weight.requires_grad_(False)
    model[2].bias.requires_grad_(False)
    return model


def scaled_like(loss: Callable[..., Tensor], sign: float) -> Any:
    """The train loss counts backwards, so that no example can help."""

    def signed(model: nn.Module, batch: Any) -> Tensor:
        return loss(model, batch[:2]) * (sign if len(batch) == 3 else 1.0)

    return signed


def dict_loss(model: nn.Module, batch: Any) -> Tensor:
    x = torch.cat([batch["inputs"]["left"], batch["inputs"]["right"]], 1)
    return F.cross_entropy(model(x), batch["label"], reduction="none")


def nested(n: int) -> dict[str, Any]:
    x, y = labelled(n, 8)
    return {"inputs": {"left": x[:, :3], "right": x[:, 3:]}, "label": y, "name": "rows"}


def first_output(model: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(model(batch[0])[0], batch[1], reduction="none")


class TwoOutputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = mlp()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.body(x), x.sum()


def same_example(n: int) -> tuple[Tensor, Tensor]:
    x, y = labelled(1, 8)
    return x.repeat(n, 1), y.repeat(n)


def _all_negative() -> Any:
    x, y = same_example(N)
    return mlp(), scaled_like(cross_entropy, -1.0), (x, y, torch.ones(N)), (x[:M], y[:M])


def _channels_last() -> Any:
    model = Residual().to(memory_format=torch.channels_last)
    train, clean = images(N, 3), images(M, 3)
    to = torch.channels_last
    return (
        model.eval(), cross_entropy,
        (train[0].to(memory_format=to), train[1]), (clean[0].to(memory_format=to), clean[1]),
    )  # fmt: skip


def simple(model: Callable[[], nn.Module], batch: Callable[[int], Any], loss: Any = cross_entropy):
    return lambda: (model(), loss, batch(N), batch(M))


def vectors(n: int) -> tuple[Tensor, Tensor]:
    return labelled(n, 8)


def regression(n: int) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 8), torch.randn(n, 3)


def binary(n: int) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 8), torch.randint(2, (n,)).float()


def multilabel(n: int) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 8), torch.randint(2, (n, 3)).float()


def binary_loss(model: nn.Module, batch: Any) -> Tensor:
    logits = model(batch[0]).squeeze(1)
    return F.binary_cross_entropy_with_logits(logits, batch[1], reduction="none")


def weighted_loss(model: nn.Module, batch: Any) -> Tensor:
    logits = model(batch[0])
    weight = torch.tensor([1.0, 2.0, 0.5, 3.0], dtype=logits.dtype)
    return F.cross_entropy(logits, batch[1], weight=weight, label_smoothing=0.1, reduction="none")


def weight_normed() -> nn.Module:
    first = nn.utils.parametrizations.weight_norm(nn.Linear(8, 6))
    return nn.Sequential(first, nn.ELU(), nn.Linear(6, CLASSES))


def flattened(activation: nn.Module) -> nn.Module:
    """An in-place activation on a view of the result of BatchNorm."""
    return nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), activation, nn.Linear(72, CLASSES)
    )


def tracking() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 6), Tracker(), nn.Tanh(), nn.Linear(6, CLASSES))


def centred() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 6), Centred(), nn.Tanh(), nn.Linear(6, CLASSES))


GHOST = frozenset({"ghost"})

PROBLEMS = [
    Problem("mlp", simple(mlp, vectors)),
    Problem("lenet", simple(lenet, images)),
    Problem("resnet-train", simple(Residual, lambda n: images(n, 3)), GHOST),
    Problem("resnet-eval", simple(lambda: Residual().eval(), lambda n: images(n, 3))),
    Problem(
        "batchnorm-without-scale", simple(lambda: Residual(False), lambda n: images(n, 3)), GHOST
    ),
    Problem("dropout", simple(lambda: nn.Sequential(*mlp()[:2], nn.Dropout(), mlp()[2]), vectors)),
    Problem("layers", simple(Layers, vectors)),
    Problem("frozen", simple(frozen, vectors)),
    Problem("tied", simple(Tied, tokens)),
    Problem("reshaped-parameters", simple(Reshaped, images)),
    Problem("bilinear", simple(Pairs, vectors)),
    Problem("unused", simple(Unused, vectors)),
    Problem("embedding-lstm", simple(Recurrent, tokens)),
    Problem("transformer-encoder", simple(Encoder, tokens)),
    Problem("transformer-dropout", simple(lambda: Encoder(0.1), tokens)),
    Problem("transformer-seq-first", simple(lambda: Encoder(0.0, False), tokens)),
    Problem("transformer-square", lambda: (Encoder(), cross_entropy, tokens(6), tokens(6))),
    Problem("causal-lm", simple(CausalLM, tokens, language_loss)),
    Problem("regression", simple(lambda: mlp(8, 3), regression, per_example(F.mse_loss))),
    Problem("bce", simple(lambda: mlp(8, 1), binary, binary_loss)),
    Problem(
        "multi-label",
        simple(lambda: mlp(8, 3), multilabel, per_example(F.binary_cross_entropy_with_logits)),
    ),
    Problem("class-weighted-smoothed", simple(mlp, vectors, weighted_loss)),
    Problem("nested-dict", simple(mlp, nested, dict_loss)),
    Problem("returns-a-tuple", simple(TwoOutputs, vectors, first_output)),
    Problem("more-clean-than-train", lambda: (mlp(), cross_entropy, vectors(3), vectors(9))),
    Problem("one-example", lambda: (mlp(), cross_entropy, vectors(1), vectors(1))),
    Problem("batch-equals-classes", lambda: (mlp(), cross_entropy, vectors(4), vectors(4))),
    Problem("all-scores-negative", _all_negative),
    Problem("weight-norm", simple(weight_normed, vectors)),
    Problem("channels-last", _channels_last),
    Problem("slices-and-in-place", simple(Slicing, vectors)),
    Problem("sparse-embedding", simple(SparseTable, tokens), GHOST),
    Problem("embedding-bag", simple(Bag, tokens), frozenset({"double_backward"})),
    Problem("variational", simple(Noisy, vectors), GHOST),
    Problem("fourier", simple(Spectrum, vectors)),
    Problem("stop-gradient", simple(StopGradient, vectors)),
    Problem("in-batch-negatives", simple(lambda: mlp(8, 3), vectors, contrastive), GHOST),
    Problem("custom-running-mean", simple(tracking, vectors)),
    Problem("custom-batch-norm", simple(centred, vectors), GHOST),
    Problem("gradient-reversal", simple(Adversarial, vectors), frozenset({"forward_mode"})),
    Problem("writes-into-slices", simple(Slices, vectors)),
    Problem("writes-into-views", simple(Overwritten, vectors), GHOST),
    Problem("relu-after-flatten", simple(lambda: flattened(nn.ReLU(inplace=True)), images), GHOST),
    Problem(
        "dropout-after-flatten",
        simple(lambda: flattened(nn.Dropout(0.3, inplace=True)), images),
        GHOST,
    ),
    *(
        Problem(
            f"{kind.__name__.lower()}-batchnorm",
            simple(partial(RecurrentNormed, kind), tokens),
            GHOST,
            auto="double_backward",
        )
        for kind in (nn.RNN, nn.GRU, nn.LSTM)
    ),
    Problem("autocast-mlp", simple(mlp, vectors), autocast=torch.bfloat16, only=torch.float32),
    Problem(
        "autocast-resnet",
        simple(Residual, lambda n: images(n, 3)),
        GHOST,
        autocast=torch.bfloat16,
        only=torch.float32,
    ),
    Problem(
        "autocast-transformer",
        simple(Encoder, tokens),
        autocast=torch.bfloat16,
        only=torch.float32,
    ),
    Problem("bfloat16-model", simple(mlp, vectors), only=torch.bfloat16),
]
EXACT = ["double_backward", "forward_mode", "ghost"]
