"""Whether the examples of a pass touch each other, found by measuring.

With random factors r, the gradient of sum_i r_i f_i at the result of a contact must be that of
sum_i f_i, times r_i in the rows of example i. This also tells which rows those are.

Half of the factors are zero. In any precision, the rows of those examples then are zero to the last
bit, unless another example reaches them: a coupling cannot hide in the rounding of bfloat16.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ....errors import UnsupportedModelError
from ...rounding import Rounding
from ...torch_internals import base_of
from .contact import Contact
from .example_rows import Layout, find_layout

# Nodes of autograd's graph, and operations, that move rows by indices which may come from data. Where
# the examples lie can then differ from batch to batch, with all shapes alike.
BY_DATA_NODES = {
    f"{name}Backward{i}"
    for name in (
        "Index", "IndexSelect", "IndexAdd", "IndexCopy", "IndexFill", "IndexPut", "IndexReduce",
        "Gather", "Scatter", "ScatterAdd", "ScatterReduce", "Take", "MaskedSelect", "MaskedScatter",
        "Sort", "Topk", "PackPaddedSequence", "Embedding", "SegmentReduce", "Repeat_Interleave",
    )
    for i in range(3)
}  # fmt: skip
BY_DATA_CALLS = {
    "index", "index_select", "index_add", "index_add_", "index_copy", "index_copy_", "index_fill",
    "index_put", "index_put_", "_index_put_impl_", "index_reduce", "gather", "scatter", "scatter_",
    "scatter_add", "scatter_add_", "scatter_reduce", "take", "masked_select", "masked_scatter",
    "sort", "topk", "_pack_padded_sequence", "segment_reduce",
}  # fmt: skip

# The share of a gradient that may lie where it must be zero: a coupling that cancels out leaves some.
_LEAK = 1e-5


def layouts_of(
    contacts: Sequence[Contact],
    plain: Sequence[Tensor],
    scaled: Sequence[Tensor],
    factors: Tensor,
    *,
    close: float,
    rounding: Rounding,
    names: dict[int, str],
) -> tuple[tuple[Layout, ...], bool]:
    """Where the examples lie in every result, and whether no other batch could show otherwise; an
    error if they are coupled.

    plain, scaled: the gradients of sum_i f_i and sum_i factors_i f_i at the results of the contacts.
    close:         the relative error up to which gradients are the same, or what `rounding` of the
                   plain ones explains.
    names:         of the parameters, by id; for the message.
    """
    layouts, certain = [], len(factors) > 1
    for place, (contact, one, other) in enumerate(zip(contacts, plain, scaled, strict=True)):
        size = torch.linalg.vector_norm(other)
        leak, error = min(close, _LEAK) * size, close * size
        fitting = find_layout(one, other, factors, leak=leak, error=error)
        if not fitting:
            error = torch.maximum(error, rounding.allowed(place, other))
            fitting = find_layout(one, other, factors, leak=leak, error=error)
        if not fitting:
            raise UnsupportedModelError(
                f"the examples of a batch are coupled after {_describe(contact, names)}"
                f", which ghost cannot follow: use backend='auto' or 'forward_mode'"
            )
        layouts.append(fitting[0])
        # A gradient of zero (a closed gate, a head at zero) fits any layout, and any coupling.
        seen = torch.linalg.vector_norm(other) > 1e-9 * torch.linalg.vector_norm(factors)
        certain = certain and len(fitting) == 1 and bool(seen)
    return tuple(layouts), certain


def _describe(contact: Contact, names: dict[int, str]) -> str:
    bases = [base for source in contact.sources if (base := base_of(source)) is not None]
    used = [repr(names[id(x)]) for x in (*contact.sources, *bases) if id(x) in names]
    return f"{contact.func}" + (f" with {', '.join(used)}" if used else "")
