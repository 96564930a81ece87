"""The networks and batches on which the cost of a step is measured."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core import per_example
from ...models import MLP, MLPOptions, build

LENGTH, WORDS, WIDTH, HEADS = 32, 512, 128, 4
Batch = tuple[Tensor, Tensor]


class CausalBlock(nn.Module):
    """Causal attention and a feed-forward layer, each after a norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """[n, length, width] to the same."""
        n, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(n, length, width))
        y: Tensor = x + self.down(F.gelu(self.up(self.norm2(x))))
        return y


class CausalTransformer(nn.Module):
    """Two causal blocks over learned positions: tokens [n, length] to logits."""

    def __init__(self, width: int = WIDTH, depth: int = 2) -> None:
        super().__init__()
        self.table = nn.Embedding(WORDS, width)
        self.places = nn.Parameter(torch.randn(1, LENGTH, width) * 0.02)
        self.blocks = nn.Sequential(*(CausalBlock(width) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, WORDS, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [n, length, words]."""
        logits: Tensor = self.head(self.norm(self.blocks(self.table(x) + self.places)))
        return logits


class Encoder(nn.Module):
    """Four layers of `nn.TransformerEncoder` with dropout, averaged and classified."""

    def __init__(self, width: int = WIDTH, depth: int = 4) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, HEADS, 2 * width, dropout=0.1, batch_first=True)
        self.table = nn.Embedding(WORDS, width)
        self.places = nn.Parameter(torch.randn(1, LENGTH, width) * 0.02)
        self.body = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [n, 10]."""
        logits: Tensor = self.head(self.body(self.table(x) + self.places).mean(1))
        return logits


def next_word(model: nn.Module, batch: Batch) -> Tensor:
    """The mean loss of predicting each word from those before it."""
    x = batch[0]
    losses = F.cross_entropy(model(x)[:, :-1].transpose(1, 2), x[:, 1:], reduction="none")
    return losses.mean(1)


def pictures(*shape: int) -> Callable[[int], Batch]:
    """Random images with random labels of ten classes."""
    return lambda n: (torch.randn(n, *shape), torch.randint(10, (n,)))


def sentences(n: int) -> Batch:
    """Random words with random labels."""
    return torch.randint(WORDS, (n, LENGTH)), torch.randint(10, (n,))


cross_entropy = per_example(F.cross_entropy)


@dataclass(frozen=True)
class Case:
    """A model, its loss and its batches; `heavy` ones are timed fewer times."""

    model: Callable[[], nn.Module]
    batch: Callable[[int], Batch]
    loss: Any = cross_entropy
    heavy: bool = False


CASES = {
    "mlp": Case(lambda: MLP(MLPOptions(inputs=784)), pictures(784)),
    "mlp-wide": Case(lambda: MLP(MLPOptions(inputs=784, hidden=(2048, 2048))), pictures(784)),
    "lenet": Case(lambda: build("lenet"), pictures(1, 28, 28)),
    "transformer": Case(Encoder, sentences),
    "lm": Case(CausalTransformer, sentences, next_word),
    "resnet32": Case(lambda: build("resnet32"), pictures(3, 32, 32), heavy=True),
    "wrn16-4": Case(lambda: build("wrn16-4"), pictures(3, 32, 32), heavy=True),
}
