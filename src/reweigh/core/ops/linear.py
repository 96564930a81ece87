"""Matrix products, y = a b and y = beta c + alpha a b, of single matrices and of batches of them.

A linear layer is the product with a parameter: y = x W' + b.
"""

from typing import Any

import torch
from torch import Tensor

from ..torch_internals import saved
from .elementwise import reduced, total
from .registry import Layer, Lookup, Needs, Parameters, Uses, Value, Values, aten, operation

_SELDOM = "products of batches of matrices seldom have a parameter among their operands"
_scales, _left_of_sum, _left = saved("alpha", "beta"), saved("mat1"), saved("self")


class Linear(Layer):
    """y = x W' + b, one row of y per row of x. Uses: bias, weight."""

    @property
    def weight_is_transposed(self) -> bool:
        """Whether the product was with W', as in nn.Linear; else it was with W itself."""
        use = self.uses[1]
        return use is not None and use.transposed

    def tangent(self, values: Values, g: Tensor) -> Tensor:
        """x V' + v."""
        bias, weight = values
        if weight is None:
            assert bias is not None
            return bias.expand_as(g)
        (x,) = self.inputs
        matrix = weight.t() if self.weight_is_transposed else weight
        return x @ matrix if bias is None else torch.addmm(bias, x, matrix)

    def gradients(self, g: Tensor) -> Values:
        """g' x, and the sum of g over rows."""
        bias, weight = self.uses
        product = None
        if weight is not None:
            (x,) = self.inputs
            product = g.t() @ x if self.weight_is_transposed else x.t() @ g
        return g.sum(0) if bias is not None else None, product


@operation(aten.mm.default, node="MmBackward0")
class MatrixProduct:
    """y = a b."""

    @staticmethod
    def tangent(t: Lookup, out: Tensor, a: Tensor, b: Tensor) -> Value:
        """t(a) b + a t(b)."""
        ta, tb = t(a), t(b)
        return total(None if ta is None else ta @ b, None if tb is None else a @ tb)

    @staticmethod
    def weight_gradient(needs: Needs, g: Tensor, out: Tensor, a: Tensor, b: Tensor) -> Any:
        """d/da = g b',  d/db = a' g."""
        return g @ b.t() if needs(a) else None, a.t() @ g if needs(b) else None

    @staticmethod
    def recorded(node: Any, uses: Uses, parameters: Parameters) -> Layer | None:
        """Linear layers without a bias."""
        x, weight = uses
        return Linear((None, weight), (_left(node),)) if x is None else None


@operation(aten.addmm.default, node="AddmmBackward0")
class Affine:
    """y = beta c + alpha a b."""

    @staticmethod
    def tangent(
        t: Lookup, out: Tensor, c: Any, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1
    ) -> Value:
        """beta t(c) + alpha (t(a) b + a t(b))."""
        product, added = MatrixProduct.tangent(t, out, a, b), t(c)
        if product is not None and alpha != 1:
            product = product * alpha
        if added is not None:
            added = (added if beta == 1 else added * beta).expand_as(out)
        return total(product, added)

    @staticmethod
    def weight_gradient(
        needs: Needs, g: Tensor, out: Tensor, c: Tensor, a: Tensor, b: Tensor,
        *, beta: float = 1, alpha: float = 1,
    ) -> Any:  # fmt: skip
        """As the matrix product, and d/dc = the sum of g over rows."""
        added = reduced(g, c) * beta if needs(c) else None
        product = g if alpha == 1 else g * alpha
        return added, *MatrixProduct.weight_gradient(needs, product, out, a, b)

    @staticmethod
    def recorded(node: Any, uses: Uses, parameters: Parameters) -> Layer | None:
        """Linear layers with a bias."""
        bias, x, weight = uses
        if x is not None or (bias and bias.transposed) or _scales(node) != (1, 1):
            return None
        return Linear((bias, weight), (_left_of_sum(node),) if weight else ())


@operation(aten.bmm.default, lacks=_SELDOM)
class BatchedProduct:
    """y = a b for each matrix of a batch."""

    tangent = MatrixProduct.tangent


@operation(aten.baddbmm.default, lacks=_SELDOM)
class BatchedAffine:
    """y = beta c + alpha a b for each matrix of a batch."""

    tangent = Affine.tangent
