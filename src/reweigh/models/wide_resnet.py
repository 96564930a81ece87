"""Wide residual networks (Zagoruyko and Komodakis, 2016).

    x -> conv 3x3, 16 -> stage 16 k -> stage 32 k, /2 -> stage 64 k, /2 -> norm relu mean -> linear
    a stage is (depth - 4) / 6 units;   y = x' + conv dropout relu norm conv a,   a = relu norm x
    x' is x, or a 1x1 convolution of `a` if the shape changes

Parameters at 10 classes: WRN-28-10 36.5 M, WRN-16-4 2.7 M.

`dropout_at="input"` puts the dropout before the first convolution of a unit, except in the first
unit, as the public code of the reweighting paper does. The default is between the two convolutions,
as in the paper on wide residual networks.
"""

from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import SettingError, unknown
from .initialisation import he
from .residual_parts import PAPER, PUBLISHED_CODE, Norm, conv3x3, shortcut

DROPOUT_PLACES = ("between", "input")


@dataclass(frozen=True)
class WideResNetOptions:
    """WRN-28-10 with dropout .3 by default; `AS_PUBLISHED` is that of the public code."""

    depth: int = 28
    width: int = 10
    classes: int = 10
    channels: int = 3
    dropout: float = 0.3
    dropout_at: str = "between"
    shortcut: str = "projection"
    norm: Norm = PAPER

    def __post_init__(self) -> None:
        if self.depth < 10 or (self.depth - 4) % 6:
            raise SettingError(
                f"WRN depth is {self.depth}; expected 6 k + 4: 10, 16, 22, 28, 40, ..."
            )
        if self.width < 1:
            raise SettingError(f"WRN width is {self.width}; expected a whole number from 1 up")
        if not 0 <= self.dropout < 1:
            raise SettingError(f"dropout is {self.dropout}; expected from 0 to under 1")
        if self.dropout_at not in DROPOUT_PLACES:
            raise unknown("dropout place", self.dropout_at, DROPOUT_PLACES)


AS_PUBLISHED = WideResNetOptions(dropout_at="input", shortcut="average_pool", norm=PUBLISHED_CODE)


class WideUnit(nn.Module):
    """A pre-activation unit with dropout."""

    def __init__(
        self, inputs: int, outputs: int, stride: int, *, first: bool, options: WideResNetOptions
    ) -> None:
        super().__init__()
        self.norm1 = options.norm(inputs)
        self.conv1 = conv3x3(inputs, outputs, stride)
        self.norm2 = options.norm(outputs)
        self.conv2 = conv3x3(outputs, outputs)
        at_input = options.dropout_at == "input"
        self.dropout1 = nn.Dropout(options.dropout if at_input and not first else 0.0)
        self.dropout2 = nn.Dropout(0.0 if at_input else options.dropout)
        self.around = shortcut(options.shortcut, inputs, outputs, stride)
        self.changes = inputs != outputs or stride != 1

    def forward(self, x: Tensor) -> Tensor:
        """[n, inputs, h, w] to [n, outputs, h/stride, w/stride]."""
        active = F.relu(self.norm1(x))
        y = self.conv1(self.dropout1(active))
        y = self.conv2(self.dropout2(F.relu(self.norm2(y))))
        out: Tensor = y + self.around(active if self.changes else x)
        return out


class WideResNet(nn.Module):
    """Images [n, channels, 32, 32] to logits [n, classes]."""

    def __init__(self, options: WideResNetOptions | None = None) -> None:
        super().__init__()
        self.options = options = options or WideResNetOptions()
        count, width = (options.depth - 4) // 6, options.width
        self.stem = conv3x3(options.channels, 16)
        widths = [16, *(k * width for k in (16, 32, 64) for _ in range(count))]
        units = (
            WideUnit(i, o, 2 if k and o > i else 1, first=k == 0, options=options)
            for k, (i, o) in enumerate(pairwise(widths))
        )
        self.units = nn.Sequential(*units)
        self.head_norm = options.norm(64 * width)
        self.head = nn.Linear(64 * width, options.classes)
        he(self)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = F.relu(self.head_norm(self.units(self.stem(x))))
        logits: Tensor = self.head(x.mean(dim=(2, 3)))
        return logits
