"""Small networks for small data: a plain MLP, and a CNN for images of 8x8 digits.

MLP        flatten -> [linear -> relu -> dropout] for each hidden size -> linear
DigitsCNN  conv 3x3, 32 -> relu -> conv 3x3, 64 -> relu -> max-pool 2x2 -> linear 128 -> linear
"""

from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import SettingError
from .initialisation import he


@dataclass(frozen=True)
class MLPOptions:
    """`inputs` is the number of features, or of pixels."""

    inputs: int = 64
    hidden: tuple[int, ...] = (256, 256)
    classes: int = 10
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for size in (self.inputs, *self.hidden, self.classes):
            if size < 1:
                raise SettingError(f"an MLP layer has size {size}; expected 1 or more")
        if not 0 <= self.dropout < 1:
            raise SettingError(f"dropout is {self.dropout}; expected from 0 to under 1")


class MLP(nn.Module):
    """Inputs that flatten to [n, inputs] to logits [n, classes]."""

    row_wise = True  # treats examples one by one: both batches may share a pass

    def __init__(self, options: MLPOptions | None = None) -> None:
        super().__init__()
        self.options = options = options or MLPOptions()
        sizes = [options.inputs, *options.hidden]
        layers: list[nn.Module] = [nn.Flatten()]
        for inputs, outputs in pairwise(sizes):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
            if options.dropout:
                layers.append(nn.Dropout(options.dropout))
        self.layers = nn.Sequential(*layers, nn.Linear(sizes[-1], options.classes))
        he(self)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.layers(x)
        return logits


class DigitsCNN(nn.Module):
    """Images [n, 1, 8, 8] to logits [n, classes]."""

    row_wise = True

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.hidden = nn.Linear(64 * 4 * 4, 128)
        self.head = nn.Linear(128, classes)
        he(self)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = F.max_pool2d(x, 2).flatten(1)
        logits: Tensor = self.head(F.relu(self.hidden(x)))
        return logits
