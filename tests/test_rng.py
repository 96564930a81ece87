"""Draws are fixed by the published algorithm: the same numbers on every machine, for ever."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh.errors import SettingError
from reweigh.rng import Draws, derive, hashed_seed


def test_numpys_raw_words_are_those_of_the_philox_paper():
    # The authors' known-answer vector for key 0, counter 0; numpy steps the counter before use.
    words = np.random.Philox(key=0, counter=2**256 - 1).random_raw(4)
    assert [f"{w:016x}" for w in words] == [
        "16554d9eca36314c",
        "db20fe9d672d0fdc",
        "d7e772cee186176b",
        "7e68b68aec7ba23b",
    ]


def philox(key: int, counter: int) -> list[int]:
    """Philox-4x64-10 written down from its paper, in whole numbers."""
    mask = 2**64 - 1
    k = [key & mask, key >> 64]
    x = [(counter >> (64 * i)) & mask for i in range(4)]
    for _ in range(10):
        left, right = 0xD2E7470EE14C6C93 * x[0], 0xCA5A826395121157 * x[2]
        x = [(right >> 64) ^ x[1] ^ k[0], right & mask, (left >> 64) ^ x[3] ^ k[1], left & mask]
        k = [(k[0] + 0x9E3779B97F4A7C15) & mask, (k[1] + 0xBB67AE8584CAA73B) & mask]
    return x


@given(st.integers(0, 2**64), st.text("abc", max_size=5))
@settings(deadline=None)
def test_a_stream_can_be_computed_without_numpy(seed, purpose):
    text = f"reweigh/{seed}/{purpose}".encode()
    key = int.from_bytes(hashlib.sha256(text).digest()[:16], "little")
    expected = [word for counter in (1, 2, 3) for word in philox(key, counter)]
    assert Draws(seed, purpose).words(12).tolist() == expected


def test_known_answers_hold():
    draws = Draws(3, "known", "answer")
    assert [f"{w:016x}" for w in draws.words(2)] == KNOWN_WORDS
    assert Draws(3, "known").permutation(8).tolist() == KNOWN_PERMUTATION
    assert Draws(3, "known").below(10, 8).tolist() == KNOWN_BELOW
    order = Draws(0, "split").permutation(50_000)
    assert order.dtype == np.int64
    assert hashlib.sha256(order.astype("<i8").tobytes()).hexdigest() == KNOWN_ORDER
    assert derive(0, "train") == KNOWN_DERIVED


@given(st.integers(0, 2**40), st.integers(0, 300))
@settings(deadline=None)
def test_a_permutation_has_everything_once(seed, count):
    assert sorted(Draws(seed, "p").permutation(count)) == list(range(count))


@given(st.integers(0, 2**40), st.integers(1, 1000), st.integers(0, 200))
@settings(deadline=None)
def test_whole_numbers_stay_below_their_bound(seed, bound, count):
    drawn = Draws(seed, "b").below(bound, count)
    assert len(drawn) == count
    assert ((drawn >= 0) & (drawn < bound)).all()


def test_whole_numbers_and_reals_are_even():
    drawn = Draws(0, "even").below(10, 100_000)
    assert np.abs(np.bincount(drawn, minlength=10) - 10_000).max() < 500
    reals = Draws(0, "even").uniform(100_000)
    assert reals.min() >= 0
    assert reals.max() < 1
    assert abs(reals.mean() - 0.5) < 0.005


def test_purposes_do_not_share_a_stream():
    assert Draws(0, "a").words(1) != Draws(0, "b").words(1)
    assert Draws(0, "a", 1).words(1) != Draws(0, "a", 2).words(1)
    assert Draws(1, "a").words(1) != Draws(0, "a").words(1)


@pytest.mark.parametrize("seed", [-1, 1.5, True, "0"])
def test_a_bad_seed_is_refused(seed):
    with pytest.raises(SettingError, match="seed is"):
        Draws(seed, "x")


KNOWN_WORDS = ["6a18c6e06648752c", "393d2802dbc28fa2"]
KNOWN_PERMUTATION = [6, 0, 4, 2, 7, 1, 3, 5]
KNOWN_BELOW = [2, 4, 4, 6, 2, 7, 2, 4]
KNOWN_ORDER = "38e3bce7b08837afb93cc74eb3d1a69ab144a63750c35a92d8a3c1d366e36635"
KNOWN_DERIVED = 1722712172976212103


def test_a_hashed_seed_is_the_beginning_of_a_published_hash():
    # Runs that were started earlier go on from the same numbers: this must never change.
    assert hashed_seed(0, "main", 7, 0) == int(hashlib.sha256(b"0 main 7 0").hexdigest()[:14], 16)
