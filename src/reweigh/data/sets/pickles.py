"""CIFAR's pickle files without trusting them: a pickle is a program; almost none of it is run.

Allowed: dicts, lists, strings, bytes, numbers, and arrays of bytes or of 64-bit whole numbers as
numpy wrote them in 2009 or writes them today. The few names a numpy array needs are answered by stand-ins below, never by
numpy's or the standard library's own functions; any other name is refused before it is imported.
"""

import io
import pickle
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import DataError


class _Type:
    """Stands in for numpy.dtype: remembers the type code and the order of bytes, drops the rest."""

    order: object = "|"

    def __init__(self, code: str | bytes, *_: object) -> None:
        self.code = code.decode("ascii") if isinstance(code, bytes) else code

    def __setstate__(self, state: object) -> None:
        if isinstance(state, tuple) and len(state) > 1:
            self.order = state[1]


class _Array:
    """Stands in for numpy.ndarray; only whole arrays in C order become real."""

    value: npt.NDArray[np.uint8] | None = None

    def __setstate__(self, state: tuple[int, tuple[int, ...], _Type, bool, bytes]) -> None:
        _, shape, kind, fortran, raw = state
        self.value = _bytes_array(raw, kind, shape, fortran)


def _bytes_array(
    raw: object, kind: object, shape: object, fortran: object
) -> npt.NDArray[np.uint8]:
    """Bytes as they are; 64-bit whole numbers, little end first, if all of them fit in a byte."""
    if not isinstance(kind, _Type) or kind.code not in ("u1", "|u1", "B", "i8"):
        raise pickle.UnpicklingError("an array that is neither of bytes nor of 64-bit numbers")
    if fortran or not isinstance(shape, tuple) or not isinstance(raw, bytes | bytearray):
        raise pickle.UnpicklingError("an array in an unknown order")
    if kind.code != "i8":
        return np.frombuffer(bytes(raw), dtype=np.uint8).reshape(shape)
    if kind.order not in ("<", b"<"):
        raise pickle.UnpicklingError("numbers in an unknown order of bytes")
    values = np.frombuffer(bytes(raw), dtype="<i8")
    if len(values) and not 0 <= values.min() <= values.max() <= 255:
        raise pickle.UnpicklingError("numbers outside 0 ... 255")
    return values.astype(np.uint8).reshape(shape)


def _frombuffer(raw: object, kind: object, shape: object, order: object) -> _Array:
    array = _Array()
    array.value = _bytes_array(raw, kind, shape, order != "C")
    return array


def _latin1(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes written as {encoding}")
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Type,
    ("_codecs", "encode"): _latin1,
}
for _package in ("numpy.core", "numpy._core"):
    _ALLOWED[_package + ".multiarray", "_reconstruct"] = lambda *_: _Array()
    _ALLOWED[_package + ".numeric", "_frombuffer"] = _frombuffer


class _Restricted(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"the name {module}.{name}") from None


def read_pickle(raw: bytes, name: str) -> dict[str, Any]:
    """The dict in a CIFAR pickle: text keys, arrays as uint8."""
    try:
        # Old pickles hold byte strings as `str`; "bytes" keeps the pixels as they are.
        content = _Restricted(io.BytesIO(raw), encoding="bytes").load()
    except Exception as error:  # a broken pickle can raise nearly anything
        held = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"{name} is not a CIFAR pickle this reads safely: it holds {held}; "
            "expected a dict of byte arrays and labels, so nothing of it was used"
        ) from error
    if not isinstance(content, dict):
        raise DataError(f"{name} holds a {type(content).__name__}; expected CIFAR's dict")
    return {
        (key.decode("ascii", "replace") if isinstance(key, bytes) else str(key)): (
            value.value if isinstance(value, _Array) else value
        )
        for key, value in content.items()
    }
