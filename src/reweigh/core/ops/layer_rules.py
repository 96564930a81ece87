"""Layers as autograd records them: what each needs for scores and for weighted gradients.

A node of the graph keeps the inputs of its operation y = op(x, W, b). From those, and the gradient g
at y, come

    tangent     (d op / d W) . V          the result moved along the clean gradient V, x held fixed
    gradients   (d op / d W)' . g         for each parameter

Rules are looked up by the node's name. One that does not recognise how its parameters are used
returns None, and the operations are then followed one by one instead (contacts.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

aten: Any = torch.ops.aten


class Use(NamedTuple):
    """An aligned parameter as the argument of an operation, as it is or transposed."""

    place: int
    transposed: bool


Uses = Sequence[Use | None]  # one per argument that could need a gradient


@dataclass(eq=False)
class Layer:
    """One operation with parameters. `inputs` have the rows of the result; `fixed` is the rest."""

    uses: tuple[Use | None, ...]
    inputs: tuple[Tensor, ...]
    fixed: tuple[Any, ...] = ()

    def only(self, pick: Callable[[Tensor], Tensor]) -> Layer:
        """The same layer on some of its rows."""
        return self.of(tuple(map(pick, self.inputs)))

    def of(self, inputs: tuple[Tensor, ...]) -> Layer:
        """The same layer on other inputs."""
        return type(self)(self.uses, inputs, self.fixed)

    def tangent(self, values: Sequence[Tensor | None], g: Tensor) -> Tensor:
        """The tangent of the result; one value per use, None for an argument that is no parameter."""
        raise NotImplementedError

    def gradients(self, g: Tensor) -> Sequence[Tensor | None]:
        """One gradient per use."""
        raise NotImplementedError


# node, uses, the aligned parameters -> the layer
Rule = Callable[[Any, Uses, Sequence[Tensor]], Layer | None]
RULES: dict[str, Rule] = {}


def layer_rule(name: str) -> Callable[[Rule], Rule]:
    """Register the rule for nodes of this name."""

    def register(rule: Rule) -> Rule:
        RULES[name] = rule
        return rule

    return register


class Linear(Layer):
    """y = x W' + b, one row of y per row of x."""

    def tangent(self, values: Sequence[Tensor | None], g: Tensor) -> Tensor:
        """x V' + v."""
        shift, turn = values
        if turn is None:
            assert shift is not None
            return shift.expand_as(g)
        (x,) = self.inputs
        matrix = turn if self._as_used else turn.t()
        return x @ matrix if shift is None else torch.addmm(shift, x, matrix)

    def gradients(self, g: Tensor) -> Sequence[Tensor | None]:
        """g' x, and the sum of g over rows."""
        shift, turn = self.uses
        product = None
        if turn is not None:
            (x,) = self.inputs
            product = x.t() @ g if self._as_used else g.t() @ x
        return g.sum(0) if shift is not None else None, product

    @property
    def _as_used(self) -> bool:
        use = self.uses[1]
        return use is not None and not use.transposed


@layer_rule("AddmmBackward0")
def affine(node: Any, uses: Uses, parameters: Sequence[Tensor]) -> Layer | None:
    """Linear layers with a bias."""
    shift, x, weight = uses
    if x is not None or (shift and shift.transposed) or node._saved_alpha != 1:
        return None
    if node._saved_beta != 1:
        return None
    return Linear((shift, weight), (node._saved_mat1,) if weight else ())


@layer_rule("MmBackward0")
def matrix_product(node: Any, uses: Uses, parameters: Sequence[Tensor]) -> Layer | None:
    """Linear layers without a bias."""
    x, weight = uses
    return Linear((None, weight), (node._saved_self,)) if x is None else None


class Convolution(Layer):
    """y = W * x + b."""

    def tangent(self, values: Sequence[Tensor | None], g: Tensor) -> Tensor:
        """V * x + v."""
        turn, shift = values
        if turn is None:
            assert shift is not None
            return shift.view(-1, *[1] * (g.ndim - 2)).expand_as(g)
        moved: Tensor = aten.convolution(self.inputs[0], turn, shift, *self.fixed[1:])
        return moved

    def gradients(self, g: Tensor) -> Sequence[Tensor | None]:
        """The weight half of the backward kernel."""
        mask = [False, *[use is not None for use in self.uses]]
        weight, *geometry = self.fixed
        found = aten.convolution_backward(g, self.inputs[0], weight, [g.shape[1]], *geometry, mask)
        return found[1], found[2]


@layer_rule("ConvolutionBackward0")
def convolution(node: Any, uses: Uses, parameters: Sequence[Tensor]) -> Layer | None:
    """Convolutions of any dimension, transposed ones included."""
    x, weight, bias = uses
    if x is not None or (weight and weight.transposed):
        return None
    geometry = (
        node._saved_stride, node._saved_padding, node._saved_dilation, node._saved_transposed,
        node._saved_output_padding, node._saved_groups,
    )  # fmt: skip
    return Convolution((weight, bias), (node._saved_input,), (node._saved_weight, *geometry))


class Embedding(Layer):
    """y = W[index]."""

    def tangent(self, values: Sequence[Tensor | None], g: Tensor) -> Tensor:
        """V[index], zero at the padding index, whose row autograd does not train."""
        (index,), (_, padding) = self.inputs, self.fixed
        found: Tensor = aten.embedding(values[0], index)
        return found if padding < 0 else found.masked_fill_((index == padding).unsqueeze(-1), 0)

    def gradients(self, g: Tensor) -> Sequence[Tensor | None]:
        """Sum of g over the places where each row was looked up."""
        return (aten.embedding_dense_backward(g, self.inputs[0], *self.fixed, False),)


@layer_rule("EmbeddingBackward0")
def embedding(node: Any, uses: Uses, parameters: Sequence[Tensor]) -> Layer | None:
    """Tables whose gradient is dense and does not depend on the whole batch."""
    (table,) = uses
    if table is None or table.transposed or node._saved_sparse or node._saved_scale_grad_by_freq:
        return None
    padding = node._saved_padding_idx
    padding -= 2**64 if padding >= 2**63 else 0  # shown without its sign
    size = node._saved_weight_sym_argsize_0
    return Embedding((table,), (node._saved_indices,), (size, padding))


class LayerNorm(Layer):
    """y = w (x - mean) / std + b, over the last dimensions."""

    def tangent(self, values: Sequence[Tensor | None], g: Tensor) -> Tensor:
        """v z + u with z = (x - mean) / std."""
        (x, mean, rstd), (scale, shift) = self.inputs, values
        if scale is None:
            assert shift is not None
            return shift.expand_as(g)
        z = (x - mean).mul_(rstd)
        return z.mul_(scale) if shift is None else torch.addcmul(shift, z, scale)

    def gradients(self, g: Tensor) -> Sequence[Tensor | None]:
        """The affine half of the backward kernel."""
        (x, mean, rstd), (shape, weight, bias) = self.inputs, self.fixed
        mask = [False, *[use is not None for use in self.uses]]
        found = aten.native_layer_norm_backward(g, x, shape, mean, rstd, weight, bias, mask)
        return found[1], found[2]


@layer_rule("NativeLayerNormBackward0")
def layer_norm(node: Any, uses: Uses, parameters: Sequence[Tensor]) -> Layer | None:
    """Layer normalisation; under autocast its statistics are of another precision: not here."""
    x, scale, shift = uses
    inputs = (node._saved_input, node._saved_result1, node._saved_result2)
    if x is not None or len({t.dtype for t in inputs}) > 1:
        return None
    fixed = (node._saved_normalized_shape, node._saved_weight, node._saved_bias)
    return LayerNorm((scale, shift), inputs, fixed)


class Offset(Layer):
    """y = x + b, broadcast; b is the use that is there."""

    def tangent(self, values: Sequence[Tensor | None], g: Tensor) -> Tensor:
        """v."""
        (value,) = (v for v in values if v is not None)
        return value.expand_as(g)

    def gradients(self, g: Tensor) -> Sequence[Tensor | None]:
        """g, summed over what was broadcast."""
        (shape,) = self.fixed
        return [None if use is None else g.sum_to_size(shape) for use in self.uses]


class Factor(Offset):
    """y = x w, broadcast."""

    def tangent(self, values: Sequence[Tensor | None], g: Tensor) -> Tensor:
        """x v."""
        (value,) = (v for v in values if v is not None)
        return self.inputs[0] * value

    def gradients(self, g: Tensor) -> Sequence[Tensor | None]:
        """x g, summed over what was broadcast."""
        return super().gradients(g * self.inputs[0])


@layer_rule("AddBackward0")
def plus(node: Any, uses: Uses, parameters: Sequence[Tensor]) -> Layer | None:
    """A bias, or learned positions, added by hand."""
    left, right = uses
    use = left or right
    if use is None or (left and right) or use.transposed or node._saved_alpha != 1:
        return None
    return Offset(tuple(uses), (), (parameters[use.place].shape,))


@layer_rule("MulBackward0")
def times(node: Any, uses: Uses, parameters: Sequence[Tensor]) -> Layer | None:
    """A gain, or a gate, multiplied by hand."""
    left, right = uses
    use = left or right
    if use is None or (left and right) or use.transposed:
        return None
    other = node._saved_other if left else node._saved_self
    return Factor(tuple(uses), (other,), (parameters[use.place].shape,))
