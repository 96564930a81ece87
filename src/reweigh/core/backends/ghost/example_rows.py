"""Where the examples of a batch lie in a tensor.

Usually dimension 0 counts the examples. Inside a network it may also be another dimension
(sequence-first tensors), or a dimension may hold examples and positions flattened together, with
the example as the slower (`major`) or the faster index:

    major:  row = example * positions + position
    minor:  row = position * n + example
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """Examples along dimension `dim`, as its slower index if `major`."""

    dim: int
    major: bool

    def spread(self, values: Tensor, shape: Sequence[int]) -> Tensor:
        """Values per example [n], placed so that they broadcast against a tensor of `shape`."""
        positions = shape[self.dim] // values.shape[0]
        if positions > 1:
            values = values.repeat_interleave(positions) if self.major else values.repeat(positions)
        return values.view([-1 if d == self.dim else 1 for d in range(len(shape))])

    def gather(self, product: Tensor, n: int) -> Tensor:
        """Sum a tensor over everything that belongs to the same example: [n]."""
        others = [d for d in range(product.ndim) if d != self.dim]
        rows = product.sum(others) if others else product
        if len(rows) == n:
            return rows
        return rows.view(n, -1).sum(1) if self.major else rows.view(-1, n).sum(0)

    def inner(self, left: Tensor, right: Tensor, n: int) -> Tensor:
        """The inner product of two tensors, example by example: [n]."""
        if self.dim == 0 and self.major:
            # In the order in which they lie in memory (channels last, say): another would copy both.
            if left.ndim > 2:
                order = sorted(range(left.ndim), key=left.stride, reverse=True)
                if order[0] == 0:
                    left, right = left.permute(order), right.permute(order)
            inner: Tensor = torch.linalg.vecdot(left.reshape(n, -1), right.reshape(n, -1))
            return inner
        return self.gather(left * right, n)

    def pick(self, examples: Tensor, n: int, value: Tensor) -> Tensor:
        """A copy of the rows of some examples; for examples along dimension 0."""
        positions = value.shape[0] // n
        if positions == 1:
            return value.index_select(0, examples)
        folded: Tensor = value.unflatten(0, (n, positions) if self.major else (positions, n))
        return folded.index_select(0 if self.major else 1, examples).flatten(0, 1)

    def fits(self, shape: Sequence[int], n: int) -> bool:
        """Whether a tensor of `shape` can hold `n` examples this way."""
        return self.dim < len(shape) and shape[self.dim] % n == 0


def candidates(shape: Sequence[int], n: int) -> Iterator[Layout]:
    """Every way in which a tensor of `shape` can hold `n` examples, the usual ones first."""
    for dim, size in enumerate(shape):
        if size and size % n == 0:
            yield Layout(dim, major=True)
            if size > n > 1:
                yield Layout(dim, major=False)


def find_layout(
    plain: Tensor, scaled: Tensor, factors: Tensor, *, leak: Tensor, error: Tensor
) -> list[Layout]:
    """The layouts under which `scaled` is `plain` times each example's factor; [] if none is.

    `plain` is the gradient of sum_i f_i at some tensor and `scaled` that of sum_i r_i f_i. An empty
    answer proves that examples mix between that tensor and the loss. leak: allowed in the rows of
    examples with a factor of zero; error: allowed in all.
    """
    fitting: list[Layout] = []
    for layout in candidates(plain.shape, len(factors)):
        spread = layout.spread(factors, plain.shape).to(plain.dtype)
        fits = torch.linalg.vector_norm(scaled - plain * spread) <= error
        if fits and torch.linalg.vector_norm(scaled * (spread == 0)) <= leak:
            fitting.append(layout)
    return fitting
