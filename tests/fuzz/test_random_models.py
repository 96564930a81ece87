"""Random models, held to the promises of checks.py: a few hundred here, thousands by `make fuzz`.

A failure is shown as the smallest spec that hypothesis can find. `python -m fuzz.run --spec "Spec(...)"`
(from `tests`) runs it again; once mended, it is kept in found.py.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given, seed, settings

from .checks import NAMES, Meaningless, run, truths_of
from .found import FOUND
from .grammar import CRITERIA, FITTING, Spec, specs
from .layers import AROUND, BLOCKS

PARTS, MODELS = 4, 100  # so that workers share them


def hold(spec: Spec) -> None:
    try:
        truths = truths_of(spec)
    except Meaningless:
        assume(False)
    for name in NAMES:
        run(spec, name, truths)


@pytest.mark.parametrize("part", range(PARTS))
def test_random_models_agree_or_are_refused_and_leave_no_trace(part):
    @seed(part)
    @settings(
        max_examples=MODELS, database=None, deadline=None, suppress_health_check=list(HealthCheck),
        print_blob=False,
    )  # fmt: skip
    @given(specs())
    def holds(spec: Spec) -> None:
        hold(spec)

    holds()


@pytest.mark.parametrize("spec", FOUND.values(), ids=FOUND)
def test_what_was_found_once_stays_mended(spec):
    truths = truths_of(spec)
    outcomes = {name: run(spec, name, truths) for name in NAMES}
    assert outcomes["auto"].kind == "exact"


def test_a_spec_is_printed_as_what_makes_it_again():
    for spec in FOUND.values():
        assert eval(repr(spec), {**globals(), **vars(__import__("fuzz.grammar").grammar)}) == spec


def test_every_block_can_be_drawn():
    drawn = {kind for kinds in FITTING.values() for kind in kinds}
    assert drawn == BLOCKS.keys()
    assert len(BLOCKS) + len(AROUND) + len(CRITERIA) > 150
