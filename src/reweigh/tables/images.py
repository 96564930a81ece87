"""Folders of images with one folder per class, and zip archives of such folders.

    FOLDER/cat/1.jpg  FOLDER/dog/a/2.png ...     the class is the first folder's name

The listing is sorted, and the position of a file in it, from 0, is its index. A file that cannot be
decoded keeps its index. Archives are read without unpacking them: see `zipped_images.py`. Images in the cells
of a table are listed in the order of its rows: see `image_cells.py`.
"""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias

from ..errors import DataError
from ..optional import optional
from .endings import IMAGES as SUFFIXES
from .image_cells import ImageCell, cell_named, holds_cells, image_cells
from .shard_files import is_shards, shard_files
from .zipped_images import ZippedImage, is_image_archive, zipped_images

PIECE_FILES = 256
PIXELS = 80_000_000
"""An image with more pixels is taken for a decompression bomb."""

ImageFile: TypeAlias = Path | ZippedImage | ImageCell


@dataclass(frozen=True)
class ImageFolder:
    """`files` [n] relative to `path`, with `/`, sorted; `names` [n] their classes, if folders tell them.

    nameless    files left out, since their names are not UTF-8; escaped
    members     of an archive or a table: where each of `files` is in it
    column      of a table: the one with the images
    """

    path: Path
    files: tuple[str, ...]
    names: tuple[str, ...]
    nameless: tuple[str, ...] = ()
    members: tuple[ZippedImage, ...] | tuple[ImageCell, ...] = ()
    column: str | None = None

    def __len__(self) -> int:
        return len(self.files)

    @property
    def images(self) -> Sequence[ImageFile]:
        """The files in order, to be opened."""
        return self.members or [self.path / name for name in self.files]

    @property
    def read_from(self) -> Sequence[Path]:
        """All files that are read."""
        if self.column is not None and is_shards(self.path):
            return shard_files(self.path)
        if self.column is not None and self.path.is_dir():
            return sorted(file for file in self.path.iterdir() if file.is_file())
        return [self.path] if self.members else [self.path / name for name in self.files]

    @property
    def shards(self) -> dict[str, int]:
        """The images of each file, by its name, where they are in the cells of several."""
        if self.column is None or not is_shards(self.path):
            return {}
        counts = Counter(cell.table for cell in self.members if isinstance(cell, ImageCell))
        return {file.name: counts[file] for file in shard_files(self.path)}

    def pieces(self) -> Iterator[list[ImageFile]]:
        """The files in order, some at a time."""
        yield from image_pieces(self.images)


def image_pieces(images: Sequence[ImageFile]) -> Iterator[list[ImageFile]]:
    """The same images, `PIECE_FILES` at a time."""
    for start in range(0, len(images), PIECE_FILES):
        yield list(images[start : start + PIECE_FILES])


def open_images(path: str | Path) -> ImageFolder:
    """List the images of a folder, or of a zip archive, that has one folder per class."""
    path = Path(path)
    archive = zipped_images(path, SUFFIXES) if is_image_archive(path) else None
    if archive is None and not path.is_dir():
        raise DataError(f"{path} is no folder; expected one with a folder of images a class")
    found = _walk(path) if archive is None else list(archive)
    files = [name for name in found if _is_utf8(name)]
    nameless = [_escaped(name) for name in found if not _is_utf8(name)]
    loose = [name for name in files if "/" not in name]
    inside = [name for name in files if "/" in name]
    if not inside:
        what = "images, but no folder a class" if loose else "no images"
        what = f"only images whose names are not UTF-8, as {nameless[0]}" if nameless else what
        raise DataError(
            f"{path} has {what}; expected {path.name}/CLASS/picture.jpg ({', '.join(SUFFIXES)})"
        )
    classes = tuple(name.split("/", 1)[0] for name in inside)
    members = () if archive is None else tuple(archive[name] for name in inside)
    return ImageFolder(path, tuple(inside), classes, tuple(nameless), members)


def open_image_cells(path: Path, column: str) -> ImageFolder:
    """The images in a column of a table, in the order of its rows."""
    cells = tuple(image_cells(path, column))
    return ImageFolder(path, tuple(cell.name for cell in cells), (), (), cells, column)


def list_images(path: Path) -> dict[str, ImageFile]:
    """Every image below a folder or in an archive, by its relative path, sorted.

    Hidden files and folders are skipped. So are names that are not UTF-8: no table, page or report
    could show them.
    """
    if is_image_archive(path):
        return {n: image for n, image in zipped_images(path, SUFFIXES).items() if _is_utf8(n)}
    return {name: path / name for name in _walk(path) if _is_utf8(name)}


def image_at(data: Path, name: str) -> ImageFile | None:
    """The image that `name` is in a folder, an archive or a table; None if it is gone, or lies outside."""
    try:
        if holds_cells(data):
            return cell_named(data, name)
    except DataError:  # files of several tables
        return None
    if is_image_archive(data):
        return zipped_images(data, SUFFIXES).get(name)
    try:
        root = data.resolve(strict=True)
        path = (root / name).resolve(strict=True)
    except (OSError, ValueError, RuntimeError):
        return None
    inside = not Path(name).is_absolute() and path.is_relative_to(root)
    return path if inside and path.is_file() else None


def _is_utf8(name: str) -> bool:
    """Whether a name of a file is text; Python hides other bytes in lone surrogates."""
    return name.isascii() or not any("\ud800" <= character <= "\udfff" for character in name)


def _escaped(name: str) -> str:
    return os.fsencode(name).decode("utf-8", errors="backslashreplace")


def _walk(path: Path) -> list[str]:
    images = []
    for folder, folders, files in os.walk(path):
        folders[:] = [name for name in folders if not name.startswith(".")]
        relative = Path(folder).relative_to(path)
        images += [
            (relative / name).as_posix()
            for name in files
            if name.lower().endswith(SUFFIXES) and not name.startswith(".")
        ]
    return sorted(images)


def open_image(file: ImageFile | IO[bytes]) -> Any:
    """The image, turned upright and fully decoded; None if that fails for any reason."""
    pillow: Any = optional("PIL.Image", package="pillow", needed_for="reading images")
    upright = optional("PIL.ImageOps", package="pillow", needed_for="reading images")
    try:
        with pillow.open(
            file.open() if isinstance(file, (ZippedImage, ImageCell)) else file
        ) as image:
            if image.width * image.height > PIXELS:
                return None
            image.load()
            return upright.exif_transpose(image)
    # Pillow's decoders raise whatever a broken file leads them to.
    except Exception:
        return None
