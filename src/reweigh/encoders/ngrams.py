"""Texts in any language as sparse counts of n-grams, for linear models.

counts    of word 1- and 2-grams and of character 2- to 5-grams within words, hashed into 2^18
          buckets each: nothing to fit, no language assumed
weights   log(1 + count) * idf, idf = 1 + log((1 + n) / (1 + texts with it)); each of the two
          kinds of length one
Buckets that fewer than two texts of the sample use are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .columns import Features

BUCKETS = 2**18


@dataclass(frozen=True, eq=False)
class NgramEncoder:
    """kept [b] buckets in use, those of words first; idf [b]."""

    kept: npt.NDArray[np.int64]
    idf: Features

    def encode(self, texts: Sequence[str]) -> Any:
        """A sparse matrix [n, b]."""
        from scipy.sparse import hstack
        from sklearn.preprocessing import normalize

        counts = _counts(texts)[:, self.kept].astype(np.float64)
        counts.data = np.log1p(counts.data) * self.idf[counts.indices]
        words = int(np.searchsorted(self.kept, BUCKETS))
        return hstack([normalize(counts[:, :words]), normalize(counts[:, words:])], format="csr")

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Everything it is made of."""
        return {"kept": self.kept.astype(np.int32), "idf": self.idf}

    @classmethod
    def of(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> NgramEncoder:
        """The encoder with these arrays."""
        return cls(arrays["kept"].astype(np.int64), arrays["idf"])


def fit_ngrams(texts: Sequence[str]) -> NgramEncoder:
    """Which n-grams recur, and how rare they are."""
    counts = _counts(texts)
    used = np.bincount(counts.indices, minlength=counts.shape[1])
    kept = np.flatnonzero(used > 1)
    idf = (1 + np.log((1 + len(texts)) / (1 + used[kept]))).astype(np.float32)
    return NgramEncoder(kept, idf)


def _counts(texts: Sequence[str]) -> Any:
    from scipy.sparse import hstack
    from sklearn.feature_extraction.text import HashingVectorizer

    plain = {"n_features": BUCKETS, "norm": None, "alternate_sign": False, "dtype": np.float32}
    by_word = HashingVectorizer(ngram_range=(1, 2), token_pattern=r"(?u)\w+", **plain)
    by_character = HashingVectorizer(ngram_range=(2, 5), analyzer="char_wb", **plain)
    return hstack([by_word.transform(texts), by_character.transform(texts)], format="csr")
