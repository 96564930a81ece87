"""The clean gradient of linear layers, kept as two factors that need not be multiplied out.

For y = W x + b a clean batch of k rows gives V = C'B, with B [k, in] the inputs and C [k, out] the
gradients at the outputs. A score needs V in one place only, and there the sum can be taken the other
way round:

    g_i . (V a_i + v)  =  sum_k (g_i . c_k) (b_k . a_i + 1)

For a handful of clean rows that is far cheaper, in products (`factors_pay`) and in memory:
k (in + out) numbers instead of in out. Elsewhere, and for layers of any other kind, V is formed.

Who looks at `direction.values` gets V; only then is it multiplied out.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor, nn

from ..ops import Layer, Linear

_WIDE = (torch.float32, torch.float64)


class Factors(NamedTuple):
    """inputs [k, in] and gradients [k, out], whose product is a weight's gradient (its transpose, for
    a weight that is used as it is); for a bias the inputs are ones and not kept."""

    inputs: Tensor | None
    gradients: Tensor
    transposed: bool

    def product(self) -> Tensor:
        """Multiplied out, in the shape of the parameter."""
        if self.inputs is None:
            return self.gradients.sum(0)
        if self.transposed:
            return self.gradients.t() @ self.inputs
        return self.inputs.t() @ self.gradients

    def rows(self, stride: int) -> Tensor:
        """Every stride-th row of the product."""
        if self.inputs is not None and not self.transposed:
            return self.inputs[:, ::stride].t() @ self.gradients
        return self._replace(gradients=self.gradients[:, ::stride]).product()


class PartlyFactored(Sequence[Tensor]):
    """A gradient, parameter by parameter, of which some parts are factors until they are looked at."""

    def __init__(self, parts: Sequence[Tensor | Factors | None]) -> None:
        self._parts: list[Any] = list(parts)  # None: a value that nobody asks for

    def products(self) -> Iterator[Tensor]:
        """Every value multiplied out, with the factors left as they are."""
        return (part.product() if isinstance(part, Factors) else part for part in self._parts)

    def factors(self, place: int) -> Factors | None:
        """What the value at `place` is the product of, if that is all there is of it."""
        part = self._parts[place]
        return part if isinstance(part, Factors) else None

    def rows(self, strides: Sequence[int]) -> list[Tensor]:
        """Every stride-th row of each value; of factors only these are multiplied out."""
        return [
            part.rows(stride)
            if isinstance(part, Factors)
            else part[::stride]
            if part.ndim
            else part
            for part, stride in zip(self._parts, strides, strict=True)
        ]

    @overload
    def __getitem__(self, place: int) -> Tensor: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Tensor, ...]: ...
    def __getitem__(self, place: int | slice) -> Tensor | tuple[Tensor, ...]:
        if isinstance(place, slice):
            return tuple(self[i] for i in range(*place.indices(len(self))))
        part: Any = self._parts[place]
        value: Tensor = part
        if isinstance(part, Factors):
            value = self._parts[place] = part.product()
        return value

    def __len__(self) -> int:
        return len(self._parts)


def factors_pay(
    layer: Linear, weight: Tensor, rows: float | Fraction, train_share: float = 1.0
) -> bool:
    """Whether the factors of `rows` clean rows cost less than their product V [out, in].

    With k clean rows beside n train rows, factors take n k (in + out) products. V takes k in out to be
    formed and n in out to be used. So factors are cheaper where

        k n / (n + k) (in + out)  <  in out

    train_share is n / (n + k); 1, for n much larger than k, also compares the memory of both.
    """
    fan_out, fan_in = weight.shape
    wide = layer.inputs[0].dtype in _WIDE
    return wide and train_share * rows * (fan_in + fan_out) < fan_in * fan_out


def paying(
    layers: Sequence[Layer],
    theta: Sequence[nn.Parameter],
    *,
    clean_share: float | Fraction = 1.0,
    train_share: float = 1.0,
) -> set[int]:
    """Which layers, by position, are better left as factors: linear ones that share no parameter
    with another layer, and whose factors pay. clean_share: of clean rows among their rows."""
    chosen: set[int] = set()
    for i in unshared_linear(layers):
        layer, weight = layers[i], layers[i].uses[1]
        assert isinstance(layer, Linear)
        assert weight is not None
        rows = clean_share * layer.inputs[0].shape[0]
        if factors_pay(layer, theta[weight.place], rows, train_share):
            chosen.add(i)
    return chosen


def unshared_linear(layers: Sequence[Layer]) -> list[int]:
    """The positions of linear layers with a weight that share no parameter with another layer."""
    places = [use.place for layer in layers for use in layer.uses if use]
    alone = len(places) == len(set(places))
    return [
        i
        for i, layer in enumerate(layers)
        if isinstance(layer, Linear) and layer.uses[1] is not None
        if alone or all(places.count(use.place) == 1 for use in layer.uses if use)
    ]


def collected(
    layers: Sequence[Layer],
    outputs: Sequence[Tensor | None],
    theta: Sequence[nn.Parameter],
    *,
    train_share: float = 1.0,
) -> PartlyFactored:
    """The gradient of every parameter from those at the results of all layers (`outputs`), with
    factors where they pay."""
    factored = paying(layers, theta, train_share=train_share)
    values: list[Tensor | Factors | None] = [None] * len(theta)
    with torch.no_grad():
        for i, (layer, g) in enumerate(zip(layers, outputs, strict=True)):
            if g is None:
                continue
            if i in factored:
                bias, weight = layer.uses
                assert weight is not None
                values[weight.place] = Factors(layer.inputs[0], g, weight.transposed)
                if bias is not None:
                    values[bias.place] = Factors(None, g, transposed=False)
                continue
            for use, part in zip(layer.uses, layer.gradients(g), strict=True):
                if use is not None and part is not None:
                    own = theta[use.place]
                    before, more = values[use.place], part.to(own.dtype).reshape(own.shape)
                    assert not isinstance(before, Factors)
                    values[use.place] = more if before is None else before + more
        return PartlyFactored(
            [torch.zeros_like(p) if v is None else v for v, p in zip(values, theta, strict=True)]
        )
