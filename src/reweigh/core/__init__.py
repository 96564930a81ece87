"""The mathematics: from a model, a loss and two batches to exact example weights.

Read in this order: `scores` (what is computed), `backends/double_backward` (the paper's way to it),
`rule` (from scores to weights), `reweighter` (the step). Then, as needed:

    session          both sides of a step put together; `validate` and `scores` are thin users of it, too
    model/           the user's side: model, loss, batches, parameters
    clean/           the gradient of the clean batch
    backends/        four ways to the scores; its README says which runs when, and what it costs
    ops/             what the back-ends know about operations, one file per family
    proof            every comparison with autograd, and when to look again
    update/          from weights to the gradient that an optimizer gets
    safeguard        shortens steps that do not help the next clean batch
    compiled/        a whole step as one compiled graph
    processes/       batches shared by several processes
    health           NaN, collapsed weights and a forgotten eval mode
    torch_internals  every private name of PyTorch that we use
"""

# isort: off
from .torch_internals import require_torch  # first: refuses a PyTorch that is too old
from .backends import BACKENDS, Choice
from .model import (
    Batch, Loss, ModelView, Params, batch_size, differentiable_kernels, eager, evaluate, evaluating,
    per_example, rows, trainable,
)  # fmt: skip
from .ops import gradient_rule, tangent_rule
from .processes import Group, group_of, inside, process_count, says_lost, unanswered
from .reweighter import Reweighter
from .rule import effective_sample_size, weights_from_scores
from .safeguard import Safeguard, make_safeguard
from .scores import example_scores
from .step import Step, Window
from .validate import Finding, validate

# The public names. What else is imported above serves our other packages.
__all__ = [
    "BACKENDS", "Choice", "Finding", "Group", "Reweighter", "Safeguard", "Step", "Window",
    "effective_sample_size", "example_scores", "gradient_rule", "group_of", "per_example",
    "tangent_rule", "validate", "weights_from_scores",
]  # fmt: skip
