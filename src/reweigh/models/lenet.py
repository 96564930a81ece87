"""LeNet as in the paper's experiment on the digits 4 and 9.

    x -> [conv 5x5 -> max-pool 3x3, /2 -> relu] x 3, 16 32 64 channels, 28 -> 14 -> 7 -> 4 pixels
      -> linear 1024-100 -> relu -> linear 100-outputs

Convolutions and pools have TensorFlow's "same" padding: an odd pixel is padded at the right and at
the bottom. Weights start as N(0, .1^2), cut at two standard deviations, biases at zero. With one output the
logits are [n], for a binary cross-entropy; with more they are [n, outputs].
"""

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import SettingError


@dataclass(frozen=True)
class LeNetOptions:
    """`outputs=1` for the paper's binary task, `outputs=10` for all digits."""

    outputs: int = 1
    channels: int = 1

    def __post_init__(self) -> None:
        if self.outputs < 1:
            raise SettingError(f"LeNet outputs is {self.outputs}; expected 1 (binary) or more")


class LeNet(nn.Module):
    """Images [n, channels, 28, 28] to logits [n] or [n, outputs]."""

    row_wise = True

    def __init__(self, options: LeNetOptions | None = None) -> None:
        super().__init__()
        self.options = options = options or LeNetOptions()
        self.conv1 = nn.Conv2d(options.channels, 16, 5, padding=2)
        self.conv2 = nn.Conv2d(16, 32, 5, padding=2)
        self.conv3 = nn.Conv2d(32, 64, 5, padding=2)
        self.hidden = nn.Linear(64 * 4 * 4, 100)
        self.head = nn.Linear(100, options.outputs)
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.trunc_normal_(parameter, std=0.1, a=-0.2, b=0.2)
            else:
                nn.init.zeros_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        # "Same" padding: even sizes get one window more, over the right edge; odd ones (7) get one
        # pixel on each side.
        x = F.relu(F.max_pool2d(self.conv1(x), 3, 2, ceil_mode=True))
        x = F.relu(F.max_pool2d(self.conv2(x), 3, 2, ceil_mode=True))
        x = F.relu(F.max_pool2d(self.conv3(x), 3, 2, padding=1))
        logits: Tensor = self.head(F.relu(self.hidden(x.flatten(1))))
        return logits.squeeze(1) if self.options.outputs == 1 else logits
