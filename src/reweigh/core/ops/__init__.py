"""What the back-ends know about operations: one file per operation, with all that is known of it.

Read `registry` first: the three facets of an operation, and how it is registered. Then one of the
operations, `linear` say; the others are alike:

    linear  convolution  embedding  norms  elementwise  pooling  shaping  weight_norm

How the facets are used: `tangent` (one call), `tangent_mode` (along a pass; the tangents hang on
tensors, `tangent_cell`), `weight_gradient` (one call), `layer` (one node of autograd's graph).
"""

from . import convolution, elementwise, embedding, norms, pooling, shaping, weight_norm  # noqa: F401
from .layer import Layer, Use
from .linear import Linear
from .registry import OPERATIONS, RECORDED, STOPS, gradient_rule, tangent_rule
from .tangent import tangent_of_call
from .tangent_cell import Outlived, cell_of, drop_cell
from .tangent_mode import TangentMode, autograd_records, tensors
from .weight_gradient import gradients

__all__ = [
    "OPERATIONS",
    "RECORDED",
    "STOPS",
    "Layer",
    "Linear",
    "Outlived",
    "TangentMode",
    "Use",
    "autograd_records",
    "cell_of",
    "drop_cell",
    "gradient_rule",
    "gradients",
    "tangent_of_call",
    "tangent_rule",
    "tensors",
]
