"""Methods: the paper's own, those it compares with, and those that readers compare with today.

Read in this order:

    contract        what a method is: four hooks
    uniform, ...    one file per method, its equation first
    method_table    all of them by name, what each costs and needs
    plan            a method and its schedule as one word, such as `uniform+es+ft`

`learn_clean` is the suffix +clean. Shared by several methods: `requirements` (what a problem must have), `method_state` (what a method
keeps between steps), `probabilities`. `mentor` belongs to `mentornet`.
"""

from .contract import (
    Criterion,
    Method,
    Problem,
    Sampling,
    Stateful,
    View,
    Weighed,
    evenly,
    plain_losses,
    weighed_by,
)
from .learn_clean import with_clean
from .method_table import METHODS, Entry, make
from .plan import Plan, parse

__all__ = [
    "METHODS", "Criterion", "Entry", "Method", "Plan", "Problem", "Sampling", "Stateful",
    "View", "Weighed", "evenly", "make", "parse", "plain_losses", "weighed_by", "with_clean",
]  # fmt: skip
