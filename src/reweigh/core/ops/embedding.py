"""Rows of a table: y = W[index], and sums or means of such rows."""

from typing import Any

from torch import Tensor

from ...errors import UnsupportedModelError
from ..torch_internals import saved
from .registry import Layer, Lookup, Needs, Parameters, Uses, Value, Values, aten, operation

_gradient_is_special = saved("sparse", "scale_grad_by_freq")
_index_size_and_padding = saved("indices", "weight_sym_argsize_0", "padding_idx")


def _rows(table: Tensor, index: Tensor, padding: int) -> Tensor:
    """table[index], zero at the padding index, whose row autograd does not train."""
    rows: Tensor = aten.embedding(table, index)
    return rows if padding < 0 else rows.masked_fill_((index == padding).unsqueeze(-1), 0)


class EmbeddingLayer(Layer):
    """y = W[index]. Uses: the table. Fixed: the number of its rows, the padding index (or -1)."""

    def tangent(self, values: Values, g: Tensor) -> Tensor:
        """V[index]."""
        (table,) = values
        assert table is not None
        return _rows(table, self.inputs[0], self.fixed[1])

    def gradients(self, g: Tensor) -> Values:
        """Sum of g over the places where each row was looked up."""
        return (aten.embedding_dense_backward(g, self.inputs[0], *self.fixed, False),)


@operation(aten.embedding.default, node="EmbeddingBackward0")
class Embedding:
    """y = W[index]."""

    @staticmethod
    def tangent(
        t: Lookup, out: Tensor, weight: Tensor, index: Tensor,
        padding: int = -1, by_frequency: bool = False, sparse: bool = False,
    ) -> Value:  # fmt: skip
        """t(W)[index]."""
        tw = t(weight)
        if tw is None:
            return None
        if by_frequency:
            raise UnsupportedModelError(
                "an embedding with scale_grad_by_freq couples the examples of a batch through its "
                "backward pass alone: turn that option off, or use backend='double_backward'"
            )
        return _rows(tw, index, padding)

    @staticmethod
    def weight_gradient(
        needs: Needs, g: Tensor, out: Tensor, weight: Tensor, index: Tensor,
        padding: int = -1, by_frequency: bool = False, sparse: bool = False,
    ) -> Any:  # fmt: skip
        """Sum of g over the places where each row was looked up."""
        return (aten.embedding_dense_backward(g, index, weight.shape[0], padding, by_frequency),)

    @staticmethod
    def recorded(node: Any, uses: Uses, parameters: Parameters) -> Layer | None:
        """Tables whose gradient is dense and does not depend on the rest of the batch."""
        (table,) = uses
        if table is None or table.transposed or any(_gradient_is_special(node)):
            return None
        index, size, padding = _index_size_and_padding(node)
        padding -= 2**64 if padding >= 2**63 else 0  # shown without its sign
        return EmbeddingLayer((table,), (index,), (size, padding))


@operation(
    aten._embedding_bag.default,
    lacks="it is cheap to run again, and bags of different sizes cannot be cut by example",
)
class EmbeddingBag:
    """y = the sum, or mean, of the rows W[index] of each bag."""

    @staticmethod
    def tangent(
        t: Lookup, out: tuple[Tensor, ...], weight: Tensor, index: Tensor, offsets: Tensor,
        by_frequency: bool = False, mode: int = 0, sparse: bool = False,
        scale: Value = None, *rest: Any,
    ) -> Any:  # fmt: skip
        """Sums and means of rows are linear in the table: the same of t(W)."""
        if mode == 2 or by_frequency or t(scale) is not None:
            raise UnsupportedModelError(
                "an EmbeddingBag with mode='max', scale_grad_by_freq or trained per-sample weights "
                "has no tangent rule: use mode='sum' or 'mean', or backend='finite_difference'"
            )
        tw = t(weight)
        if tw is None:
            return None
        bag, *_ = aten._embedding_bag(tw, index, offsets, False, mode, False, scale, *rest)
        return bag, None, None, None
