"""Rows of a table: y = W[index], and sums or means of such rows."""

from typing import Any

import torch
from torch import Tensor

from ..torch_internals import saved
from .elementwise import total
from .registry import Layer, Lookup, Needs, Parameters, Uses, Value, Values, aten, operation

_gradient_is_special = saved("sparse", "scale_grad_by_freq")
_index_size_and_padding = saved("indices", "weight_sym_argsize_0", "padding_idx")

_LARGEST = 2  # among the modes of a bag


def _rows(table: Tensor, index: Tensor, padding: int) -> Tensor:
    """table[index], zero at the padding index, whose row autograd does not train."""
    rows: Tensor = aten.embedding(table, index)
    return rows if padding < 0 else rows.masked_fill_((index == padding).unsqueeze(-1), 0)


def _per_use(table: Tensor, index: Tensor) -> Tensor:
    """The rows of a table divided by how often the batch looks each up, which is how autograd scales
    their gradients under scale_grad_by_freq: the counts are those of the batch, whoever looks."""
    uses = index.flatten().bincount(minlength=table.shape[0]).clamp(min=1)
    return table / uses.to(table.dtype).unsqueeze(-1)


def _scales_of_bags(
    out: tuple[Tensor, ...],
    table: Tensor,
    index: Tensor,
    offsets: Tensor,
    mode: int,
    padding: int = -1,
) -> Tensor:
    """What the backward of a bag multiplies the gradient of each row of the table by under
    scale_grad_by_freq: asked of its kernel, since those of PyTorch for CPUs mix the rows' counts up."""
    g = torch.ones_like(out[0][:, :1])
    with_counts, without = (
        aten._embedding_bag_backward(
            g, index, offsets, *out[1:], table.shape[0], by_frequency, mode, False, None, padding
        )
        for by_frequency in (True, False)
    )
    scales: Tensor = torch.where(without == 0, 1, with_counts / without)
    return scales


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
        """t(W)[index]; under scale_grad_by_freq, each row divided by its uses, as autograd does."""
        tw = t(weight)
        if tw is None:
            return None
        return _rows(_per_use(tw, index) if by_frequency else tw, index, padding)

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
    """y = the sum, mean or largest of the rows W[index] of each bag; in a sum, row j counts s_j times."""

    @staticmethod
    def tangent(
        t: Lookup, out: tuple[Tensor, ...], weight: Tensor, index: Tensor, offsets: Tensor,
        by_frequency: bool = False, mode: int = 0, sparse: bool = False,
        scale: Value = None, *rest: Any,
    ) -> Any:  # fmt: skip
        """Sums and means: the same of t(W), and of W with the scales t(s). Largest: t(W) where it was."""
        tw, ts, parts = t(weight), t(scale), []
        if tw is not None and by_frequency and mode != _LARGEST:
            tw = tw * _scales_of_bags(out, tw, index, offsets, mode, *rest[1:])
        if tw is not None and mode == _LARGEST:
            _, _, sizes, where = out
            parts.append(tw.gather(0, where.clamp(min=0)) * (sizes > 0).unsqueeze(-1))
        elif tw is not None:
            parts.append(
                aten._embedding_bag(tw, index, offsets, False, mode, False, scale, *rest)[0]
            )
        if ts is not None:
            parts.append(
                aten._embedding_bag(weight, index, offsets, False, mode, False, ts, *rest)[0]
            )
        return total(*parts), None, None, None
