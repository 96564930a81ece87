"""The mathematics: from a model, a loss and two batches to exact example weights.

Read in this order: `scores` (what is computed), `double_backward` (the paper's way), `weights` (the
rule), `reweighter` (the step). `ghost` and `forward_mode` are the fast ways to the same numbers;
`distributed` is what processes that share a batch tell each other.
"""

from .backends.selection import Choice
from .backends.table import BACKENDS
from .model.loss import Batch as Batch
from .model.loss import Loss as Loss
from .model.loss import batch_size as batch_size
from .model.loss import evaluate as evaluate
from .model.loss import per_example
from .model.loss import rows as rows
from .model.modes import evaluating as evaluating
from .model.parameters import Params as Params
from .model.parameters import trainable as trainable
from .model.snapshot import differentiable_kernels as differentiable_kernels
from .model.snapshot import eager as eager
from .model.snapshot import isolated as isolated
from .ops import gradient_rule, tangent_rule
from .processes.ddp import inside as inside
from .processes.group import Group, group_of
from .processes.group import process_count as process_count
from .processes.group import says_lost as says_lost
from .processes.group import unanswered as unanswered
from .reweighter import Reweighter
from .rule import effective_sample_size, weights_from_scores
from .safeguard import Safeguard
from .scores import example_scores
from .step import Step
from .validate import Finding, validate

# Public names only. What is imported above "as" itself serves our other packages.
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
