"""Parts of residual networks: batch normalisation with options, shortcuts and 3x3 convolutions.

    norm          y = scale * (x - mean) / sqrt(var + eps) + shift
                  running <- (1 - momentum) * running + momentum * batch

`scale=False` fixes the scale at one, as in the paper's public code. It stays as a buffer, so that
kernels and code that read `norm.weight` still work, but it is not a parameter that would be counted,
trained or weighed. Shortcuts add the input of a unit to its output if the shape changes:

    pad           take every other pixel, append zero channels      no parameters (He et al., option A)
    average_pool  mean of 2x2 pixels, append zero channels          no parameters (published code)
    projection    1x1 convolution with stride                       in x out parameters
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import unknown


@dataclass(frozen=True)
class Norm:
    """Options of every BatchNorm in a model; TensorFlow's decay is 1 - momentum."""

    scale: bool = True
    eps: float = 1e-5
    momentum: float = 0.1

    def __call__(self, channels: int) -> nn.BatchNorm2d:
        """A batch norm layer for `channels` channels."""
        layer = nn.BatchNorm2d(channels, eps=self.eps, momentum=self.momentum)
        if not self.scale:
            del layer.weight
            layer.register_buffer("weight", torch.ones(channels))
        return layer


PAPER = Norm()
PUBLISHED_CODE = Norm(scale=False, eps=1e-3, momentum=1e-3)


class PadShortcut(nn.Module):
    """Subsample by `stride` (by mean or by skipping) and add zero channels, equally on both sides."""

    def __init__(self, inputs: int, outputs: int, stride: int, *, mean: bool) -> None:
        super().__init__()
        self.before = (outputs - inputs) // 2
        self.after = outputs - inputs - self.before
        self.stride = stride
        self.mean = mean

    def forward(self, x: Tensor) -> Tensor:
        """[n, inputs, h, w] to [n, outputs, h/stride, w/stride]."""
        if self.stride > 1 and self.mean:
            x = F.avg_pool2d(x, self.stride)
        elif self.stride > 1:
            x = x[:, :, :: self.stride, :: self.stride]
        return F.pad(x, (0, 0, 0, 0, self.before, self.after))


SHORTCUTS: Mapping[str, Callable[[int, int, int], nn.Module]] = MappingProxyType(
    {
        "pad": lambda i, o, s: PadShortcut(i, o, s, mean=False),
        "average_pool": lambda i, o, s: PadShortcut(i, o, s, mean=True),
        "projection": lambda i, o, s: nn.Conv2d(i, o, 1, s, bias=False),
    }
)


def shortcut(kind: str, inputs: int, outputs: int, stride: int) -> nn.Module:
    """The shortcut called `kind`; the identity if the shape does not change."""
    if kind not in SHORTCUTS:
        raise unknown("shortcut", kind, SHORTCUTS)
    if inputs == outputs and stride == 1:
        return nn.Identity()
    return SHORTCUTS[kind](inputs, outputs, stride)


def conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    """A 3x3 convolution without bias that keeps the size of the image, divided by `stride`."""
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
