"""Matrix products, y = a b and y = beta c + alpha a b, of single matrices and of batches of them.

A linear layer is the product with a parameter: y = x W' + b. A bilinear one has a matrix per output.
"""

from typing import Any

import torch
from torch import Tensor

from ..torch_internals import saved
from .elementwise import reduced, total
from .registry import Layer, Lookup, Needs, Parameters, Uses, Value, Values, aten, operation

_SELDOM = "products of batches of matrices seldom have a parameter among their operands"
_BILINEAR = (1, 3), (0,), (1, 2), (2, 3)  # the dimensions of a trilinear sum that is nn.Bilinear
_dims, _first_and_third = saved("expand1", "expand2", "expand3", "sumdim"), saved("i1", "i3")
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
        if ta is None:
            return None if tb is None else a @ tb
        if tb is None:
            return ta @ b
        return (torch.addmm if a.ndim == 2 else torch.baddbmm)(ta @ b, a, tb)

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


class BilinearLayer(Layer):
    """y_k = x' W_k z, one row of y per row of x and z. Uses: weight. Inputs: x, z."""

    def tangent(self, values: Values, g: Tensor) -> Tensor:
        """x' V_k z."""
        (weight,), (x, z) = values, self.inputs
        assert weight is not None
        return torch.nn.functional.bilinear(x, z, weight)

    def gradients(self, g: Tensor) -> Values:
        """The sum over rows of g_k x z'."""
        x, z = self.inputs
        pairs = (g.unsqueeze(2) * x.unsqueeze(1)).flatten(1)  # [rows, out * in]
        return ((pairs.t() @ z).view(g.shape[1], x.shape[1], z.shape[1]),)


@operation(
    aten._trilinear.default,
    node="TrilinearBackward0",
    lacks="its gradient is written for the layer, and run again for any other use",
)
class Trilinear:
    """y = the sum of a b c over some dimensions, after each was expanded along others."""

    @staticmethod
    def tangent(t: Lookup, out: Tensor, a: Tensor, b: Tensor, c: Tensor, *dims: Any) -> Value:
        """With each operand in turn replaced by its tangent."""
        ta, tb, tc = t(a), t(b), t(c)
        return total(
            None if ta is None else aten._trilinear(ta, b, c, *dims),
            None if tb is None else aten._trilinear(a, tb, c, *dims),
            None if tc is None else aten._trilinear(a, b, tc, *dims),
        )

    @staticmethod
    def recorded(node: Any, uses: Uses, parameters: Parameters) -> Layer | None:
        """nn.Bilinear."""
        x, weight, z = uses
        if x or z or weight is None or tuple(map(tuple, _dims(node))) != _BILINEAR:
            return None
        return BilinearLayer((weight,), _first_and_third(node))


@operation(aten.bmm.default, lacks=_SELDOM)
class BatchedProduct:
    """y = a b for each matrix of a batch."""

    tangent = MatrixProduct.tangent


@operation(aten.baddbmm.default, lacks=_SELDOM)
class BatchedAffine:
    """y = beta c + alpha a b for each matrix of a batch."""

    tangent = Affine.tangent
