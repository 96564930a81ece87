"""Texts in any language as dense features: hashed n-grams, or a local language model.

HashedTextEncoder
    counts    of word 1- and 2-grams and of character 2- to 4-grams, hashed into 2^15 buckets each:
              nothing to fit, no language assumed (for scripts without spaces, characters tell)
    weights   log(1 + count) * idf, idf = 1 + log((1 + n) / (1 + texts with it)); rows of length one
    features  projections onto the leading right singular vectors of a sample (latent semantic
              analysis), times 8, so that they are of the size a network expects. They are not
              divided by their spread: the last ones are mostly noise, which that would amplify.
    Fitted on a sample of at most 20,000 texts. Buckets that fewer than two of them use are dropped.
    Of a text, the first 100,000 characters are read: more of a book would not tell its subject better.

LanguageModelEncoder
    the mean of a transformer's last hidden states, scaled to mean 0 and variance 1 for each text;
    only the first 256 tokens are read
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import DataError
from ..optional import optional
from ..tables import Piece, pandas, words
from .columns import Features

TEXT_SAMPLE_ROWS, DIMENSIONS = 20_000, 192
BUCKETS = 2**15
SIZE = 8.0
LENGTH = 256
CHARACTERS = 100_000


@dataclass(frozen=True, eq=False)
class HashedTextEncoder:
    """kept [b] buckets in use; idf [b]; axes [b, d] singular vectors times SIZE."""

    column: str
    kept: npt.NDArray[np.int64]
    idf: Features
    axes: Features

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one encoded text."""
        return (self.axes.shape[1],)

    @property
    def needs(self) -> tuple[str, ...]:
        """The columns a table must have."""
        return (self.column,)

    def encode(self, piece: Piece) -> Features:
        """[n, d]."""
        weighed = _weighed(_counts(text_of(piece, self.column))[:, self.kept], self.idf)
        return np.asarray(weighed @ self.axes, dtype=np.float32)

    def digests(self, piece: Piece) -> npt.NDArray[np.uint64]:
        """One number per text."""
        return text_digests(piece, self.column)

    def state(self) -> dict[str, Any]:
        """The part that is kept as JSON."""
        return {"column": self.column}

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The part that is kept as arrays."""
        return {"kept": self.kept, "idf": self.idf, "axes": self.axes}

    @classmethod
    def of(cls, state: Mapping[str, Any], arrays: Mapping[str, Any]) -> HashedTextEncoder:
        """The encoder with this state and these arrays."""
        return cls(state["column"], arrays["kept"], arrays["idf"], arrays["axes"])


def fit_hashed_texts(sample: Any, column: str) -> HashedTextEncoder:
    """Fit on the texts of a pyarrow table."""
    from sklearn.decomposition import TruncatedSVD

    counts = _counts(text_of(sample, column))
    used = np.asarray((counts > 0).sum(axis=0)).ravel()
    kept = np.flatnonzero(used > 1)
    dimensions = min(DIMENSIONS, len(kept) - 1, counts.shape[0] - 1)
    if dimensions < 2:
        raise DataError(
            f"the texts of column {column!r} have nothing in common; expected words that recur"
        )
    idf = (1 + np.log((1 + counts.shape[0]) / (1 + used[kept]))).astype(np.float32)
    svd = TruncatedSVD(dimensions, random_state=0)
    svd.fit(_weighed(counts[:, kept], idf))
    return HashedTextEncoder(column, kept, idf, (SIZE * svd.components_.T).astype(np.float32))


def text_of(piece: Piece, column: str) -> list[str]:
    """The texts of a piece; a missing one is empty."""
    return ["" if cell is None else cell for cell in words(piece.column(column)).to_pylist()]


def text_digests(piece: Piece, column: str) -> npt.NDArray[np.uint64]:
    """One number per text."""
    cells = np.array(text_of(piece, column), dtype=object)
    return np.asarray(pandas().util.hash_array(cells, categorize=False))


def _counts(texts: Sequence[str]) -> Any:
    from scipy.sparse import hstack
    from sklearn.feature_extraction.text import HashingVectorizer

    texts = [text[:CHARACTERS] for text in texts]
    plain = {"n_features": BUCKETS, "norm": None, "alternate_sign": False, "dtype": np.float32}
    by_word = HashingVectorizer(ngram_range=(1, 2), token_pattern=r"(?u)\w+", **plain)
    by_character = HashingVectorizer(ngram_range=(2, 4), analyzer="char_wb", **plain)
    return hstack([by_word.transform(texts), by_character.transform(texts)], format="csr")


def _weighed(counts: Any, idf: Features) -> Any:
    from sklearn.preprocessing import normalize

    weighed = counts.astype(np.float32)
    weighed.data = np.log1p(weighed.data) * idf[weighed.indices]
    return normalize(weighed, copy=False)


@dataclass(frozen=True, eq=False)
class LanguageModelEncoder:
    """A transformers encoder from a local folder; nothing is downloaded, no code of it runs."""

    column: str
    path: str
    width: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one encoded text."""
        return (self.width,)

    @property
    def needs(self) -> tuple[str, ...]:
        """The columns a table must have."""
        return (self.column,)

    def encode(self, piece: Piece) -> Features:
        """[n, width]."""
        import torch

        tokenizer, model = _language_model(self.path)
        parts = []
        texts = text_of(piece, self.column)
        for start in range(0, len(texts), 32):
            tokens = tokenizer(
                texts[start : start + 32], padding=True, truncation=True, max_length=LENGTH,
                return_tensors="pt",
            )  # fmt: skip
            with torch.no_grad():
                hidden = model(**tokens).last_hidden_state
            there = tokens["attention_mask"].unsqueeze(2)
            mean = (hidden * there).sum(1) / there.sum(1).clamp(min=1)
            parts.append(torch.nn.functional.layer_norm(mean, mean.shape[1:]).numpy())
        return np.concatenate(parts).astype(np.float32)

    def digests(self, piece: Piece) -> npt.NDArray[np.uint64]:
        """One number per text."""
        return text_digests(piece, self.column)

    def state(self) -> dict[str, Any]:
        """All that is kept, as JSON: the model itself stays in its folder."""
        return asdict(self)


def open_language_model(column: str, path: Path) -> LanguageModelEncoder:
    """Open a local encoder."""
    if path == Path():
        raise DataError("--encoder is empty; expected a folder with a saved transformers encoder")
    _, model = _language_model(str(path))
    return LanguageModelEncoder(column, str(path.resolve()), int(model.config.hidden_size))


@cache
def _language_model(path: str) -> tuple[Any, Any]:
    if not Path(path).is_dir():
        raise DataError(f"there is no folder {path}; expected a saved transformers encoder")
    transformers = optional(
        "transformers", package="transformers", extra="transformers", needed_for="--encoder"
    )
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(path, local_files_only=True)
        model = transformers.AutoModel.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError) as error:
        why = (str(error).splitlines() or ["unknown"])[0]
        raise DataError(f"{path} is no encoder that transformers can load ({why})") from error
    return tokenizer, model.eval()
