"""Residual networks for 32x32 images (He et al., 2016; pre-activation: He et al., 2016b).

    x -> conv 3x3, w -> stage w -> stage 2 w, /2 -> stage 4 w, /2 -> mean over pixels -> linear
    a stage is (depth - 2) / 6 units;  post:  y = relu(x' + norm conv relu norm conv x)
                                       pre:   y = x' + conv relu norm conv relu norm x
    x' is x, or a shortcut of x if the shape changes

Width w is 16. Parameters at 10 classes, `pad` shortcut: ResNet-20 0.27 M, -32 0.46 M, -56 0.85 M.
"""

from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import SettingError
from .initialisation import he
from .residual_parts import PAPER, PUBLISHED_CODE, Norm, conv3x3, shortcut


@dataclass(frozen=True)
class ResNetOptions:
    """The paper's network by default; `AS_PUBLISHED` is that of its public code.

    `stem_stride=2` halves the image in the first layer: a quarter of the cost, for small machines.
    """

    depth: int = 32
    width: int = 16
    stem_stride: int = 1
    classes: int = 10
    channels: int = 3
    pre_activation: bool = False
    shortcut: str = "pad"
    norm: Norm = PAPER

    def __post_init__(self) -> None:
        if self.depth < 8 or (self.depth - 2) % 6:
            raise SettingError(
                f"ResNet depth is {self.depth}; expected 6 k + 2: 8, 14, 20, 32, 44, 56, ..."
            )
        if self.width < 1:
            raise SettingError(f"ResNet width is {self.width}; expected a whole number from 1 up")


AS_PUBLISHED = ResNetOptions(pre_activation=True, shortcut="average_pool", norm=PUBLISHED_CODE)


class Unit(nn.Module):
    """Two 3x3 convolutions and a shortcut around them."""

    def __init__(self, inputs: int, outputs: int, stride: int, options: ResNetOptions) -> None:
        super().__init__()
        self.pre = options.pre_activation
        self.conv1 = conv3x3(inputs, outputs, stride)
        self.conv2 = conv3x3(outputs, outputs)
        self.norm1 = options.norm(inputs if self.pre else outputs)
        self.norm2 = options.norm(outputs)
        self.around = shortcut(options.shortcut, inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        """[n, inputs, h, w] to [n, outputs, h/stride, w/stride]."""
        if self.pre:
            y = self.conv1(F.relu(self.norm1(x)))
            y = self.conv2(F.relu(self.norm2(y)))
            out: Tensor = y + self.around(x)
            return out
        y = F.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return F.relu(y + self.around(x))


class ResNet(nn.Module):
    """Images [n, channels, 32, 32] to logits [n, classes]; other sizes divisible by 4 work too."""

    def __init__(self, options: ResNetOptions | None = None) -> None:
        super().__init__()
        self.options = options = options or ResNetOptions()
        count, width = (options.depth - 2) // 6, options.width
        self.stem = conv3x3(options.channels, width, options.stem_stride)
        self.stem_norm = nn.Identity() if options.pre_activation else options.norm(width)
        widths = [width, *(k * width for k in (1, 2, 4) for _ in range(count))]
        units = (Unit(i, o, 2 if o > i else 1, options) for i, o in pairwise(widths))
        self.units = nn.Sequential(*units)
        self.head_norm = options.norm(4 * width) if options.pre_activation else nn.Identity()
        self.head = nn.Linear(4 * width, options.classes)
        he(self)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = self.stem(x)
        # A pre-activation unit starts with its norm, so only the output of the last one needs one.
        x = x if self.options.pre_activation else F.relu(self.stem_norm(x))
        x = self.units(x)
        x = F.relu(self.head_norm(x)) if self.options.pre_activation else x
        logits: Tensor = self.head(x.mean(dim=(2, 3)))
        return logits
