"""A plain convolutional network for images of any size: the default for a user's image folder.

    x -> [conv 3x3 -> relu -> max-pool 2x2] with 32, then 64 channels -> conv 3x3, 128 -> relu
      -> mean over each cell of a 4x4 grid -> linear 128 -> relu -> linear

There is no batch normalisation, so examples do not mix and the cheapest exact back-end can weigh
them. Cost: about 10 million multiplications for a 32x32 image.
"""

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import SettingError
from .initialisation import he


@dataclass(frozen=True)
class ImageCNNOptions:
    """`channels` 1 for grey images, 3 for colour; `classes` outputs."""

    channels: int = 3
    classes: int = 10

    def __post_init__(self) -> None:
        if self.channels < 1 or self.classes < 1:
            raise SettingError(
                f"channels={self.channels}, classes={self.classes}; expected 1 or more of each"
            )


class ImageCNN(nn.Module):
    """Images [n, channels, h, w], h and w 8 or more, to logits [n, classes]."""

    def __init__(self, options: ImageCNNOptions | None = None) -> None:
        super().__init__()
        self.options = options = options or ImageCNNOptions()
        self.conv1 = nn.Conv2d(options.channels, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.conv3 = nn.Conv2d(64, 128, 3, padding=1)
        self.hidden = nn.Linear(128 * 16, 128)
        self.head = nn.Linear(128, options.classes)
        he(self)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.adaptive_avg_pool2d(F.relu(self.conv3(x)), 4)
        logits: Tensor = self.head(F.relu(self.hidden(x.flatten(1))))
        return logits
