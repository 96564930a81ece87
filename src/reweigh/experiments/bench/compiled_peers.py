"""The same step of other libraries, compiled: where that runs and gives the numbers of its eager form.

    one graph   the step up to its weighted loss, by torch.compile; for what torch.func can express: by hand, and
                with TorchOpt's functional optimizers
    losses      `loss(model, batch)` by torch.compile, and the library around it as ever

The first of these that runs is taken. PyTorch compiles no second derivative through a compiled
function, so a library that asks for one and brings its own modules or optimizers has neither.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ...core import weights_from_scores
from ...text import first_line
from .peers import RATE, Weigh, peers

SAME_TO = 1e-2  # of the norm, in float32: rounding alone moves the gradient of a ResNet-32 by .005
Values = dict[str, Tensor]
Move = Callable[[Values, Values], Values]  # parameters and their gradient, to the next parameters
Weighted = Callable[[Any, Any], tuple[Tensor, Tensor]]  # both batches, to weighted loss and weights


class DifferentNumbersError(Exception):
    """A compiled step whose numbers are not those of its eager form."""


@dataclass(frozen=True)
class CompiledPeer:
    """A library's step, which has run once. step: to take another, and its weights. way: see above."""

    step: Callable[[], Tensor]
    way: str


def _by_hand(theta: Values, gradient: Values) -> Values:
    return {name: p - RATE * gradient[name] for name, p in theta.items()}


def _with_torchopt() -> Move:
    torchopt = import_module("torchopt")
    optimizer = torchopt.sgd(lr=RATE)

    def move(theta: Values, gradient: Values) -> Values:
        state = optimizer.init(theta)
        updates, _ = optimizer.update(gradient, state, params=theta, inplace=False)
        moved: Values = torchopt.apply_updates(theta, updates, inplace=False)
        return moved

    return move


MOVES: dict[str, Callable[[], Move]] = {"by hand": lambda: _by_hand, "torchopt": _with_torchopt}


def weighted_loss(model: nn.Module, loss: Any, move: Move) -> Weighted:
    """Algorithm 1 by torch.func: from both batches to the weighted loss, and the weights."""

    def losses(theta: Values, batch: Any) -> Tensor:
        own = {
            name: b.clone() for name, b in model.named_buffers()
        }  # the look-ahead writes to them
        call = torch.func.functional_call
        found: Tensor = loss(lambda x: call(model, {**theta, **own}, (x,)), batch)
        return found

    def weighted(train: Any, clean: Any) -> tuple[Tensor, Tensor]:
        theta: Values = dict(model.named_parameters())

        def ahead(eps: Tensor) -> Tensor:
            gradient = torch.func.grad(lambda th: (eps * losses(th, train)).sum())(theta)
            return losses(move(theta, gradient), clean).mean()

        eps = torch.zeros(len(train[0]), device=train[0].device)
        slope = torch.func.grad(ahead)(eps)
        weights = weights_from_scores(-slope.detach() / RATE)
        return (weights * loss(model, train)).sum(), weights

    return sdpa_kernel(SDPBackend.MATH)(weighted)


def compiled_peer(
    name: str, model: nn.Module, loss: Any, train: Any, clean: Any, options: dict[str, Any]
) -> CompiledPeer | str:
    """The step of a library, compiled and compared with its eager form; or why it is not."""
    refused: list[str] = []
    ways = {"one graph": _one_graph, "losses": _losses}
    for way, make in ways.items():
        try:
            eager, compiled = make(name, model, loss, train, clean, options)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the compiler, about gradients of no leaf
                _require_same(model, eager, compiled)
            return CompiledPeer(compiled, way)
        except Exception as error:
            refused.append(f"{way}: {first_line(error)}")
    return "; ".join(refused)


Pair = tuple[Callable[[], Tensor], Callable[[], Tensor]]  # eager, and compiled


def _one_graph(
    name: str, model: nn.Module, loss: Any, train: Any, clean: Any, options: dict[str, Any]
) -> Pair:
    if name not in MOVES:
        weigh = peers()[name]
        whole = torch.compile(
            lambda a, b: weigh(model, loss, a, b), fullgraph=True, dynamic=False, **options
        )
        return lambda: weigh(model, loss, train, clean), lambda: whole(train, clean)
    eager = weighted_loss(model, loss, MOVES[name]())
    graph = torch.compile(eager, fullgraph=True, dynamic=False, **options)

    def taken(weighted: Weighted) -> Tensor:
        total, weights = weighted(train, clean)
        total.backward()
        return weights

    return lambda: taken(eager), lambda: taken(graph)


def _losses(
    name: str, model: nn.Module, loss: Any, train: Any, clean: Any, options: dict[str, Any]
) -> Pair:
    compiled = torch.compile(loss, dynamic=False, **options)
    eager: Weigh = peers()[name]
    own: Weigh = peers()[name]  # Betty's engine is built for one loss
    return lambda: eager(model, loss, train, clean), lambda: own(model, compiled, train, clean)


def _require_same(
    model: nn.Module, eager: Callable[[], Tensor], compiled: Callable[[], Tensor]
) -> None:
    """Raise unless both give the same weights and leave the same gradient. Compiles, on the way."""
    from torch._inductor import config

    right = _numbers(model, eager)
    with config.patch(fallback_random=True):  # the dropout masks of uncompiled code
        mine = _numbers(model, compiled)
    for what, a, b in zip(("weights", "gradient"), mine, right, strict=True):
        error = float((a - b).norm() / b.norm()) if b.numel() else 0.0
        if not error <= SAME_TO:
            raise DifferentNumbersError(f"its {what} differ from the eager ones by {error:.2g}")


def _numbers(model: nn.Module, step: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
    """The weights of a step, and the gradient it leaves, flat; empty if it leaves none."""
    model.zero_grad()
    torch.manual_seed(1)
    weights = step().detach()
    left = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    return weights, torch.cat(left) if left else weights.new_empty(0)
