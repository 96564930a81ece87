"""The image of a suspect: a file inside the data folder or archive, in a form every browser shows.

The path comes from suspects.parquet, never from a request, and is still not trusted: absolute paths,
`..` and links that lead out of the folder are refused. What the file is, its content says: raster
images only, so that nothing in it can run.
"""

import io
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ..errors import DataError
from ..tables import ImageFile, image_at

AS_IT_IS = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp",
            "MPO": "image/jpeg"}  # fmt: skip
READ = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "PPM", "TGA")  # a JPEG may turn out an MPO
LARGEST = 64 << 20  # bytes
LONGEST_SIDE = 2_000  # pixels of a converted image


@dataclass(frozen=True)
class Picture:
    """An image file's form and size in pixels."""

    file: ImageFile
    form: str
    width: int
    height: int

    def open(self) -> IO[bytes]:
        """Its bytes."""
        return self.file.open("rb") if isinstance(self.file, Path) else self.file.open()


def picture(folder: Path, relative: str) -> Picture:
    """What the image is; only its head is read."""
    from PIL import Image, UnidentifiedImageError

    file = image_at(folder, relative)
    if file is None:
        raise DataError(
            f"the image {relative!r} is not in {folder}, or lies outside; it is not shown"
        )
    if isinstance(file, Path) and file.stat().st_size > LARGEST:
        raise DataError(f"the image {relative!r} is larger than {LARGEST >> 20} MB")
    shown = Picture(file, "", 0, 0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with shown.open() as stream, Image.open(stream, formats=list(READ)) as image:
                return Picture(file, image.format or "", image.width, image.height)
    except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombWarning,
            Image.DecompressionBombError):  # fmt: skip
        raise DataError(f"{relative!r} is not an image that can be shown") from None


def content(shown: Picture) -> tuple[bytes, str]:
    """The bytes to send and their type."""
    from PIL import Image

    if shown.form in AS_IT_IS:
        with shown.open() as raw:
            return raw.read(), AS_IT_IS[shown.form]
    try:
        with shown.open() as raw, Image.open(raw, formats=[shown.form]) as image:
            image.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
            plain = image if image.mode in ("L", "RGB", "RGBA") else image.convert("RGB")
            stream = io.BytesIO()
            plain.save(stream, format="PNG")
    except (OSError, ValueError, SyntaxError):
        raise DataError(f"{shown.file.name!r} cannot be decoded") from None
    return stream.getvalue(), "image/png"
