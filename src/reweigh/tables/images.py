"""Image folders, one folder a class, decoded to bytes of one size.

    FOLDER/cat/1.jpg  FOLDER/dog/a/2.png ...     the class is the first folder's name

The listing is sorted, so that a file's position in it, from 0, is its index. An image is turned as
its camera says, its middle cut to a square, then resized. A file that cannot be decoded keeps its
index, is left out, and is listed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from ..errors import DataError
from ..optional import optional

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
SMALL, LARGE = 32, 64
AT_ONCE = 256
PIXELS = 80_000_000
"""An image of more is taken for a decompression bomb."""

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class ImageFolder:
    """`files` relative to `path`, with `/`, sorted; `names` [n] their classes."""

    path: Path
    files: tuple[str, ...]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.files)

    def pieces(self) -> Iterator[list[Path]]:
        """The files in order, some at a time."""
        yield from pieces_of([self.path / name for name in self.files])


def pieces_of(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """`AT_ONCE` at a time."""
    for start in range(0, len(paths), AT_ONCE):
        yield list(paths[start : start + AT_ONCE])


def open_folder(path: str | Path) -> ImageFolder:
    """List the images of a folder with one folder a class."""
    path = Path(path)
    if not path.is_dir():
        raise DataError(f"{path} is no folder; expected one with a folder of images a class")
    files = list_images(path)
    loose = [name for name in files if "/" not in name]
    inside = [name for name in files if "/" in name]
    if not inside:
        what = "images, but no folder a class" if loose else "no images"
        raise DataError(
            f"{path} has {what}; expected {path.name}/CLASS/picture.jpg ({', '.join(SUFFIXES)})"
        )
    return ImageFolder(path, tuple(inside), tuple(name.split("/", 1)[0] for name in inside))


def list_images(path: Path) -> list[str]:
    """Every image below a folder, relative to it, sorted; hidden files and folders are skipped."""
    found = []
    for folder, folders, files in os.walk(path):
        folders[:] = [name for name in folders if not name.startswith(".")]
        relative = Path(folder).relative_to(path)
        found += [
            (relative / name).as_posix()
            for name in files
            if name.lower().endswith(SUFFIXES) and not name.startswith(".")
        ]
    return sorted(found)


@dataclass(frozen=True)
class ImageEncoder:
    """Squares of `size` pixels with 1 (grey) or 3 channels, as bytes."""

    size: int
    channels: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one encoded image."""
        return (self.channels, self.size, self.size)

    def encode(self, files: Sequence[Path | IO[bytes]]) -> tuple[Bytes, list[bool]]:
        """[n, channels, size, size] and which could be read; the others are black."""
        with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
            images = list(pool.map(self._decoded, files))
        black = np.zeros(self.shape, dtype=np.uint8)
        return (
            np.stack([black if image is None else image for image in images]),
            [image is not None for image in images],
        )

    def _decoded(self, file: Path | IO[bytes]) -> Bytes | None:
        image = opened(file)
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
        """One number an encoded image."""
        return np.array(
            [
                int.from_bytes(hashlib.blake2b(image.tobytes(), digest_size=8).digest(), "big")
                for image in encoded
            ],
            dtype=np.uint64,
        )

    def state(self) -> dict[str, Any]:
        """All of it, as JSON."""
        return {"size": self.size, "channels": self.channels}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> ImageEncoder:
        """Back from JSON."""
        return cls(state["size"], state["channels"])


def fit_images(folder: ImageFolder, *, size: int | None = None) -> ImageEncoder:
    """Size and channels from up to 100 images spread over the folder; `size` overrules."""
    step = max(1, len(folder) // 100)
    seen = [opened(folder.path / name) for name in folder.files[::step]]
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


def opened(file: Path | IO[bytes]) -> Any:
    """The image, turned upright and fully decoded; None if that fails for any reason."""
    pillow: Any = optional("PIL.Image", package="pillow", needed_for="reading images")
    upright = optional("PIL.ImageOps", package="pillow", needed_for="reading images")
    try:
        with pillow.open(file) as image:
            if image.width * image.height > PIXELS:
                return None
            image.load()
            return upright.exif_transpose(image)
    # Pillow's decoders raise whatever a broken file leads them to.
    except Exception:
        return None
