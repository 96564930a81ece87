"""Labels that people gave to CIFAR-10's train images (CIFAR-10N): errors nobody has made up.

    worst       the wrong one of three people's labels, if there is one     40% wrong
    random1     the first person's label                                    17% wrong
    aggregate   what most of three people say                                9% wrong

Wei, Zhu, Cheng, Liu, Niu, Liu: Learning with Noisy Labels Revisited, ICLR 2022. Not an experiment of
the paper on reweighting, whose errors are all drawn at random.
"""

from dataclasses import replace

from ..experiment import GUARDED, OURS, TUNED_OURS, Block, Experiment, Row
from ..training_setup import Setting, Setup
from .cifar import NOTES, SMOKE, full, medium, small

ROWS = (
    Row("uniform", "Plain"),
    Row("random", "Random"),
    Row("co_teaching", "Co-teaching"),
    Row("clean_only", "Clean Only", clean=True),
    Row("uniform+ft", "Plain +FT", clean=True),
    Row("meta_weight_net", "Meta-Weight-Net", clean=True),
    OURS,
    GUARDED,
    TUNED_OURS,
    Row("reweigh_bootstrap", "Ours, bootstrapped", clean=True),
    Row("reweigh_hedged", "Ours, hedged", clean=True),
)
METHODS = tuple(row.method for row in ROWS)
KINDS = ("worst", "random1", "aggregate")
CLEAN_COUNTS = (100, 1000)  # 10 and 100 a class


def _settings(kinds: tuple[str, ...]) -> tuple[Setting, ...]:
    return tuple({"labels": kind, "clean": count} for count in CLEAN_COUNTS for kind in kinds)


def _human(setup: Setup) -> Setup:
    recipe = replace(setup.recipe, dataset="cifar10n", rate=0.0, background=0)
    return replace(setup, recipe=recipe, backgrounds=(), measure="audit")


# Digits have no labels of careless people; flips to the next class stand in for them.
_STAND_IN: Setting = {"noise": "pair", "rate": 0.4, "clean": 50}

HUMAN_NOISE = Experiment(
    id="human-noise",
    title="CIFAR-10N: CIFAR-10 with the labels that people gave",
    paper="-",
    shows="human",
    rows=ROWS,
    blocks={
        "smoke": (Block(replace(SMOKE, measure="audit"), METHODS, (_STAND_IN,), seeds=1),),
        "small": (
            Block(_human(small("cifar10-background")), METHODS, _settings(("worst",)), seeds=1),
        ),
        "medium": (
            Block(_human(medium("cifar10-background")), METHODS, _settings(KINDS), seeds=1),
            Block(_human(medium("cifar10-background")), METHODS, _settings(("worst",)), seeds=3),
        ),
        "paper": (Block(_human(full("cifar10-background")), METHODS, _settings(KINDS), seeds=5),),
    },
    clean_title="With the checked images",
    notes=NOTES
    | {"paper": "The paper has no such experiment: its ResNet-32, schedule and batches."},
)
