"""Train any PyTorch model on data you do not fully trust, guided by a handful of examples you do."""

from . import errors as errors
from .core import (
    Choice,
    Finding,
    Reweighter,
    Step,
    effective_sample_size,
    example_scores,
    gradient_rule,
    per_example,
    tangent_rule,
    validate,
    weights_from_scores,
)

__version__ = "0.1.0"

__all__ = [
    "Choice",
    "Finding",
    "Reweighter",
    "Step",
    "effective_sample_size",
    "example_scores",
    "gradient_rule",
    "per_example",
    "tangent_rule",
    "validate",
    "weights_from_scores",
]
