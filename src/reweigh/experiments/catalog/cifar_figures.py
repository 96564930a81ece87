"""Figures 3 to 7: what the weights do, and what clean images, noise and time do to accuracy."""

from __future__ import annotations

from dataclasses import replace

from ..experiment import Block, Experiment, Row
from ..training_setup import Setup
from .cifar import BACKGROUND, NOTES, RATE, SMOKE, UNIFORM, drawn, full, halfway, small
from .paper_numbers import GUARDED, OURS

TEN = "cifar10-background"
BASELINE, EARLY = Row("uniform", "Baseline"), Row("uniform+es", "Baseline +ES")
TUNED = Row("uniform+ft", "Baseline +FT", clean=True)
EARLY_TUNED = Row("uniform+es+ft", "Baseline +ES +FT", clean=True)
LITERAL = Row(OURS, "Ours", clean=True)

RATES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
# The text names 15, 100 and 1,000; what lies between and beyond is our choice.
CLEAN_SIZES = (15, 50, 100, 500, 1000, 2000)


def _methods(*rows: Row) -> tuple[str, ...]:
    return tuple(row.method for row in rows)


def _at_class_3(setup: Setup) -> Setup:
    return replace(setup, backgrounds=(3,))


def _weighed(setup: Setup) -> Setup:
    return replace(halfway(setup), measure="weights")


WEIGHTS = Experiment(
    id="weight-distribution",
    title="Weights of right and wrong labels on images never seen",
    paper="Figure 3",
    shows="weights",
    rows=(LITERAL, GUARDED),
    notes=NOTES,
    blocks={
        "smoke": (Block(_weighed(SMOKE), _methods(LITERAL), (BACKGROUND,), seeds=1),),
        "small": (Block(_weighed(small(TEN)), _methods(LITERAL), (BACKGROUND,), seeds=1),),
        "paper": (Block(_weighed(full(TEN)), _methods(LITERAL), (BACKGROUND,), seeds=5),),
    },
    published={
        "paper": (
            Block(_weighed(full(TEN, published=True)), _methods(LITERAL), (BACKGROUND,), seeds=5),
        )
    },
    claims=(
        "Most wrong labels get weight zero in a random batch.",
        "Flips to the background are told from right labels in a batch of one class.",
    ),
)

_SIZES = (TUNED, EARLY_TUNED, LITERAL, GUARDED)
CLEAN_SIZE = Experiment(
    id="clean-size",
    title="How many clean images: CIFAR-10, 40% flipped to class 3",
    paper="Figure 4",
    shows="clean-size",
    rows=_SIZES,
    notes=NOTES,
    blocks={
        "smoke": (
            Block(SMOKE, _methods(*_SIZES), tuple(BACKGROUND | {"clean": n} for n in (15, 50)), 1),
        ),
        "small": (
            Block(
                _at_class_3(small(TEN)),
                _methods(*_SIZES),
                tuple(BACKGROUND | {"clean": n} for n in (15, 50, 100, 500)),
                seeds=1,
            ),
        ),
        "paper": (
            Block(
                _at_class_3(full(TEN)),
                _methods(*_SIZES),
                tuple(BACKGROUND | {"clean": n} for n in CLEAN_SIZES),
                seeds=5,
            ),
        ),
    },
    claims=(
        "With 15 clean images ours is about 2 points lower than with 100.",
        "More than 100 clean images bring ours nothing.",
        "Fine-tuned baselines need about 1,000 clean images to catch up.",
    ),
)

_LEVELS = (BASELINE, EARLY, TUNED, EARLY_TUNED, LITERAL, GUARDED)
NOISE_LEVEL = Experiment(
    id="noise-level",
    title="How much noise: CIFAR-10, labels flipped to one background class",
    paper="Figure 5",
    shows="noise-level",
    rows=_LEVELS,
    notes=NOTES,
    blocks={
        "smoke": (
            Block(
                SMOKE, _methods(*_LEVELS), tuple(BACKGROUND | {"rate": r} for r in (0.0, RATE)), 1
            ),
        ),
        "small": (
            Block(
                small(TEN),
                _methods(*_LEVELS),
                tuple(BACKGROUND | {"rate": r} for r in (0.0, 0.2, 0.4, 0.5)),
                seeds=1,
            ),
        ),
        "paper": (
            Block(full(TEN), _methods(*_LEVELS), tuple(BACKGROUND | {"rate": r} for r in RATES), 5),
        ),
    },
    claims=(
        "From no noise to 50%, ours loses 6 points and the baseline over 40.",
        "Without noise ours is slightly under the baseline.",
    ),
)

_COMPARED = (BASELINE, LITERAL)
CONFUSION = Experiment(
    id="confusion",
    title="What is taken for what: CIFAR-10 under both kinds of flips",
    paper="Figure 6",
    shows="confusion",
    rows=_COMPARED,
    notes=NOTES,
    blocks={
        "smoke": (Block(SMOKE, _methods(*_COMPARED), (UNIFORM, BACKGROUND), seeds=1),),
        "small": (
            Block(small("cifar10-uniform"), _methods(*_COMPARED), (UNIFORM,), seeds=1),
            Block(small(TEN), _methods(*_COMPARED), (BACKGROUND,), seeds=1),
        ),
        "paper": (
            Block(full("cifar10-uniform"), _methods(*_COMPARED), (UNIFORM,), seeds=1),
            Block(full(TEN), _methods(*_COMPARED), (BACKGROUND,), seeds=1),
        ),
    },
    claims=("Most of the noise that the baseline has learnt is gone from ours.",),
)

_DRAWN = (BASELINE, Row("s_model", "S-Model"), LITERAL)
CURVES = Experiment(
    id="curves",
    title="Accuracy during training: CIFAR-10, 40% flipped to one background class",
    paper="Figure 7",
    shows="curves",
    rows=_DRAWN,
    notes=NOTES,
    blocks={
        "smoke": (Block(SMOKE, _methods(*_DRAWN), (BACKGROUND,), seeds=1),),
        "small": (Block(drawn(small(TEN)), _methods(*_DRAWN), (BACKGROUND,), seeds=1),),
        "paper": (Block(full(TEN), _methods(*_DRAWN), (BACKGROUND,), seeds=1),),
    },
    claims=(
        "After the first drop of the learning rate, baseline and S-Model lose validation accuracy.",
        "Ours keeps its validation accuracy to the end.",
    ),
)

FIGURES = (WEIGHTS, CLEAN_SIZE, NOISE_LEVEL, CONFUSION, CURVES)
