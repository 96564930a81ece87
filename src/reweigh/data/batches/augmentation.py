"""Random crops and mirror images, and bytes to numbers: whole batches at once, on any device.

    crop_and_flip   pad p black pixels on each side, cut height x width at (dy, dx), mirror some
    Scaling         x = (byte / peak - mean) / std, per channel

The draws come from a keyed stream on the CPU, so a batch is augmented the same way on every device;
the images are cut on the device they are on. Cost: one gather of bytes and one multiply-add in float32
per batch, no Python per example.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from ...errors import SettingError
from ...rng import Draws
from ..tasks import Examples


@dataclass(frozen=True)
class Augmentation:
    """`pad` pixels on each side before cropping back to size; `flip` mirrors half the images."""

    pad: int = 4
    flip: bool = True

    def __post_init__(self) -> None:
        if self.pad < 0:
            raise SettingError(f"pad is {self.pad}; expected a whole number from 0 up")


AUGMENTATIONS: Mapping[str, Augmentation | None] = MappingProxyType(
    {
        "none": None,
        "standard": Augmentation(pad=4),
        "published_code": Augmentation(pad=2),  # 32 is padded to 36
    }
)
"""What a batch of images may go through before training, by name."""


@dataclass(frozen=True)
class Scaling:
    """Per-channel mean and standard deviation of `byte / peak`; one value serves all channels."""

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    @classmethod
    def of(cls, examples: Examples, peak: int = 255) -> Scaling:
        """The channel statistics of `examples`: inputs then have mean 0 and variance 1."""
        channels = examples.inputs.shape[1]
        # Counting bytes is exact and needs no float copy of a large, memory-mapped set.
        values = torch.arange(256, dtype=torch.float64) / peak
        mean, std = [], []
        for c in range(channels):
            share = torch.bincount(examples.inputs[:, c].flatten(), minlength=256).double()
            share /= share.sum()
            centre = float((share * values).sum())
            mean.append(centre)
            std.append(float((share * (values - centre) ** 2).sum().sqrt()))
        return cls(tuple(mean), tuple(std))

    def __call__(self, images: Tensor, peak: int = 255) -> Tensor:
        """Bytes [n, c, h, w] to float32."""
        shape = (1, -1, 1, 1)
        scale = torch.tensor([1 / (peak * s) for s in self.std], device=images.device)
        shift = torch.tensor(
            [-m / s for m, s in zip(self.mean, self.std, strict=True)], device=images.device
        )
        return torch.addcmul(shift.view(shape), images.float(), scale.view(shape))


SCALINGS: Mapping[str, Scaling] = MappingProxyType(
    {
        "unit": Scaling(),  # [0, 1]
        "symmetric": Scaling((0.5,), (0.5,)),  # [-1, 1], as the published CIFAR code
    }
)
"""The ranges that pixels may be brought into, by name."""


def crop_and_flip(images: Tensor, dy: Tensor, dx: Tensor, mirror: Tensor, pad: int) -> Tensor:
    """Cut [n, c, h, w] out of images padded by `pad`, at (dy, dx) in 0 ... 2 pad; mirror some."""
    count, channels, height, width = images.shape
    padded = torch.nn.functional.pad(images, (pad, pad, pad, pad))
    across = torch.arange(width, device=images.device)
    columns = dx[:, None] + torch.where(mirror[:, None], across.flip(0), across)
    rows = dy[:, None] + torch.arange(height, device=images.device)
    wide = width + 2 * pad
    spots = (rows[:, :, None] * wide + columns[:, None, :]).view(count, 1, -1)
    flat = padded.view(count, channels, -1)
    return flat.gather(2, spots.expand(-1, channels, -1)).view(images.shape)


class Crops(NamedTuple):
    """Where each image is cut, int64 [n] each in 0 ... 2 pad, and which are mirrored, bool [n]."""

    dy: Tensor
    dx: Tensor
    mirror: Tensor

    def part(self, start: int, stop: int) -> Crops:
        """The crops of the images start ... stop-1."""
        return Crops(self.dy[start:stop], self.dx[start:stop], self.mirror[start:stop])


def draw_crops(augmentation: Augmentation, draws: Draws, count: int) -> Crops:
    """Crops for `count` images, each on its own, from the next draws of the stream."""
    span = 2 * augmentation.pad + 1
    dy, dx, coin = (torch.from_numpy(draws.below(bound, count)) for bound in (span, span, 2))
    return Crops(dy, dx, coin.bool() & augmentation.flip)


def augment(images: Tensor, augmentation: Augmentation, crops: Crops) -> Tensor:
    """Cut and mirror every image as its entry in `crops` says."""
    dy, dx, mirror = (field.to(images.device) for field in crops)
    return crop_and_flip(images, dy, dx, mirror, augmentation.pad)
