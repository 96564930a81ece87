"""The mathematics: from a model, a loss and two batches to exact example weights.

Read in this order: `scores` (what is computed), `double_backward` (the paper's way), `weights` (the
rule), `reweighter` (the step). `ghost` and `forward_mode` are the fast ways to the same numbers;
`distributed` is what processes that share a batch tell each other.
"""

from .backends.selection import Choice
from .backends.table import BACKENDS
from .model.loss import per_example
from .ops import tangent_rules as tangent_rules
from .ops.gradient_rules import gradient_rule
from .ops.tangents import tangent_rule
from .processes.group import Group, group_of
from .reweighter import Reweighter
from .rule import effective_sample_size, weights_from_scores
from .safeguard import Safeguard
from .scores import example_scores
from .step import Step
from .validate import Finding, validate

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
