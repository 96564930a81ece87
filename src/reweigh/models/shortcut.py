"""Shortcuts: how the input of a residual unit is added to its output if the shape changes.

pad           take every other pixel, append zero channels      no parameters (He et al., option A)
average_pool  mean of 2x2 pixels, append zero channels          no parameters (published code)
projection    1x1 convolution with stride                       in x out parameters
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import unknown


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
        if self.stride > 1:
            x = (
                F.avg_pool2d(x, self.stride)
                if self.mean
                else x[:, :, :: self.stride, :: self.stride]
            )
        return F.pad(x, (0, 0, 0, 0, self.before, self.after))


def _projection(inputs: int, outputs: int, stride: int) -> nn.Module:
    return nn.Conv2d(inputs, outputs, 1, stride, bias=False)


SHORTCUTS: Mapping[str, Callable[[int, int, int], nn.Module]] = MappingProxyType(
    {
        "pad": lambda i, o, s: PadShortcut(i, o, s, mean=False),
        "average_pool": lambda i, o, s: PadShortcut(i, o, s, mean=True),
        "projection": _projection,
    }
)


def shortcut(kind: str, inputs: int, outputs: int, stride: int) -> nn.Module:
    """The shortcut called `kind`; the identity if the shape does not change."""
    if kind not in SHORTCUTS:
        raise unknown("shortcut", kind, SHORTCUTS)
    if inputs == outputs and stride == 1:
        return nn.Identity()
    return SHORTCUTS[kind](inputs, outputs, stride)
