"""What the back-ends know about operations: each stands in one place, with all that is known of it.

Read `registry` first: the three facets of an operation, how it is registered, and what a recorded layer
is. Then `linear`, as an example. The others are alike: `convolution`, `embedding`, `norms`,
`elementwise`, `broadcast`, `parameterless`, `attention`, `losses`, `distances`.

How the facets are used:

calls              the tangent and the weight gradients of one call
tangent_mode       tangents along a whole pass, each kept in a cell of its tensor
"""

from . import (
    attention,
    broadcast,
    convolution,
    distances,
    elementwise,
    embedding,
    losses,
    norms,
    parameterless,
)
from .calls import gradients_of_call, is_random, tangent_of_call
from .convolution import Convolution
from .linear import Linear
from .registry import (
    OPERATIONS,
    RECORDED,
    RESHAPING,
    STOPS,
    Layer,
    Use,
    gradient_rule,
    tangent_rule,
)
from .tangent_mode import (
    Outlived,
    TangentCell,
    TangentMode,
    autograd_records,
    cell_of,
    drop_cell,
    tensors_in,
)
