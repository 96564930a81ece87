"""Checked rows that the others contradict are named, and only with conviction."""

import numpy as np
import pytest

from reweigh import sentinels
from reweigh.sentinels import contradictions


def heard(*said):
    """Of witnesses that say these probabilities of the checked rows."""
    checked = {f"witness {k}": np.array(each) for k, each in enumerate(said)}
    return sentinels.Testimony({}, checked, np.zeros(2, np.int64), np.zeros(0, np.int64))


def test_a_row_is_named_where_the_witnesses_agree():
    both = contradictions(np.array([0, 1]), heard([[0.1, 0.9], [0.2, 0.8]], [[0.2, 0.8], [0, 1]]))
    assert both.named.tolist() == [True, False]
    assert both.p_label == pytest.approx([0.15, 0.9])
    assert both.rival.tolist() == [1, 0]
    assert both.p_rival == pytest.approx([0.85, 0.1])


def test_one_witness_against_others_names_nothing():
    split = contradictions(np.array([0, 0]), heard([[0, 1], [1, 0]], [[0.6, 0.4], [1, 0]]))
    assert not split.named.any()


def test_what_was_said_is_left_as_it_was():
    said = heard([[0.1, 0.9], [0.2, 0.8]])
    contradictions(np.array([0, 1]), said)
    assert said.checked["witness 0"].tolist() == [[0.1, 0.9], [0.2, 0.8]]
