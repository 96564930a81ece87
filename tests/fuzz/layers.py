# ruff: noqa: NPY002 - models of users do draw from numpy's shared generator
"""The building blocks of random models: about a hundred modules and operations of PyTorch.

A block takes a tensor of one form and gives one of another. It is made for the shape that arrives, from
a few small numbers that choose its options, so that every drawn model can be built:

    tokens [n, t] integers    vector [n, d]    sequence [n, t, d]    image [n, c, h, w]    volume [n, c, d, h, w]
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.checkpoint import checkpoint

VOCABULARY = 7
ROWS = 12  # of a parameter that meets the batch; no batch has more
RANKS = {"vector": 2, "sequence": 3, "image": 4, "volume": 5}
FORMS = ("tokens", *RANKS)


class Pick:
    """Options chosen by drawn numbers: `pick(a, b, c)` uses up one number."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = list(numbers)

    def __call__(self, *options: Any) -> Any:
        number = self._numbers.pop(0) if self._numbers else 0
        return options[number % len(options)]


Build = Callable[[tuple[int, ...], Pick], nn.Module]


@dataclass(frozen=True)
class Block:
    """takes: forms of input. gives: the form of the result; None: the same.

    couples:  examples of a batch touch each other (in train mode), or its size matters.
    opaque:   autograd is told another derivative than the function has, or numbers jump: a difference
              quotient differs from the gradient.
    """

    build: Build
    takes: tuple[str, ...]
    gives: str | None
    couples: bool
    opaque: bool


BLOCKS: dict[str, Block] = {}
ANY = tuple(RANKS)


def block(
    *takes: str, gives: str | None = None, couples: bool = False, opaque: bool = False
) -> Callable[[Build], Build]:
    def register(build: Build) -> Build:
        name = build.__name__.rstrip("_")
        assert name not in BLOCKS
        BLOCKS[name] = Block(build, takes or ANY, gives, couples, opaque)
        return build

    return register


class Call(nn.Module):
    """A function as a module; `parts` are modules and parameters that it uses."""

    def __init__(self, name: str, function: Callable[..., Tensor], **parts: Any) -> None:
        super().__init__()
        self.name, self.function = name, function
        for key, part in parts.items():
            setattr(self, key, part)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)

    def extra_repr(self) -> str:
        own = ", ".join(f"{k}: {list(p.shape)}" for k, p in self.named_parameters(recurse=False))
        return f"{self.name}{'; ' if own else ''}{own}"


def calling(name: str, function: Callable[..., Tensor], **parts: Any) -> Call:
    return Call(name, function, **parts)


def parameter(*shape: int, scale: float = 0.5) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape) * scale)


def groups_of(channels: int, pick: Pick) -> int:
    return pick(1, *[g for g in (2, channels) if channels % g == 0])


# Linear layers and what is made of them.


@block()
def linear(shape, pick):
    return nn.Linear(shape[-1], pick(4, 3, 6, 24), bias=pick(True, False))


@block("vector", "sequence")
def bilinear(shape, pick):
    layer = nn.Bilinear(shape[-1], shape[-1], pick(4, 3), bias=pick(True, False))
    return calling("bilinear", lambda m, x: m.layer(x, x.flip(-1)), layer=layer)


@block()
def weight_norm(shape, pick):
    return parametrizations.weight_norm(nn.Linear(shape[-1], 4), dim=pick(0, 1, None))


@block()
def spectral_norm(shape, pick):
    return parametrizations.spectral_norm(nn.Linear(shape[-1], 4), n_power_iterations=pick(1, 2))


@block("vector")
def orthogonal(shape, pick):
    return parametrizations.orthogonal(
        nn.Linear(shape[-1], 4), "weight", pick("matrix_exp", "cayley")
    )


class Symmetric(nn.Module):
    def forward(self, w: Tensor) -> Tensor:
        return w.triu() + w.triu(1).transpose(-1, -2)


@block()
def own_parametrization(shape, pick):
    layer = nn.Linear(shape[-1], shape[-1])
    parametrize.register_parametrization(layer, "weight", Symmetric())
    return layer


@block()
def low_rank_adapter(shape, pick):
    d = shape[-1]
    return calling(
        "frozen linear + x A B",
        lambda m, x: m.frozen(x) + x @ m.a @ m.b,
        frozen=nn.Linear(d, d).requires_grad_(False),
        a=parameter(d, 2),
        b=parameter(2, d),
    )


@block()
def tied_transpose(shape, pick):
    return calling(
        "tanh(x W) W'", lambda m, x: (x @ m.w).tanh() @ m.w.t(), w=parameter(shape[-1], 3)
    )


@block()
def masked_weight(shape, pick):
    mask = torch.rand(4, shape[-1]) < 0.6
    return calling(
        "linear(x, |W| mask)",
        lambda m, x: F.linear(x, m.w.abs() * mask.to(x.dtype)),
        w=parameter(4, shape[-1]),
    )


@block()
def einsum(shape, pick):
    return calling(
        "einsum", lambda m, x: torch.einsum("n...d,ed->n...e", x, m.w), w=parameter(4, shape[-1])
    )


@block("vector")
def experts(shape, pick):
    d = shape[-1]

    def mix(m: Call, x: Tensor) -> Tensor:
        each = torch.einsum("nd,kde->nke", x, m.w)
        gate = m.gate(x).softmax(-1)
        if pick_one:
            gate = gate * F.one_hot(gate.argmax(-1), 3)
        return (gate[..., None] * each).sum(1)

    pick_one = pick(False, True)
    return calling("mixture of experts", mix, w=parameter(3, d, 4), gate=nn.Linear(d, 3))


@block("vector")
def routed_experts(shape, pick):
    """Each example goes through one expert only: ragged parts, chosen by data."""
    d = shape[-1]

    def route(m: Call, x: Tensor) -> Tensor:
        chosen = m.gate(x).argmax(-1)
        out = torch.zeros_like(x[:, :1]).expand(len(x), 4).contiguous()
        for k, expert in enumerate(m.experts):
            rows = (chosen == k).nonzero().flatten()
            out = out.index_add(0, rows, expert(x[rows]))
        return out + m.gate(x).sum(-1, keepdim=True)

    parts = nn.ModuleList([nn.Linear(d, 4) for _ in range(2)])
    return calling("routed experts", route, gate=nn.Linear(d, 2), experts=parts)


@block("vector")
def hyper_network(shape, pick):
    d = shape[-1]
    return calling(
        "x_i' W(x_i)",
        lambda m, x: torch.bmm(m.make(x).view(len(x), 3, d), x[..., None]).squeeze(-1),
        make=nn.Linear(d, 3 * d),
    )


@block()
def scale_and_shift(shape, pick):
    where = pick(shape[-1:], (1,), shape)
    return calling("x g + b", lambda m, x: x * m.g + m.b, g=parameter(*where), b=parameter(*where))


@block()
def scalar(shape, pick):
    made = pick(
        lambda m, x: x / (1 + m.t**2), lambda m, x: x * m.t.exp(), lambda m, x: torch.lerp(x, x.flip(-1), m.t)
    )  # fmt: skip
    return calling("a scalar parameter", made, t=nn.Parameter(torch.tensor(0.3)))


@block("vector")
def prototypes(shape, pick):
    p = pick(2.0, 1.0)
    return calling("cdist", lambda m, x: -torch.cdist(x, m.w, p=p), w=parameter(4, shape[-1]))


@block("vector")
def cosine_head(shape, pick):
    return calling(
        "cosine",
        lambda m, x: F.normalize(x, dim=-1) @ F.normalize(m.w, dim=-1).t(),
        w=parameter(4, shape[-1]),
    )


@block("vector")
def linear_solve(shape, pick):
    d = shape[-1]

    def solve(m: Call, x: Tensor) -> Tensor:
        a = m.w @ m.w.t() + torch.eye(d, dtype=x.dtype)
        return torch.linalg.solve(a, x.t()).t()

    return calling("solve(W W' + I, x)", solve, w=parameter(d, d))


@block("vector")
def row_parameter(shape, pick):
    """A parameter with a row for each place in the batch."""
    made = pick(lambda m, x: x + m.w[: len(x)], lambda m, x: x * m.w[: len(x)])
    return calling("parameter rows", made, w=parameter(ROWS, shape[-1]))


@block("vector")
def looked_up(shape, pick):
    """Rows of a parameter chosen by data."""
    made = pick(
        lambda m, x: x + m.w[x.argmax(-1)],
        lambda m, x: x + m.w.index_select(0, x.argmax(-1)),
        lambda m, x: x + F.one_hot(x.argmax(-1), x.shape[-1]).to(x.dtype) @ m.w,
        lambda m, x: x + F.embedding(x.argmax(-1), m.w),
    )
    return calling("rows by argmax", made, w=parameter(shape[-1], shape[-1]))


@block("sequence")
def class_token(shape, pick):
    made = pick(
        lambda m, x: torch.cat([m.token.expand(len(x), 1, -1), x], 1),
        lambda m, x: torch.cat([m.token.repeat(len(x), 1, 1), x], 1),
    )
    return calling("class token", made, token=parameter(1, 1, shape[-1]))


@block("sequence")
def positions(shape, pick):
    made = pick(
        lambda m, x: x + m.table, lambda m, x: x + m.table.unsqueeze(0).expand(len(x), -1, -1)
    )
    return calling("x + positions", made, table=parameter(*shape))


@block("sequence")
def position_table(shape, pick):
    return calling(
        "x + Embedding(arange)",
        lambda m, x: x + m.table(torch.arange(x.shape[1])),
        table=nn.Embedding(*shape),
    )


# Tokens.


@block("tokens", gives="sequence")
def embedding(shape, pick):
    options = pick(
        {},
        {"padding_idx": 0},
        {"scale_grad_by_freq": True},
        {"max_norm": 1.0},
        {"sparse": True},
        {"padding_idx": 1, "max_norm": 0.8},
    )
    return nn.Embedding(VOCABULARY, pick(4, 6), **options)


@block("tokens", gives="vector")
def embedding_bag(shape, pick):
    options = pick(
        {"mode": "mean"},
        {"mode": "sum"},
        {"mode": "max"},
        {"mode": "sum", "padding_idx": 0},
        {"mode": "sum", "scale_grad_by_freq": True},
        {"mode": "mean", "max_norm": 1.0},
        {"mode": "sum", "sparse": True},
    )
    return nn.EmbeddingBag(VOCABULARY, pick(4, 6), **options)


@block("tokens", gives="vector")
def weighted_bag(shape, pick):
    bag = nn.EmbeddingBag(VOCABULARY, 4, mode="sum")
    made = pick(
        lambda m, x: m.bag(x, per_sample_weights=m.w.expand(x.shape)),
        lambda m, x: m.bag(x, per_sample_weights=m.each[x]),
    )
    return calling("bag", made, bag=bag, w=parameter(shape[-1]), each=parameter(VOCABULARY))


@block("tokens", gives="vector")
def ragged_bag(shape, pick):
    """Bags of different lengths, by offsets that come from data."""

    def bags(m: Call, x: Tensor) -> Tensor:
        lengths = 1 + x[:, 0] % x.shape[1]
        flat = torch.cat([row[:k] for row, k in zip(x, lengths.tolist(), strict=True)])
        return m.bag(flat, F.pad(lengths.cumsum(0)[:-1], (1, 0)))

    return calling(
        "ragged bags", bags, bag=nn.EmbeddingBag(VOCABULARY, 4, mode=pick("sum", "mean"))
    )


@block("tokens", gives="sequence")
def one_hot(shape, pick):
    return calling(
        "one_hot(x) W",
        lambda m, x: F.one_hot(x, VOCABULARY).to(m.w.dtype) @ m.w,
        w=parameter(VOCABULARY, 4),
    )


# Norms.


@block()
def layer_norm(shape, pick):
    return nn.LayerNorm(pick(shape[-1:], shape), elementwise_affine=pick(True, False))


@block()
def rms_norm(shape, pick):
    return nn.RMSNorm(shape[-1], elementwise_affine=pick(True, False))


@block()
def group_norm(shape, pick):
    return nn.GroupNorm(groups_of(shape[0], pick), shape[0], affine=pick(True, False))


@block(couples=True)
def batch_norm(shape, pick):
    kind = {1: nn.BatchNorm1d, 2: nn.BatchNorm1d, 3: nn.BatchNorm2d, 4: nn.BatchNorm3d}[len(shape)]
    options = pick({}, {"affine": False}, {"track_running_stats": False}, {"momentum": None})
    return kind(shape[0], **options)


@block("sequence", "image", "volume")
def instance_norm(shape, pick):
    kind = {2: nn.InstanceNorm1d, 3: nn.InstanceNorm2d, 4: nn.InstanceNorm3d}[len(shape)]
    if all(size == 1 for size in shape[1:]):
        return nn.Identity()
    return kind(shape[0], affine=pick(True, False), track_running_stats=pick(False, True))


@block("sequence", "image", "volume")
def local_response_norm(shape, pick):
    return nn.LocalResponseNorm(pick(2, 3))


@block()
def normalize(shape, pick):
    dim = pick(-1, 1)
    return calling("normalize", lambda m, x: F.normalize(x, dim=dim))


# Activations, dropout.

ACTIVATIONS = {
    "relu": nn.ReLU, "relu_": lambda: nn.ReLU(inplace=True), "gelu": nn.GELU,
    "gelu_tanh": lambda: nn.GELU(approximate="tanh"), "tanh": nn.Tanh, "sigmoid": nn.Sigmoid,
    "silu": nn.SiLU, "silu_": lambda: nn.SiLU(inplace=True), "elu": nn.ELU,
    "elu_": lambda: nn.ELU(inplace=True), "selu": nn.SELU, "celu": nn.CELU,
    "softplus": nn.Softplus, "leaky_relu": lambda: nn.LeakyReLU(0.2),
    "leaky_relu_": lambda: nn.LeakyReLU(0.2, inplace=True), "hardswish": nn.Hardswish,
    "hardsigmoid": nn.Hardsigmoid, "mish": nn.Mish, "log_sigmoid": nn.LogSigmoid,
    "softsign": nn.Softsign, "hardtanh_": lambda: nn.Hardtanh(inplace=True), "relu6": nn.ReLU6,
    "threshold": lambda: nn.Threshold(0.1, 0.5), "softshrink": lambda: nn.Softshrink(0.1),
    "hardshrink": lambda: nn.Hardshrink(0.1), "tanhshrink": nn.Tanhshrink,
    "softmin": lambda: nn.Softmin(-1), "softmax": lambda: nn.Softmax(-1), "log_softmax": lambda: nn.LogSoftmax(-1),
}  # fmt: skip

for _name, _make in ACTIVATIONS.items():
    BLOCKS[_name] = Block(
        lambda shape, pick, make=_make: make(),
        ANY,
        None,
        False,
        _name in ("threshold", "hardshrink"),
    )


@block()
def prelu(shape, pick):
    return nn.PReLU(pick(1, shape[0]))


@block()
def rrelu(shape, pick):
    return nn.RReLU(inplace=pick(False, True))


@block()
def glu(shape, pick):
    return nn.GLU(-1) if shape[-1] % 2 == 0 else nn.Softsign()


@block()
def swiglu(shape, pick):
    d = shape[-1]
    return calling(
        "silu(x W) * x V",
        lambda m, x: F.silu(m.a(x)) * m.b(x),
        a=nn.Linear(d, 4),
        b=nn.Linear(d, 4),
    )


@block()
def dropout(shape, pick):
    kind = pick(nn.Dropout, nn.AlphaDropout, nn.FeatureAlphaDropout)
    return kind(0.3, inplace=pick(False, True))


@block("sequence", "image", "volume")
def channel_dropout(shape, pick):
    kind = {2: nn.Dropout1d, 3: nn.Dropout2d, 4: nn.Dropout3d}[len(shape)]
    return kind(0.3, inplace=pick(False, True))


# Convolutions, pools and what else images go through.

PADDINGS = ("zeros", "reflect", "replicate", "circular")


@block("sequence", "image", "volume")
def convolution(shape, pick):
    c, *rest = shape
    kind = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[len(rest)]
    kernel = pick(3, 1, 2) if min(rest) >= 3 else 1
    stride, dilation = pick(1, 2), pick(1, 2) if min(rest) >= 5 and kernel == 2 else 1
    groups = groups_of(c, pick)
    mode = pick(*PADDINGS)
    if mode == "reflect" and len(rest) == 3:
        mode = "zeros"  # PyTorch has no reflect padding that can be differentiated twice in 3-d
    padding = pick(1, 0) if kernel > 1 else 0
    return kind(
        c, groups * pick(2, 1, 3), kernel, stride, padding, dilation, groups=groups, bias=pick(True, False),
        padding_mode=mode,
    )  # fmt: skip


@block("sequence", "image", "volume")
def same_convolution(shape, pick):
    kind = {2: nn.Conv1d, 3: nn.Conv2d, 4: nn.Conv3d}[len(shape)]
    return kind(shape[0], 4, pick(3, 2), padding="same", bias=pick(True, False))


@block("sequence", "image", "volume")
def transposed_convolution(shape, pick):
    kind = {2: nn.ConvTranspose1d, 3: nn.ConvTranspose2d, 4: nn.ConvTranspose3d}[len(shape)]
    groups, stride = groups_of(shape[0], pick), pick(1, 2)
    return kind(
        shape[0], groups * 2, pick(2, 3), stride, output_padding=stride - 1, groups=groups, bias=pick(True, False)
    )  # fmt: skip


@block("image")
def weight_normed_convolution(shape, pick):
    return parametrizations.weight_norm(nn.Conv2d(shape[0], 4, 1, bias=pick(True, False)))


@block("sequence", "image", "volume")
def max_pool(shape, pick):
    kind = {2: nn.MaxPool1d, 3: nn.MaxPool2d, 4: nn.MaxPool3d}[len(shape)]
    return kind(2, pick(2, 1), ceil_mode=True) if min(shape[1:]) > 1 else nn.Identity()


@block("sequence", "image", "volume")
def average_pool(shape, pick):
    kind = {2: nn.AvgPool1d, 3: nn.AvgPool2d, 4: nn.AvgPool3d}[len(shape)]
    return kind(2, pick(2, 1), ceil_mode=True) if min(shape[1:]) > 1 else nn.Identity()


@block("sequence", "image", "volume")
def adaptive_pool(shape, pick):
    kinds = {
        2: (nn.AdaptiveAvgPool1d, nn.AdaptiveMaxPool1d),
        3: (nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d),
        4: (nn.AdaptiveAvgPool3d, nn.AdaptiveMaxPool3d),
    }[len(shape)]
    return pick(*kinds)(pick(2, 1, 3))


@block("sequence", "image")
def power_pool(shape, pick):
    kind = {2: nn.LPPool1d, 3: nn.LPPool2d}[len(shape)]
    return kind(2, 2) if min(shape[1:]) > 1 else nn.Identity()


@block("image")
def fractional_pool(shape, pick):
    return nn.FractionalMaxPool2d(2, output_size=2) if min(shape[1:]) >= 3 else nn.Identity()


@block("image")
def unpool(shape, pick):
    def there_and_back(m: Call, x: Tensor) -> Tensor:
        y, places = F.max_pool2d(x, 2, return_indices=True)
        return F.max_unpool2d(y, places, 2, output_size=x.shape[-2:])

    return calling("max_unpool", there_and_back) if min(shape[1:]) > 1 else nn.Identity()


@block("image")
def pixel_shuffle(shape, pick):
    c, h, w = shape
    if c % 4 == 0 and h * w <= 16:
        return nn.PixelShuffle(2)
    return nn.PixelUnshuffle(2) if h % 2 == w % 2 == 0 and c <= 4 else nn.Identity()


@block("image")
def channel_shuffle(shape, pick):
    return nn.ChannelShuffle(2) if shape[0] % 2 == 0 else nn.Identity()


@block("sequence", "image")
def interpolate(shape, pick):
    modes = ("linear", "nearest") if len(shape) == 2 else ("bilinear", "bicubic", "nearest", "area")
    mode = pick(*modes)
    return calling(mode, lambda m, x: F.interpolate(x, size=(4,) * (x.ndim - 2), mode=mode))


@block("image")
def fold(shape, pick):
    def patches(m: Call, x: Tensor) -> Tensor:
        columns = F.unfold(x, 2, padding=1)
        return F.fold(columns * 0.5, x.shape[-2:], 2, padding=1)

    return calling("fold(unfold(x))", patches)


@block("image", gives="sequence")
def patches(shape, pick):
    k = 2 if min(shape[1:]) > 1 else 1
    return calling(
        "patches W",
        lambda m, x: m.embed(F.unfold(x, k, stride=k).transpose(1, 2)),
        embed=nn.Linear(shape[0] * k * k, 4),
    )


@block("image")
def spatial_transformer(shape, pick):
    c = shape[0]

    def warp(m: Call, x: Tensor) -> Tensor:
        theta = m.eye.to(x.dtype) + 0.1 * m.where(x.mean((-1, -2))).tanh().view(-1, 2, 3)
        grid = F.affine_grid(theta, list(x.shape), align_corners=False)
        return F.grid_sample(x, grid.to(x.dtype), padding_mode=border, align_corners=False)

    border = pick("zeros", "border", "reflection")
    module = calling("grid_sample", warp, where=nn.Linear(c, 6))
    module.register_buffer("eye", torch.eye(2, 3)[None])
    return module


@block("image")
def squeeze_excitation(shape, pick):
    c = shape[0]
    return calling(
        "x * gate(mean(x))",
        lambda m, x: x * m.gate(x.mean((-1, -2)))[..., None, None].sigmoid(),
        gate=nn.Linear(c, c),
    )


@block("sequence", "image")
def pad(shape, pick):
    mode = pick("constant", "reflect", "replicate", "circular")
    if min(shape[1:]) < 2:
        mode = "constant"
    return calling(f"pad {mode}", lambda m, x: F.pad(x, (1, 1) * (x.ndim - 2), mode=mode))


# Sequences.


def recurrent_options(pick: Pick) -> dict[str, Any]:
    return {
        "num_layers": pick(1, 2),
        "bidirectional": pick(False, True),
        "batch_first": pick(True, False),
        "bias": pick(True, False),
    }


def run_recurrent(m: Call, x: Tensor) -> Tensor:
    if m.layer.batch_first:
        return m.layer(x)[0]
    return m.layer(x.transpose(0, 1))[0].transpose(0, 1)


@block("sequence")
def recurrent(shape, pick):
    kind = pick(nn.LSTM, nn.GRU, nn.RNN)
    options = recurrent_options(pick)
    if options["num_layers"] == 2:
        options["dropout"] = pick(0.0, 0.3)
    if kind is nn.LSTM:
        options["proj_size"] = pick(0, 2)
    return calling(kind.__name__, run_recurrent, layer=kind(shape[-1], 3, **options))


@block("sequence", gives="vector")
def packed(shape, pick):
    """Sequences of different lengths, sorted inside."""
    kind = pick(nn.LSTM, nn.GRU)

    def run(m: Call, x: Tensor) -> Tensor:
        lengths = 1 + (x[:, 0, 0].detach().abs() * 10).long() % x.shape[1]
        parts = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, _ = pad_packed_sequence(m.layer(parts)[0], batch_first=True)
        return out.sum(1)

    layer = kind(shape[-1], 3, batch_first=True, bidirectional=pick(False, True))
    return calling("packed", run, layer=layer)


@block("sequence", gives="vector")
def cell(shape, pick):
    kind = pick(nn.GRUCell, nn.RNNCell, nn.LSTMCell)

    def run(m: Call, x: Tensor) -> Tensor:
        state: Any = None
        for part in x.unbind(1):
            state = m.step(part, state)
        return state[0] if isinstance(state, tuple) else state

    return calling(f"{kind.__name__} in a loop", run, step=kind(shape[-1], 3))


def heads_of(d: int, pick: Pick) -> int:
    return pick(1, 2) if d % 2 == 0 else 1


@block("sequence")
def attention(shape, pick):
    d = shape[-1]
    first, masked = pick(True, False), pick(False, True)
    need = pick(False, True)

    def attend(m: Call, x: Tensor) -> Tensor:
        y = x if first else x.transpose(0, 1)
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=x.dtype)
        out = m.layer(y, y, y, attn_mask=mask if masked else None, need_weights=need)[0]
        return out if first else out.transpose(0, 1)

    layer = nn.MultiheadAttention(
        d, heads_of(d, pick), batch_first=first, dropout=pick(0.0, 0.2), bias=pick(True, False)
    )
    return calling("attention", attend, layer=layer)


@block("sequence")
def padded_attention(shape, pick):
    """Keys are masked by data."""
    d = shape[-1]

    def attend(m: Call, x: Tensor) -> Tensor:
        mask = x[..., 0].detach() > 1
        mask[:, 0] = False
        return m.layer(x, x, x, key_padding_mask=mask, need_weights=False)[0]

    layer = nn.MultiheadAttention(d, heads_of(d, pick), batch_first=True)
    return calling("attention with padding", attend, layer=layer)


@block("sequence")
def fused_attention(shape, pick):
    causal, d = pick(False, True), shape[-1]
    return calling(
        "scaled_dot_product_attention",
        lambda m, x: F.scaled_dot_product_attention(m.q(x), m.k(x), x, is_causal=causal),
        q=nn.Linear(d, d),
        k=nn.Linear(d, d, bias=False),
    )


@block("sequence")
def transformer_layer(shape, pick):
    d = shape[-1]
    return nn.TransformerEncoderLayer(
        d, heads_of(d, pick), 8, dropout=pick(0.0, 0.2), activation=pick("relu", "gelu"), batch_first=True,
        norm_first=pick(False, True),
    )  # fmt: skip


@block("sequence")
def transformer_decoder(shape, pick):
    d = shape[-1]
    layer = nn.TransformerDecoderLayer(d, heads_of(d, pick), 8, dropout=0.0, batch_first=True)
    return calling("decoder", lambda m, x: m.layer(x, x.flip(1)), layer=layer)


@block("sequence", gives="vector")
def over_time(shape, pick):
    made = pick(
        lambda m, x: x.mean(1), lambda m, x: x.max(1).values, lambda m, x: x[:, -1], lambda m, x: x.logsumexp(1),
        lambda m, x: x.amax(1), lambda m, x: x.std(1), lambda m, x: x.median(1).values,
        lambda m, x: torch.linalg.vector_norm(x, dim=1),
    )  # fmt: skip
    return calling("over time", made) if shape[0] > 1 else nn.Flatten()


# Operations without parameters.


def simple(
    name: str, *choices: Callable[..., Tensor], takes: Sequence[str] = ANY, **flags: Any
) -> None:
    def build(shape: tuple[int, ...], pick: Pick) -> nn.Module:
        return calling(name, pick(*choices))

    BLOCKS[name] = Block(
        build,
        tuple(takes),
        flags.get("gives"),
        flags.get("couples", False),
        flags.get("opaque", False),
    )


simple("roll", lambda m, x: x.roll(1, -1), lambda m, x: x.roll((1, 1), (1, -1)))
simple("flip", lambda m, x: x.flip(-1), lambda m, x: x.flip(1))
simple(
    "transpose",
    lambda m, x: x.transpose(1, 2),
    lambda m, x: x.mT.contiguous(),
    takes=["sequence", "image"],
)
simple("sort", lambda m, x: x.sort(-1).values, lambda m, x: x.sort(1, descending=True)[0])
simple(
    "topk",
    lambda m, x: x.topk(min(3, x.shape[-1]), -1).values,
    lambda m, x: x.kthvalue(1, -1, keepdim=True)[0],
)
simple(
    "gather",
    lambda m, x: x.gather(-1, x.argsort(-1)),
    lambda m, x: torch.take_along_dim(x, x.argsort(1), 1),
)
simple("scatter", lambda m, x: torch.zeros_like(x).scatter(-1, x.argsort(-1), x),
       lambda m, x: torch.zeros_like(x).scatter_add(-1, x.argsort(-1) // 2, x),
       lambda m, x: x.scatter_reduce(-1, x.argsort(-1) // 2, x, "sum"))  # fmt: skip
simple("cumulate", lambda m, x: x.cumsum(-1), lambda m, x: x.tanh().cumprod(-1), lambda m, x: x.logcumsumexp(-1),
       lambda m, x: x.cummax(-1).values)  # fmt: skip
simple("where", lambda m, x: torch.where(x > 0, x.tanh(), x * 0.1), lambda m, x: x.masked_fill(x < -1, 0.0),
       lambda m, x: x * (x > 0), lambda m, x: x.clamp(-1, 1), lambda m, x: torch.maximum(x, 0.1 * x))  # fmt: skip
simple("power", lambda m, x: x * x, lambda m, x: x.abs().add(1).sqrt(), lambda m, x: x.sigmoid() ** 1.5,
       lambda m, x: x.abs().add(1).log(), lambda m, x: x.sin() * x.cos(), lambda m, x: torch.addcmul(x, x, x.tanh()))  # fmt: skip
simple("reduce", lambda m, x: x - x.mean(-1, keepdim=True), lambda m, x: x / x.abs().amax(-1, keepdim=True).add(1),
       lambda m, x: x / (x.var(-1, keepdim=True, unbiased=False) + 1).sqrt(), lambda m, x: x - x.logsumexp(-1, keepdim=True))  # fmt: skip
simple("join", lambda m, x: torch.cat([x, x.tanh()], -1), lambda m, x: torch.stack(x.unbind(-1)[::-1], -1),
       lambda m, x: torch.cat(x.chunk(2, -1)[::-1], -1))  # fmt: skip
simple("spectrum", lambda m, x: torch.fft.rfft(x).abs(), lambda m, x: torch.fft.fft(x).real)
simple("outer", lambda m, x: torch.einsum("ni,nj->nij", x, x).flatten(1)[:, :12], takes=["vector"])
simple("gram", lambda m, x: torch.bmm(x, x.transpose(1, 2)) * 0.2, lambda m, x: torch.cdist(x, x) * 0.2,
       lambda m, x: x.tril(), takes=["sequence"])  # fmt: skip
simple("flatten", lambda m, x: x.flatten(1), takes=["sequence", "image", "volume"], gives="vector")
BLOCKS["flatten"] = Block(
    lambda shape, pick: nn.Flatten(), BLOCKS["flatten"].takes, "vector", False, False
)
simple(
    "to_sequence",
    lambda m, x: x.flatten(2).transpose(1, 2),
    takes=["image", "volume"],
    gives="sequence",
)
simple(
    "as_steps",
    lambda m, x: x.unsqueeze(1) * torch.arange(1, 4, dtype=x.dtype)[:, None],
    takes=["vector"],
    gives="sequence",
)
simple("as_image", lambda m, x: x.unsqueeze(1), takes=["sequence"], gives="image")
simple(
    "detach",
    lambda m, x: x.detach().tanh() * x,
    lambda m, x: x - x.detach().mean(-1, keepdim=True),
    opaque=True,
)
simple("in_place", lambda m, x: x.clone().mul_(0.5).add_(1), lambda m, x: (x + 0).clamp_(-1, 1),
       lambda m, x: (x * 1).tanh_())  # fmt: skip
simple(
    "batch_mean",
    lambda m, x: x - x.mean(0),
    lambda m, x: x / (x.std(0, unbiased=False) + 1),
    couples=True,
)
simple("batch_maximum", lambda m, x: x / (x.detach().abs().amax() + 1), couples=True, opaque=True)
simple(
    "batch_attention",
    lambda m, x: (x @ x.t() * 0.2).softmax(-1) @ x,
    takes=["vector"],
    couples=True,
)
simple(
    "reordered",
    lambda m, x: x[x.sum(tuple(range(1, x.ndim))).argsort()][
        x.sum(tuple(range(1, x.ndim))).argsort().argsort()
    ],
)
simple("writes_input", lambda m, x: x.sub_(0.1), lambda m, x: x.mul_(0.5).add_(0.1))


@block("vector")
def sorted_inside(shape, pick):
    """Examples are put in another order by data, go through a layer, and come back."""

    def run(m: Call, x: Tensor) -> Tensor:
        order = x[:, 0].detach().argsort()
        return m.layer(x[order]).index_select(0, order.argsort())

    return calling("sort, linear, unsort", run, layer=nn.Linear(shape[-1], 4))


@block("sequence")
def selected_steps(shape, pick):
    """Only the time steps that a mask from data selects go through a layer."""

    def run(m: Call, x: Tensor) -> Tensor:
        mask = x[..., 0].detach() > 0
        out = x.clone()
        out[mask] = m.layer(x[mask])
        return out

    return calling("x[mask] = linear(x[mask])", run, layer=nn.Linear(shape[-1], shape[-1]))


@block("sequence", gives="vector")
def pooled_graph(shape, pick):
    """Nodes of all examples in one list, added up per graph, as graph networks do."""

    def run(m: Call, x: Tensor) -> Tensor:
        keep = (x[..., 0].detach() > -0.5).flatten()
        owner = torch.arange(len(x)).repeat_interleave(x.shape[1])[keep]
        nodes = m.layer(x.flatten(0, 1)[keep]).relu()
        return nodes.new_zeros(len(x), 4).index_add(0, owner, nodes)

    return calling("index_add over graphs", run, layer=nn.Linear(shape[-1], 4))


@block()
def assigned(shape, pick):
    def run(m: Call, x: Tensor) -> Tensor:
        y = x.clone()
        y[..., 0] = x[..., 0] * m.w
        y[..., -1:] += m.w
        return y

    return calling("y[..., 0] *= w", run, w=nn.Parameter(torch.tensor(0.7)))


@block("vector", couples=True, opaque=True)
def either(shape, pick):
    """One of two layers, by what is in the batch."""
    parts = nn.ModuleList([nn.Linear(shape[-1], 4), nn.Linear(shape[-1], 4)])
    return calling("either", lambda m, x: m.layers[int(x.detach().sum() > 0)](x), layers=parts)


# Functions with a derivative of their own.


class Sign(torch.autograd.Function):
    """Straight through."""

    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, g):
        return g


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return 2 * ctx.saved_tensors[0] * g


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        return 2 * ctx.saved_tensors[0] * g


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -g


class OwnLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w.t(), x.flatten(0, -2).t() @ g.flatten(0, -2)


@block(opaque=True)
def own_function(shape, pick):
    function = pick(Square, Once, Reversed, Sign)
    return calling(function.__name__, lambda m, x: function.apply(x))


@block()
def own_linear_function(shape, pick):
    return calling("own linear", lambda m, x: OwnLinear.apply(x, m.w), w=parameter(shape[-1], 4))


# State and randomness of a model's own.


@block(couples=True, opaque=True)
def running_mean(shape, pick):
    """A buffer that follows the batch, by assignment or in place."""
    assign = pick(False, True)

    def run(m: Call, x: Tensor) -> Tensor:
        if m.training:
            mean = 0.9 * m.mean + 0.1 * x.detach().mean().to(m.mean.dtype)
            if assign:
                m.mean = mean
            else:
                m.mean.copy_(mean)
        return x - m.mean.to(x.dtype)

    module = calling("running mean", run)
    module.register_buffer("mean", torch.zeros(()))
    return module


@block()
def counter(shape, pick):
    """A plain attribute that counts calls."""

    def run(m: Call, x: Tensor) -> Tensor:
        m.calls = m.calls + 1
        return x

    return calling("counts calls", run, calls=0)


@block()
def noise(shape, pick):
    """Random numbers of torch, Python and numpy."""
    made = pick(
        lambda m, x: x + 0.1 * torch.randn_like(x) if m.training else x,
        lambda m, x: x * random.choice([0.5, 1.0]) if m.training else x,
        lambda m, x: x * float(np.random.rand()) if m.training else x,
        lambda m, x: x * torch.bernoulli(torch.full_like(x, 0.7)),
    )
    return calling("noise", made)


@block()
def skipped_at_random(shape, pick):
    draw = pick(random.random, np.random.rand, lambda: float(torch.rand(())))
    d = shape[-1]
    return calling(
        "stochastic depth",
        lambda m, x: x + m.layer(x) if not m.training or draw() < 0.5 else x,
        layer=nn.Linear(d, d),
    )


# Blocks around other blocks.


class Residual(nn.Module):
    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        return (
            x + y if y.shape == x.shape else x + y.flatten(1).mean(1).view(-1, *[1] * (x.ndim - 1))
        )


class Branches(nn.Module):
    """The body's result beside its input, as vectors."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.body(x).flatten(1), x.flatten(1)], 1)


class Twice(nn.Module):
    """Tied layers: the same body again, where it fits."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        return self.body(y) if y.shape == x.shape else y + self.body(x * 0.5)


class Checkpointed(nn.Module):
    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body, self.active = body, True

    def forward(self, x: Tensor) -> Tensor:
        if not self.active:  # brute force does without
            return self.body(x)
        return checkpoint(self.body, x, use_reentrant=False)


class InBfloat16(nn.Module):
    """Autocast inside of the forward."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.body(x).to(x.dtype)


class InSinglePrecision(nn.Module):
    """The body is float32, whatever the rest is."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def _apply(self, fn: Any, recurse: bool = True) -> nn.Module:
        super()._apply(fn, recurse)
        self.body._apply(lambda t: t.float() if t.is_floating_point() else t)
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x.float()).to(x.dtype)


class InEval(nn.Module):
    """A body that stays in evaluation mode, as frozen statistics do."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def train(self, mode: bool = True) -> nn.Module:
        super().train(mode)
        self.body.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


class WithoutGradient(nn.Module):
    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return self.body(x)


def frozen(body: nn.Module) -> nn.Module:
    return body.requires_grad_(False)


AROUND: dict[str, Callable[[nn.Module], nn.Module]] = {
    "residual": Residual,
    "twice": Twice,
    "frozen": frozen,
    "checkpointed": Checkpointed,
    "branches": Branches,
    "in_eval": InEval,
    "without_gradient": WithoutGradient,
    "in_bfloat16": InBfloat16,
    "in_single_precision": InSinglePrecision,
}
