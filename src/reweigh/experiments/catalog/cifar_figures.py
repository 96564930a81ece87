"""Figures 3 to 7: what the weights do, and what clean images, noise and time do to accuracy."""

from dataclasses import replace

from ..experiment import GUARDED, OURS, Block, Experiment, Row
from ..training_setup import Setting, Setup, Value
from .cifar import BACKGROUND, NOTES, RATE, SMOKE, UNIFORM, drawn, full, halfway, medium, small

TEN = "cifar10-background"
BASELINE, EARLY = Row("uniform", "Baseline"), Row("uniform+es", "Baseline +ES")
TUNED = Row("uniform+ft", "Baseline +FT", clean=True)
EARLY_TUNED = Row("uniform+es+ft", "Baseline +ES +FT", clean=True)

RATES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
# The text names 15, 100 and 1,000; what lies between and beyond is our choice.
CLEAN_SIZES = (15, 50, 100, 500, 1000, 2000)


def _block(
    setup: Setup, rows: tuple[Row, ...], settings: tuple[Setting, ...], *, seeds: int = 1
) -> tuple[Block]:
    """A grid of one block: the methods of all `rows`."""
    return (Block(setup, tuple(row.method for row in rows), settings, seeds),)


def _varied(name: str, *values: Value) -> tuple[Setting, ...]:
    """Flips to a background class, with one more variable at each of `values`."""
    return tuple(BACKGROUND | {name: value} for value in values)


def _at_class_3(setup: Setup) -> Setup:
    return replace(setup, backgrounds=(3,))


def _weighed(setup: Setup) -> Setup:
    return replace(halfway(setup), measure="weights")


WEIGHTS = Experiment(
    id="weight-distribution",
    title="Weights of right and wrong labels on images never seen",
    paper="Figure 3",
    shows="weights",
    rows=(OURS, GUARDED),
    notes=NOTES,
    blocks={
        "smoke": _block(_weighed(SMOKE), (OURS,), (BACKGROUND,)),
        "small": _block(_weighed(small(TEN)), (OURS,), (BACKGROUND,)),
        "medium": _block(_weighed(medium(TEN)), (OURS,), (BACKGROUND,), seeds=3),
        "paper": _block(_weighed(full(TEN)), (OURS,), (BACKGROUND,), seeds=5),
    },
    published={
        "paper": _block(_weighed(full(TEN, published=True)), (OURS,), (BACKGROUND,), seeds=5)
    },
    claims=(
        "Most wrong labels get weight zero in a random batch.",
        "Flips to the background are told from right labels in a batch of one class.",
    ),
)

_SIZES = (TUNED, EARLY_TUNED, OURS, GUARDED)
CLEAN_SIZE = Experiment(
    id="clean-size",
    title="How many clean images: CIFAR-10, 40% flipped to class 3",
    paper="Figure 4",
    shows="clean-size",
    rows=_SIZES,
    notes=NOTES,
    blocks={
        "smoke": _block(SMOKE, _SIZES, _varied("clean", 15, 50)),
        "small": _block(_at_class_3(small(TEN)), _SIZES, _varied("clean", 15, 50, 100, 500)),
        "medium": _block(_at_class_3(medium(TEN)), _SIZES, _varied("clean", *CLEAN_SIZES)),
        "paper": _block(_at_class_3(full(TEN)), _SIZES, _varied("clean", *CLEAN_SIZES), seeds=5),
    },
    claims=(
        "With 15 clean images ours is about 2 points lower than with 100.",
        "More than 100 clean images bring ours nothing.",
        "Fine-tuned baselines need about 1,000 clean images to catch up.",
    ),
)

_LEVELS = (BASELINE, EARLY, TUNED, EARLY_TUNED, OURS, GUARDED)
NOISE_LEVEL = Experiment(
    id="noise-level",
    title="How much noise: CIFAR-10, labels flipped to one background class",
    paper="Figure 5",
    shows="noise-level",
    rows=_LEVELS,
    notes=NOTES,
    blocks={
        "smoke": _block(SMOKE, _LEVELS, _varied("rate", 0.0, RATE)),
        "small": _block(small(TEN), _LEVELS, _varied("rate", 0.0, 0.2, 0.4, 0.5)),
        "medium": _block(medium(TEN), _LEVELS, _varied("rate", *RATES, 0.6)),
        "paper": _block(full(TEN), _LEVELS, _varied("rate", *RATES), seeds=5),
    },
    claims=(
        "From no noise to 50%, ours loses 6 points and the baseline over 40.",
        "Without noise ours is slightly under the baseline.",
    ),
)

_COMPARED = (BASELINE, OURS)
CONFUSION = Experiment(
    id="confusion",
    title="What is taken for what: CIFAR-10 under both kinds of flips",
    paper="Figure 6",
    shows="confusion",
    rows=_COMPARED,
    notes=NOTES,
    blocks={
        "smoke": _block(SMOKE, _COMPARED, (UNIFORM, BACKGROUND)),
        **{
            scale: (
                *_block(setup("cifar10-uniform"), _COMPARED, (UNIFORM,)),
                *_block(setup(TEN), _COMPARED, (BACKGROUND,)),
            )
            for scale, setup in (("small", small), ("medium", medium), ("paper", full))
        },
    },
    claims=("Most of the noise that the baseline has learnt is gone from ours.",),
)

_DRAWN = (BASELINE, Row("s_model", "S-Model"), OURS)
CURVES = Experiment(
    id="curves",
    title="Accuracy during training: CIFAR-10, 40% flipped to one background class",
    paper="Figure 7",
    shows="curves",
    rows=_DRAWN,
    notes=NOTES,
    blocks={
        "smoke": _block(SMOKE, _DRAWN, (BACKGROUND,)),
        "small": _block(drawn(small(TEN)), _DRAWN, (BACKGROUND,)),
        "medium": _block(drawn(medium(TEN), points=20), _DRAWN, (BACKGROUND,)),
        "paper": _block(full(TEN), _DRAWN, (BACKGROUND,)),
    },
    claims=(
        "After the first drop of the learning rate, baseline and S-Model lose validation accuracy.",
        "Ours keeps its validation accuracy to the end.",
    ),
)

FIGURES = (WEIGHTS, CLEAN_SIZE, NOISE_LEVEL, CONFUSION, CURVES)
