"""From the fields of a row to an example: inputs and a target.

Fields(("age", "income"), "label")                          columns side by side, float32 [n, 2]
Fields("image", "label")                                    one field of arrays [n, ...]
Fields("jpg", "cls", images=ImageEncoder(64, 3))            files of images, as bytes [n, 3, 64, 64]
"""

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...encoders import ImageEncoder
from ...errors import SettingError
from .row_arrays import Rows

Values = npt.NDArray[Any]


class BadRow(Exception):
    """What is wrong with the row at `position` of a piece; the caller knows the file and names it."""

    def __init__(self, position: int, what: str) -> None:
        super().__init__(position, what)
        self.position, self.what = position, what


@dataclass(frozen=True)
class Fields:
    """Which fields an example is made of.

    inputs     one field, or several columns of numbers that are put side by side
    target     a class (a whole number, or one of `classes` by name) or, in a regression, a number
    images     how to decode inputs that are files of images; without it they are numbers
    """

    inputs: str | tuple[str, ...]
    target: str
    classes: tuple[str, ...] = ()
    images: ImageEncoder | None = None

    def __post_init__(self) -> None:
        if self.images is not None and len(self.columns) != 1:
            raise SettingError(f"images from {len(self.columns)} fields; expected one field")

    @property
    def columns(self) -> tuple[str, ...]:
        """The fields of the inputs."""
        return (self.inputs,) if isinstance(self.inputs, str) else self.inputs

    @property
    def names(self) -> tuple[str, ...]:
        """All fields that are read."""
        return (*self.columns, self.target)

    def decode(self, rows: Rows) -> Values:
        """The inputs, [n, ...]."""
        first = rows[self.columns[0]]
        if self.images is not None:
            pixels, readable = self.images.encode([io.BytesIO(content) for content in first])
            if not all(readable):
                raise BadRow(readable.index(False), f"{self.columns[0]!r} cannot be decoded as an image")  # fmt: skip
            return pixels
        for name in self.columns:
            if rows[name].dtype == object:
                raise BadRow(0, f"{name!r} is no number: {_shown(rows[name][0])}")
        if len(self.columns) == 1 and first.ndim > 1:
            return first if first.dtype in (np.uint8, np.float16) else first.astype(np.float32)
        return np.stack([rows[name] for name in self.columns], axis=1).astype(np.float32)

    def labels(self, rows: Rows) -> Values:
        """The targets, [n]: int64, or float32 in a regression."""
        values = rows[self.target]
        if self.classes:
            known = {name: k for k, name in enumerate(self.classes)}
            codes = np.array([known.get(_text(value), -1) for value in values], dtype=np.int64)
            if (codes < 0).any():
                at = int(np.argmax(codes < 0))
                raise BadRow(at, f"{self.target!r} is {_shown(values[at])}, none of the classes")
            return codes
        if values.dtype == object:
            return np.array([_number(value, k, self.target) for k, value in enumerate(values)])
        if values.dtype.kind == "f":
            if not np.isfinite(values).all():
                at = int(np.argmax(~np.isfinite(values)))
                raise BadRow(at, f"{self.target!r} is missing or no finite number")
            return values.astype(np.float32)
        return values.astype(np.int64)


def _text(value: object) -> str:
    return (value.decode() if isinstance(value, bytes) else str(value)).strip()


def _number(value: object, position: int, field: str) -> int:
    try:
        return int(_text(value))
    except ValueError:
        raise BadRow(position, f"{field!r} is {_shown(value)}, no whole number; for names, give classes") from None  # fmt: skip


def _shown(value: object) -> str:
    return repr(value)[:40]
