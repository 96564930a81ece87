"""In which order "auto" tries the back-ends: from the cheapest to the costliest for the model at hand.

The order of the table is that of arithmetic. It is also that of measured time, but for models whose time
goes into many small calls: `forward_mode` adds a call through Python to each operation, `double_backward`
none. Measured on every problem of the test suite: benchmarks/backend_order.py, and its results.

The order depends on what the model is made of, never on a clock or on a batch. Another back-end changes
the last bits of the scores, and so a run that is repeated or resumed has the same bits, and all
processes try the same one.
"""

from torch import nn

from ..model import ModelView
from .table import BACKENDS

NARROW = 64  # units of a recurrent layer; at 128 the arithmetic counts
SMALL = 2**16  # elements of the largest parameter
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def order_for(view: ModelView) -> tuple[list[str], str]:
    """The names of all back-ends in order; and why, where that is not the order of the table."""
    names = list(BACKENDS)
    if not _many_small_calls(view):
        return names, ""
    names.remove("double_backward")
    names.insert(names.index("forward_mode"), "double_backward")
    return names, (
        f"before forward_mode, since recurrent layers of {NARROW} units or less are mostly calls"
    )


def _many_small_calls(view: ModelView) -> bool:
    """Whether the model is narrow recurrent layers, and nothing that is large beside them."""
    recurrent = [module for module in view.modules if isinstance(module, nn.RNNBase)]
    return (
        bool(recurrent)
        and all(module.hidden_size <= NARROW for module in recurrent)
        and not any(isinstance(module, _CONVOLUTIONS) for module in view.modules)
        and all(parameter.numel() <= SMALL for parameter in view.parameters)
    )
