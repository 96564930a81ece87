"""Images as bytes of one size.

An image is turned upright as its camera says, its middle cut to a square, then resized. A file that
cannot be decoded becomes a black image and is reported as unreadable.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from ..errors import DataError
from ..tables import ImageFile, ImageFolder, open_image

SMALL, LARGE = 32, 64

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class ImageEncoder:
    """Squares of `size` pixels with 1 (grey) or 3 channels, as bytes."""

    size: int
    channels: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one encoded image."""
        return (self.channels, self.size, self.size)

    def encode(self, files: Sequence[ImageFile | IO[bytes]]) -> tuple[Bytes, list[bool]]:
        """[n, channels, size, size] and which could be read; the others are black."""
        with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
            images = list(pool.map(self._decoded, files))
        black = np.zeros(self.shape, dtype=np.uint8)
        pixels = np.stack([black if image is None else image for image in images])
        return pixels, [image is not None for image in images]

    def _decoded(self, file: ImageFile | IO[bytes]) -> Bytes | None:
        image = open_image(file)
        if image is None:
            return None
        from PIL import Image, ImageOps

        mode = "L" if self.channels == 1 else "RGB"
        square = ImageOps.fit(
            image.convert(mode), (self.size, self.size), Image.Resampling.BILINEAR
        )
        pixels = np.asarray(square, dtype=np.uint8)
        return pixels[None] if self.channels == 1 else np.moveaxis(pixels, 2, 0)

    @staticmethod
    def digests(encoded: Bytes) -> npt.NDArray[np.uint64]:
        """One number per encoded image."""
        hashed = [hashlib.blake2b(image.tobytes(), digest_size=8).digest() for image in encoded]
        return np.frombuffer(b"".join(hashed), dtype=">u8").astype(np.uint64)

    def state(self) -> dict[str, Any]:
        """The encoder as JSON."""
        return {"size": self.size, "channels": self.channels}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> ImageEncoder:
        """The encoder that `state` describes."""
        return cls(state["size"], state["channels"])


def fit_images(folder: ImageFolder, *, size: int | None = None) -> ImageEncoder:
    """Size and channels from up to 100 images spread over the folder; `size` overrules."""
    step = max(1, len(folder) // 100)
    seen = [open_image(image) for image in folder.images[::step]]
    images = [image for image in seen if image is not None]
    if not images:
        raise DataError(f"none of the images in {folder.path} can be read; are they images?")
    sides = sorted(min(image.size) for image in images)
    grey = all(image.mode in ("L", "1", "I;16", "I", "F") for image in images)
    if size is None:
        # The networks halve twice: a multiple of four.
        middle = sides[len(sides) // 2]
        size = LARGE if middle > 48 else max(8, min(SMALL, 4 * round(middle / 4)))
    return ImageEncoder(size, 1 if grey else 3)
