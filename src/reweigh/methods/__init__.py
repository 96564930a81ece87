"""Every way to train that the paper compares, and what its readers compare with today.

Read in this order: `contract` (what a method is), any method's own file (its equation), `table`
(all of them), `plan` (a method and its schedule, as typed).
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
from .method_table import METHODS, Entry, make
from .plan import Plan, parse

__all__ = [
    "METHODS",
    "Criterion",
    "Entry",
    "Method",
    "Plan",
    "Problem",
    "Sampling",
    "Stateful",
    "View",
    "Weighed",
    "evenly",
    "make",
    "parse",
    "plain_losses",
    "weighed_by",
]
