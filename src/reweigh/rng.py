"""Random draws that are the same on every machine and under every library version.

    key   = first 128 bits of sha256("reweigh/" + seed + "/" + purpose + "/" + ...)
    raw_k = k-th 64-bit word of Philox-4x64-10 under that key, counter from zero

Only the raw words are taken from numpy: they are fixed by the published algorithm (Salmon et al.,
2011), while the methods on top of them (`shuffle`, `choice`, `normal`) may change between releases.
Every purpose has its own key, so more draws in one place change nothing in another.
"""

import hashlib
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from .errors import SettingError

Words: TypeAlias = npt.NDArray[np.uint64]
Indices: TypeAlias = npt.NDArray[np.int64]
Reals: TypeAlias = npt.NDArray[np.float64]


def derive(seed: int, *purpose: str | int) -> int:
    """A seed for `purpose` alone, in [0, 2^62), for functions that take only a seed."""
    return int(Draws(seed, "derive", *purpose).words(1)[0] >> np.uint64(2))


def hashed_seed(*parts: str | int) -> int:
    """A seed in [0, 2^56) for torch's generators: the first 7 bytes of sha256("part part ...")."""
    text = " ".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")


class Draws:
    """One stream of 64-bit words, read from its beginning.

    >>> Draws(0, "example").permutation(5).tolist()
    [3, 4, 0, 1, 2]
    """

    def __init__(self, seed: int, *purpose: str | int) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise SettingError(f"seed is {seed!r}; expected a whole number from 0 up")
        text = "/".join(["reweigh", str(seed), *map(str, purpose)])
        key = int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "little")
        self._words = np.random.Philox(key=key)

    def words(self, count: int) -> Words:
        """The next `count` raw words."""
        raw: Words = np.asarray(self._words.random_raw(count), dtype=np.uint64)
        return raw

    def permutation(self, count: int) -> Indices:
        """0 ... count-1 in random order: the order that sorts `count` raw words."""
        return np.argsort(self.words(count), kind="stable").astype(np.int64)

    def below(self, bound: int, count: int) -> Indices:
        """`count` whole numbers in [0, bound): the high half of a word times `bound`, over 2^32.

        The bias is at most bound / 2^32, far under anything a data set can show.
        """
        high = self.words(count) >> np.uint64(32)
        return ((high * np.uint64(bound)) >> np.uint64(32)).astype(np.int64)

    def uniform(self, count: int) -> Reals:
        """`count` reals in [0, 1): the top 53 bits of a word over 2^53, exact in float64."""
        return (self.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53
