"""What the back-ends know about operations: one file per operation, with all that is known of it.

Read `registry` first: the three facets of an operation, and how it is registered. Then `linear`, as an
example of an operation. The others are alike: `convolution`, `embedding`, `norms`, `elementwise`,
`pooling`, `shaping`, `weight_norm` (with `broadcasting` for the shapes).

How the facets are used:

tangent            the tangent of one call
tangent_mode       tangents along a whole pass, each kept in a `tangent_cell` of its tensor
weight_gradient    the weight gradients of one call
layer              an operation as a node of autograd's graph has recorded it
"""

from . import convolution, elementwise, embedding, norms, pooling, shaping, weight_norm
from .layer import Layer, Use
from .linear import Linear
from .registry import OPERATIONS, RECORDED, STOPS, gradient_rule, tangent_rule
from .tangent import tangent_of_call
from .tangent_cell import Outlived, cell_of, drop_cell
from .tangent_mode import TangentMode, autograd_records, tensors_in
from .weight_gradient import gradients_of_call
