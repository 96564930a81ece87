"""The mathematics: from a model, a loss and two batches to exact example weights.

Read in this order: `scores` (what is computed), `double_backward` (the paper's way), `weights` (the
rule), `reweighter` (the step). `ghost` and `forward_mode` are the fast ways to the same numbers;
`distributed` is what processes that share a batch tell each other.
"""

from . import tangent_rules as tangent_rules  # importing it registers the rules
from .backends import BACKENDS
from .choice import Choice
from .distributed import Group, group_of
from .gradient_rules import gradient_rule
from .loss import per_example
from .reweighter import Reweighter
from .safeguard import Safeguard
from .scores import example_scores
from .step import Step
from .tangents import tangent_rule
from .validate import Finding, validate
from .weights import effective_sample_size, weights_from_scores

__all__ = [
    "BACKENDS",
    "Choice",
    "Finding",
    "Group",
    "Reweighter",
    "Safeguard",
    "Step",
    "effective_sample_size",
    "example_scores",
    "gradient_rule",
    "group_of",
    "per_example",
    "tangent_rule",
    "validate",
    "weights_from_scores",
]
