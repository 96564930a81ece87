"""The fitted pre-processing in a run folder: `preprocess.json`, and `preprocess.npz` for texts.

Statistics, not objects: medians, scales, levels, singular vectors. A pickle (joblib) of scikit-learn
transformers would run code when loaded, and would load only under the scikit-learn that wrote it;
this loads anywhere and runs nothing.
"""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path

import numpy as np

from ..encoders import HashedTextEncoder, ImageEncoder, LanguageModelEncoder, TableEncoder
from ..errors import DataError
from ..files import write_whole
from ..runs import PREPROCESS, PREPROCESS_ARRAYS
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
        write_whole(folder / PREPROCESS_ARRAYS, stream.getvalue())
    write_whole(folder / PREPROCESS, _text(encoder))


def load(folder: Path) -> Encoder:
    """Read it."""
    path = folder / PREPROCESS
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        kind, state = fields["kind"], fields["state"]
        if fields["version"] != 1 or kind not in _KINDS:
            raise DataError(f"{path} is of another version of reweigh; train again with this one")
        if kind == "hashed_texts":
            with np.load(folder / PREPROCESS_ARRAYS, allow_pickle=False) as arrays:
                return HashedTextEncoder.of(state, dict(arrays))
        if kind == "language_model":
            return LanguageModelEncoder(**state)
        return TableEncoder.of(state) if kind == "table" else ImageEncoder.of(state)
    except FileNotFoundError as error:
        raise DataError(f"there is no {error.filename}; expected a finished run folder") from None
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is damaged ({error}); train again") from error


def fingerprint(encoder: Encoder) -> str:
    """Another pre-processing, another fingerprint."""
    digest = hashlib.sha256(_text(encoder).encode())
    if isinstance(encoder, HashedTextEncoder):
        for array in encoder.arrays().values():
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:16]


def _text(encoder: Encoder) -> str:
    (kind,) = (name for name, cls in _KINDS.items() if isinstance(encoder, cls))
    return json.dumps({"version": 1, "kind": kind, "state": encoder.state()}, indent=1) + "\n"
