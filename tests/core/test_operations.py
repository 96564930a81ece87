"""Every operation has its three facets or says why not, and each facet is right.

The tangent is held against a numerical derivative, the weight gradient against autograd, and the
recorded layer against both. All in float64, on one or more cases per call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, combinations
from typing import Any

import pytest
import torch
from torch import Tensor

from reweigh.core.ops import (
    OPERATIONS,
    RECORDED,
    STOPS,
    Linear,
    Use,
    gradients_of_call,
    tangent_of_call,
)
from reweigh.core.ops.registry import (
    QUESTIONS,
    Absent,
    LinearTangent,
    Operation,
    ZeroTangent,
    operation,
)

aten: Any = torch.ops.aten
N = 4
STEP = 1e-6  # of the numerical derivative


@dataclass(frozen=True)
class Case:
    """A call, with arguments that are made anew each time."""

    call: Any
    make: Callable[[], Sequence[Any]]
    note: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    inputs: tuple[int, ...] = (0,)  # those that come from the batch and are no parameters
    constant: tuple[int, ...] = ()  # floating-point arguments without a derivative
    numerical: bool = True  # whether autograd's gradient is that of the function by itself
    readable: bool = True  # whether the recorded facet, where there is one, knows this use of it

    def __str__(self) -> str:
        return f"{self.call} {self.note}".strip()

    def arguments(self) -> list[Any]:
        torch.manual_seed(7)
        return list(self.make())

    def run(self, args: Sequence[Any]) -> list[Any]:
        """The results, on copies: some calls write to their arguments."""
        copies = [x.clone() if isinstance(x, Tensor) else x for x in args]
        return listed(self.call(*copies, **self.options))

    def subsets(self, *, inputs: bool = True) -> Iterator[tuple[int, ...]]:
        """Which arguments to differentiate for: each alone, each pair, ..., all together."""
        left_out = self.constant if inputs else self.constant + self.inputs
        places = [
            i
            for i, x in enumerate(self.arguments())
            if isinstance(x, Tensor) and x.is_floating_point() and i not in left_out
        ]
        return chain.from_iterable(combinations(places, k + 1) for k in range(len(places)))


def listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


def rand(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def one(
    call: Any, *rest: Any, shape: Sequence[int] = (N, 6), note: str = "", **options: Any
) -> Case:
    """One tensor, and constants."""
    return Case(call, lambda: (rand(*shape), *rest), note, options)


def pixels(call: Any, *rest: Any) -> Case:
    return one(call, *rest, shape=(N, 2, 6, 6))


def pair(call: Any, *shape: int, note: str = "", **options: Any) -> Case:
    """A tensor from the batch, and a parameter of a shape that may be broadcast."""
    made = lambda: (rand(N, 6), rand(*shape))  # noqa: E731
    return Case(call, made, note or str(shape), options, readable=not options)


def product(call: Any, note: str = "", **options: Any) -> Case:
    made = lambda: (rand(3), rand(N, 6), rand(6, 3))  # noqa: E731
    return Case(call, made, note, options, inputs=(1,), readable=not options)


def convolution(note: str, x: Sequence[int], w: Sequence[int], bias: int, *geometry: Any) -> Case:
    def make() -> Sequence[Any]:
        return rand(N, *x), rand(*w), rand(bias) if bias else None, *geometry

    return Case(aten.convolution.default, make, note)


def embedding(padding: int, by_frequency: bool = False) -> Case:
    """By frequency, autograd's gradient is not that of the operation, and the tangent follows it."""

    def make() -> Sequence[Any]:
        index = torch.tensor([[0, 2], [1, 1], [2, 4], [1, 0]])
        return rand(5, 6), index, padding, by_frequency, False

    note = f"padding {padding}" + ", by frequency" * by_frequency
    return Case(
        aten.embedding.default, make, note, inputs=(), numerical=not by_frequency,
        readable=not by_frequency,
    )  # fmt: skip


def bag(
    note: str, mode: int, *, by_frequency: bool = False, scaled: bool = False, padding: int = -1
) -> Case:
    """Bags of 2, 1, 2, 2 and 0 rows."""

    def make() -> Sequence[Any]:
        index, offsets = torch.tensor([0, 2, 1, 1, 4, 3, 1]), torch.tensor([0, 2, 3, 5, 7])
        scales = rand(7) if scaled else None
        return rand(5, 6), index, offsets, by_frequency, mode, False, scales, False, padding

    return Case(aten._embedding_bag.default, make, note, inputs=(), numerical=not by_frequency)


def layer_norm(*shape: int) -> Case:
    def make() -> Sequence[Any]:
        return rand(N, 5, 6), list(shape), rand(*shape), rand(*shape), 1e-5

    return Case(aten.native_layer_norm.default, make, str(shape))


def batch_norm(note: str, training: bool) -> Case:
    def make() -> Sequence[Any]:
        return rand(N, 3, 5), rand(3), rand(3), rand(3), rand(3).exp(), training, 0.1, 1e-5

    return Case(aten.native_batch_norm.default, make, note, constant=(3, 4))


def ctc(call: Any, kind: Any) -> Case:
    """Its backward kernel is right after log_softmax only: it adds what that one takes away."""

    def make() -> Sequence[Any]:
        targets = torch.tensor([[1, 2], [2, 1], [1, 1], [2, 2]])
        return rand(6, N, 3).log_softmax(-1), targets, kind([6, 5, 6, 4]), kind([2, 2, 1, 2])

    return Case(call, make, numerical=False)


def attention(note: str, q: Sequence[int], k: Sequence[int], **options: Any) -> Case:
    """Two heads; queries and keys of these lengths and widths."""
    call = aten._scaled_dot_product_flash_attention_for_cpu.default
    make = lambda: (rand(N, 2, *q), rand(N, 2, *k), rand(N, 2, *k))  # noqa: E731
    return Case(call, make, note, options, inputs=(0, 1, 2))


def likelihood(
    call: Any, *shape: int, note: str = "", weights: bool = False, reduce: int = 0
) -> Case:
    """Of six classes, of which the third is ignored."""

    def make() -> Sequence[Any]:
        target = (
            torch.arange(N * 30).reshape(N, -1)[:, : max(1, math.prod(shape))].reshape(N, *shape)
            % 6
        )
        return rand(N, 6, *shape), target, rand(6).exp() if weights else None, reduce, 2

    return Case(call, make, note, constant=(2,))


HIDING = torch.zeros(3, 5, dtype=torch.float64)
HIDING[:, 3:] = HIDING[1] = -torch.inf  # the last keys; and from the second query all of them
SUMS = (aten.add.Tensor, aten.add_.Tensor, aten.sub.Tensor, aten.sub_.Tensor)
CASES = [
    Case(aten.mm.default, lambda: (rand(N, 6), rand(6, 3))),
    product(aten.addmm.default),
    product(aten.addmm.default, "scaled", beta=2, alpha=3),
    Case(aten.bmm.default, lambda: (rand(2, N, 6), rand(2, 6, 3))),
    Case(aten.baddbmm.default, lambda: (rand(2, 1, 3), rand(2, N, 6), rand(2, 6, 3))),
    convolution("1d, groups", (4, 7), (6, 2, 3), 6, [1], [1], [1], False, [0], 2),
    convolution("1d, no bias", (2, 5), (3, 2, 3), 0, [1], [0], [1], False, [0], 1),
    convolution("2d", (2, 6, 6), (3, 2, 3, 3), 3, [2, 1], [1, 0], [1, 2], False, [0, 0], 1),
    convolution("up", (2, 5, 5), (2, 3, 2, 2), 3, [2, 2], [0, 0], [1, 1], True, [1, 1], 1),
    embedding(-1),
    embedding(2),
    bag("sum", 0),
    embedding(-1, by_frequency=True),
    embedding(2, by_frequency=True),
    bag("mean", 1),
    bag("largest", 2),
    bag("largest, padded", 2, padding=1),
    bag("scaled sum", 0, scaled=True),
    bag("sum, by frequency", 0, by_frequency=True),
    bag("mean, by frequency", 1, by_frequency=True),
    bag("largest, by frequency", 2, by_frequency=True),
    bag("sum, by frequency, padded", 0, by_frequency=True, padding=1),
    bag("scaled sum, by frequency", 0, by_frequency=True, scaled=True),
    layer_norm(6),
    layer_norm(5, 6),
    Case(aten.expand.default, lambda: (rand(1, 6), [N, 6]), inputs=()),
    Case(aten.expand.default, lambda: (rand(3, 1), [N, 3, 2]), "new dimensions", inputs=()),
    Case(aten.repeat.default, lambda: (rand(1, 6), [N, 1]), inputs=()),
    Case(aten.repeat.default, lambda: (rand(6), [N]), "blocks", inputs=()),
    Case(aten.repeat.default, lambda: (rand(3, 2), [N, 2, 3]), "blocks in blocks", inputs=()),
    Case(aten.native_group_norm.default,
         lambda: (rand(N, 6, 5), rand(6), rand(6), N, 6, 5, 3, 1e-5)),
    Case(aten.native_group_norm.default,
         lambda: (rand(N, 6, 3, 2), rand(6), rand(6), N, 6, 6, 1, 1e-5), "pixels"),
    Case(aten.native_group_norm.default,
         lambda: (rand(N, 6), rand(6), rand(6), N, 6, 1, 2, 1e-5), "no places"),
    batch_norm("in training", True),
    batch_norm("in use", False),
    Case(aten._weight_norm_interface.default, lambda: (rand(3, 6), rand(3, 1)), inputs=()),
    Case(aten._weight_norm_interface.default, lambda: (rand(3, 6), rand(1, 6), 1), "last", inputs=()),
    *(Case(aten._cdist_forward.default, lambda p=p: (rand(2, N, 6), rand(2, 3, 6), p, None), f"p = {p}")
      for p in (1.0, 1.5, 2.0, 3.0, float("inf"))),
    *(Case(aten.grid_sampler_2d.default, lambda i=i, j=j: (rand(N, 3, 5, 4), rand(N, 3, 2, 2), i, j, False), f"{i}, {j}")
      for i in (0, 2) for j in (0, 1, 2)),
    *(one(aten.norm.Scalar, p, note=f"p = {p}") for p in (2, 1.0, 3.0)),
    one(aten._pack_padded_sequence.default, torch.tensor([5, 3, 3, 1]), True, shape=(N, 5, 6)),
    *(one(aten.multi_margin_loss.default, torch.tensor([0, 2, 1, 1]), *rest, note=str(rest))
      for rest in ((1, 1, None, 0), (2, 0.5, None, 0), ())),
    *(ctc(call, kind) for call, kind in ((aten._ctc_loss.default, list), (aten._ctc_loss.Tensor, torch.tensor))),
    *(pair(call, *shape) for call in SUMS for shape in [(N, 6), (6,)]),
    *(pair(call, 6, note="scaled", alpha=3) for call in SUMS),
    *(pair(aten.mul.Tensor, *shape) for shape in [(N, 6), (6,), (1,)]),
    *(Case(call, lambda: (rand(), rand()), "numbers") for call in (*SUMS, aten.mul.Tensor)),
    *(Case(aten._prelu_kernel.default, lambda w=w: (rand(N, 6), rand(*w)), f"{w}") for w in [(1, 6), (1, 1)]),
    Case(aten._trilinear.default,
         lambda: (rand(N, 3), rand(2, 3, 5), rand(N, 5), [1, 3], [0], [1, 2], [2, 3]), inputs=(0, 2)),
    Case(aten._trilinear.default,
         lambda: (rand(N, 3), rand(N, 3), rand(N, 3), [], [], [], [1]), "of rows", inputs=(0, 2), readable=False),
    Case(aten.copy_.default, lambda: (rand(N, 6), rand(6)), constant=(0,)),
    one(aten.neg.default),
    one(aten.mul.Scalar, 3.0),
    one(aten.div.Scalar, 3.0),
    one(aten.relu.default),
    one(aten.relu_.default),
    one(aten.sigmoid.default),
    one(aten.sigmoid_.default),
    one(aten.tanh.default),
    one(aten.tanh_.default),
    one(aten.gelu.default),
    one(aten.gelu.default, approximate="tanh", note="tanh"),
    one(aten.silu.default),
    one(aten._softmax.default, 1, False),
    one(aten._softmax.default, 0, False, note="over rows"),
    one(aten._log_softmax.default, 1, False),
    attention("", (3, 4), (5, 4)),
    attention("causal", (4, 4), (4, 4), is_causal=True),
    attention("scaled", (3, 4), (3, 4), scale=0.3),
    attention("masked", (3, 4), (5, 4), attn_mask=HIDING),
    likelihood(aten.nll_loss_forward.default),
    likelihood(aten.nll_loss_forward.default, note="mean", weights=True, reduce=1),
    likelihood(aten.nll_loss2d_forward.default, 1, 5),
    likelihood(aten.nll_loss2d_forward.default, 2, 2, note="sum", weights=True, reduce=2),
    pixels(aten.max_pool2d_with_indices.default, [3, 3], [2, 2], [1, 1]),
    pixels(aten.avg_pool2d.default, [2, 2]),
    pixels(aten._adaptive_avg_pool2d.default, [2, 3]),
    pixels(aten.upsample_nearest2d.vec, [12, 12], None),
    one(aten._unsafe_view.default, [2, 12]),
    one(aten.clone.default),
    one(aten._to_copy.default, dtype=torch.complex128),
    one(aten._to_copy.default, dtype=torch.int64, note="to integers"),
    one(aten.unsafe_split.Tensor, 3, 1),
    one(aten.unsafe_chunk.default, 3, 1),
    one(aten.constant_pad_nd.default, [1, 2]),
    one(aten.constant_pad_nd.default, [1, 2], 5.0, note="with fives"),
    one(aten.index_select.default, 1, torch.tensor([0, 4, 4])),
    one(aten.gather.default, 1, torch.tensor([[1, 1], [0, 5], [2, 3], [4, 0]])),
    one(aten.sum.default),
    one(aten.sum.dim_IntList, [1]),
    one(aten.mean.default),
    one(aten.mean.dim, [0], True),
]  # fmt: skip
STOPPING = [
    one(aten.detach.default),
    one(aten.detach_.default),
    Case(aten.bernoulli.default, lambda: (rand(N, 6).sigmoid(),)),
    one(aten.bernoulli.p, 0.5, note="refused by autograd"),
    one(aten.rand_like.default),
    one(aten.randn_like.default),
    one(aten.randint_like.default, 9, note="refused by autograd"),
]
OWNER = {call: made for made in OPERATIONS for call in made.calls}
RECORDED_CASES = [case for case in CASES if OWNER[case.call].node]


def tangents(case: Case, args: Sequence[Any], directions: dict[int, Tensor]) -> list[Tensor | None]:
    """Those of the results, as a back-end asks for them: after the call, which may write to args."""
    args = [x.detach().clone() if isinstance(x, Tensor) else x for x in args]
    known = {id(args[i]): direction for i, direction in directions.items()}
    out = case.call(*args, **case.options)
    return listed(tangent_of_call(case.call, args, case.options, out, lambda x: known.get(id(x))))


def differentiable(case: Case, wanted: Sequence[int]) -> tuple[list[Any], Tensor]:
    """Arguments of which some need a gradient, and the first result."""
    args = [x.requires_grad_() if i in wanted else x for i, x in enumerate(case.arguments())]
    return args, case.run(args)[0]


def close(mine: Tensor | None, true: Tensor, tolerance: float = 1e-9) -> bool:
    mine = torch.zeros_like(true) if mine is None else mine
    return mine.shape == true.shape and torch.allclose(mine, true, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("made", OPERATIONS, ids=lambda made: made.name)
def test_every_operation_has_every_facet_or_says_why_not(made: Operation):
    assert callable(made.tangent) or isinstance(made.tangent, (LinearTangent, ZeroTangent, Absent))
    assert callable(made.weight_gradient) or isinstance(made.weight_gradient, Absent)
    assert callable(made.recorded) or isinstance(made.recorded, Absent)
    for facet in (made.tangent, made.weight_gradient, made.recorded):
        assert not isinstance(facet, Absent) or len(facet.reason.split()) > 3
    assert (made.node is not None) == callable(made.recorded)
    assert made.node is None or RECORDED[made.node] is made.recorded


def test_a_facet_cannot_be_forgotten():
    class Incomplete:
        tangent = LinearTangent()

    with pytest.raises(TypeError, match="weight_gradient"):
        operation(aten.sin.default)(Incomplete)
    assert "Incomplete" not in {made.name for made in OPERATIONS}


def test_every_call_has_a_case_and_one_owner():
    calls = [call for made in OPERATIONS for call in made.calls]
    assert len(calls) == len(set(calls))
    assert {case.call for case in STOPPING} == STOPS - QUESTIONS
    assert {case.call for case in CASES} == set(calls) - STOPS


@pytest.mark.parametrize("case", CASES, ids=str)
def test_tangents_are_numerical_derivatives(case: Case):
    for moved in case.subsets() if case.numerical else ():
        args = case.arguments()
        directions = {i: torch.randn_like(args[i]) for i in moved}
        if case.call is aten.embedding.default and args[2] >= 0:
            directions[0][args[2]] = 0  # the row of the padding index counts, but is not trained
        ahead, back = (
            case.run([x + h * directions[i] if i in moved else x for i, x in enumerate(args)])
            for h in (STEP, -STEP)
        )
        for i, mine in enumerate(tangents(case, args, directions)):
            if not (ahead[i].is_floating_point() or ahead[i].is_complex()):
                assert mine is None
            elif mine is not None or i == 0:  # the statistics of a norm, beside it, have none
                assert close(mine, (ahead[i] - back[i]) / (2 * STEP), 1e-6), moved


@pytest.mark.parametrize("case", CASES, ids=str)
def test_tangents_are_the_transpose_of_autograds_gradients(case: Case):
    """< g, tangent > = sum over the arguments of < gradient, direction >."""
    for moved in case.subsets():
        args, out = differentiable(case, moved)
        directions = {i: torch.randn_like(args[i]) for i in moved}
        mine = tangents(case, args, directions)[0]
        assert (mine is None) == (not out.requires_grad)
        if mine is not None:
            g = torch.randn_like(out)
            truth = torch.autograd.grad(out, [args[i] for i in moved], g)
            paired = zip(truth, directions.values(), strict=True)
            assert close((g.conj() * mine).sum().real, sum((a * b).sum() for a, b in paired)), moved


@pytest.mark.parametrize("case", STOPPING, ids=str)
def test_where_the_table_stops_autograd_has_no_gradient_either(case: Case):
    (x, *_), out = differentiable(case, (0,))
    if case.note == "refused by autograd":
        with pytest.raises(RuntimeError, match="not implemented"):
            torch.autograd.grad(out.sum(), x)
    elif out.requires_grad:
        assert not torch.autograd.grad(out.sum(), x)[0].any()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_weight_gradients_are_autograds(case: Case):
    for wanted in case.subsets():
        args, out = differentiable(case, wanted)
        if not out.requires_grad:
            continue
        g = torch.randn_like(out)
        truth = torch.autograd.grad(out, [args[i] for i in wanted], g)
        args = case.arguments()
        results = case.run(args)
        result = results if len(results) > 1 else results[0]
        sources = [args[i] for i in wanted]
        mine = gradients_of_call(case.call, args, case.options, result, g, sources)
        assert all(map(close, mine, truth)), wanted


def uses_of(node: Any, parameters: Sequence[Tensor]) -> list[Use | None]:
    """Which parameter, if any, each argument of a node is."""
    places = {id(parameter): i for i, parameter in enumerate(parameters)}
    uses: list[Use | None] = []
    for child, _ in node.next_functions:
        transposed = child is not None and child.name() == "TBackward0"
        leaf = child.next_functions[0][0] if transposed else child
        uses.append(None if leaf is None else Use(places[id(leaf.variable)], transposed))
    return uses


@pytest.mark.parametrize("transposed", [False, True], ids=["as it is", "transposed"])
@pytest.mark.parametrize("case", RECORDED_CASES, ids=str)
def test_recorded_layers_agree_with_the_other_two(case: Case, transposed: bool):
    for wanted in case.subsets(inputs=False):
        args = case.arguments()
        turned = [transposed and args[i].ndim == 2 for i in wanted]
        if any(turned) != transposed:
            continue

        def as_used(values: Sequence[Tensor], turned: Sequence[bool] = turned) -> list[Tensor]:
            return [v.t() if turn else v for v, turn in zip(values, turned, strict=True)]

        parameters = [p.clone().requires_grad_() for p in as_used([args[i] for i in wanted])]
        for i, argument in zip(wanted, as_used(parameters), strict=True):
            args[i] = argument
        out = listed(case.call(*args, **case.options))[0]
        layer = RECORDED[out.grad_fn.name()](
            out.grad_fn, uses_of(out.grad_fn, parameters), parameters
        )
        if layer is None:
            assert transposed or not case.readable
            continue
        assert case.readable
        assert isinstance(layer, Linear) or not transposed

        g, directions = torch.randn_like(out), [torch.randn_like(p) for p in parameters]
        values = [None if use is None else directions[use.place] for use in layer.uses]
        mine = layer.tangent(values, g)
        (by_call, *_) = tangents(case, args, dict(zip(wanted, as_used(directions), strict=True)))
        assert close(by_call, mine), wanted
        truth = torch.autograd.grad(out, parameters, g)
        for use, gradient in zip(layer.uses, layer.gradients(g), strict=True):
            assert use is None or close(gradient, truth[use.place]), wanted
        if layer.divisible and all(x.shape[:1] == out.shape[:1] for x in layer.inputs):
            some = replace(layer, inputs=tuple(x[1:3] for x in layer.inputs))
            assert close(some.tangent(values, g[1:3]), mine[1:3]), wanted
        else:
            # One row per example, or none at all, or several.
            assert case.note in (f"{(N, 6)}", "numbers", "blocks")
