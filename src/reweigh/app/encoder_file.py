"""The fitted encoder in a run folder: `preprocess.json`, and `preprocess.npz` for texts.

Statistics, not objects: medians, scales, levels, singular vectors. A pickle (joblib) of scikit-learn
transformers would run code when loaded, and would load only under the scikit-learn that wrote it;
this loads anywhere and runs nothing.
"""

import hashlib
import io
import json
from pathlib import Path

import numpy as np

from ..encoders import HashedTextEncoder, ImageEncoder, LanguageModelEncoder, TableEncoder
from ..errors import DataError
from ..files import write_whole
from ..runs import EncoderState, RunFile, read, versioned, write
from .inspection import Encoder

_KINDS = {
    "table": TableEncoder,
    "hashed_texts": HashedTextEncoder,
    "language_model": LanguageModelEncoder,
    "images": ImageEncoder,
}


def save(folder: Path, encoder: Encoder) -> None:
    """Write it; the JSON last, so that what is there is whole."""
    if isinstance(encoder, HashedTextEncoder):
        stream = io.BytesIO()
        np.savez(stream, **encoder.arrays())  # type: ignore[arg-type]
        write_whole(folder / RunFile.PREPROCESS_ARRAYS, stream.getvalue())
    write(folder / RunFile.PREPROCESS, _state(encoder))


def load(folder: Path) -> Encoder:
    """Read it."""
    path = folder / RunFile.PREPROCESS
    saved = read(path, EncoderState)
    if saved.kind not in _KINDS:
        raise DataError(f"{path} is of another version of reweigh; train again with this one")
    try:
        if saved.kind == "hashed_texts":
            with np.load(folder / RunFile.PREPROCESS_ARRAYS, allow_pickle=False) as arrays:
                return HashedTextEncoder.of(saved.state, dict(arrays))
        if saved.kind == "language_model":
            return LanguageModelEncoder(**saved.state)
        kind = TableEncoder if saved.kind == "table" else ImageEncoder
        return kind.of(saved.state)
    except FileNotFoundError as error:
        raise DataError(f"there is no {error.filename}; expected a finished run folder") from None
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is damaged ({error}); train again") from error


def fingerprint(encoder: Encoder) -> str:
    """Another encoder, another fingerprint."""
    digest = hashlib.sha256(json.dumps(versioned(_state(encoder)), indent=1).encode() + b"\n")
    if isinstance(encoder, HashedTextEncoder):
        for array in encoder.arrays().values():
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:16]


def _state(encoder: Encoder) -> EncoderState:
    (kind,) = (name for name, cls in _KINDS.items() if isinstance(encoder, cls))
    return EncoderState(kind, encoder.state())
