"""Could one engine of zero "taps" take the place of ghost's engines? Coverage and speed, side by side.

    PYTHONPATH=tests python benchmarks/taps.py [--rounds 40] [--out results/compiled]

A tap is a zero added to the output of a layer; one `torch.func.grad` with respect to all taps gives the
gradients at all outputs, with no graph to read. It is the shortest way to write ghost down, and was the
prototype of the compiled step. Here it runs eagerly, without proofs or checks, on

    the problems of the tests    is it exact (against per-example gradients), and which engine of ghost is?
    networks of `reweigh bench`  the time of a step, in turns with ghost's own

`taps.md` is written when both are done.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import reweigh
from reweigh.errors import ReweighError
from reweigh.experiments import CASES, keep_large_blocks
from support.problems import PROBLEMS, Problem

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
COVERED = (nn.Linear, nn.Embedding, nn.LayerNorm, *CONVOLUTIONS)
NETWORKS = ("mlp", "lenet")
Values = dict[int, Tensor]  # by the id of the parameter


class Tapped(NamedTuple):
    """One layer's use: its module, its input, the gradient at its output."""

    layer: Any
    x: Tensor
    g: Tensor


def layers_of(model: nn.Module) -> list[Any]:
    """The layers with rules; refused where a parameter belongs to another module."""
    found = [m for m in model.modules() if isinstance(m, COVERED) and list(m.parameters(False))]
    own = {id(p) for layer in found for p in layer.parameters(False)}
    for name, p in model.named_parameters():
        if p.requires_grad and id(p) not in own:
            raise NotImplementedError(f"no rule for the module that owns {name!r}")
    return found


def shapes_of(model: nn.Module, loss: Any, batch: Any) -> list[torch.Size]:
    """Of the outputs of all layers, in the order of their calls."""
    shapes: list[torch.Size] = []
    hooks = [
        layer.register_forward_hook(lambda _, __, y: shapes.append(y.shape))
        for layer in layers_of(model)
    ]
    with torch.no_grad():
        loss(model, batch)
    for hook in hooks:
        hook.remove()
    return shapes


def tapped(
    model: nn.Module, loss: Any, batch: Any, shapes: Sequence[Any], dtype: torch.dtype
) -> tuple[Tensor, list[Tapped]]:
    """The losses, and what was captured of every layer."""
    order: list[Any] = []

    def total(taps: list[Tensor]) -> tuple[Tensor, Any]:
        left, seen = iter(taps), list[Tensor]()

        def hook(layer: nn.Module, inputs: Any, y: Tensor) -> Tensor:
            order.append(layer)
            seen.append(inputs[0])
            return y + next(left)

        hooks = [layer.register_forward_hook(hook) for layer in layers_of(model)]
        try:
            losses = loss(model, batch)
        finally:
            for handle in hooks:
                handle.remove()
        return losses.sum(), (losses, seen)

    taps = [torch.zeros(shape, dtype=dtype) for shape in shapes]
    gradients, (losses, seen) = torch.func.grad(total, has_aux=True)(taps)
    uses = zip(order, seen, gradients, strict=True)
    return losses.detach(), [Tapped(layer, x.detach(), g) for layer, x, g in uses]


def scores(uses: Sequence[Tapped], values: Values) -> Tensor:
    """sum over layers of < g_i, layer along the clean gradient >."""
    found: Any = 0
    for layer, x, g in uses:
        v = {name: values[id(p)] for name, p in layer.named_parameters(recurse=False)}
        if isinstance(layer, nn.Linear):
            tangent = F.linear(x, v["weight"], v.get("bias"))
        elif isinstance(layer, nn.Embedding):
            tangent = F.embedding(x, v["weight"])
        elif isinstance(layer, nn.LayerNorm):
            tangent = normed(layer, x) * v["weight"] + v["bias"]
        else:
            tangent = layer._conv_forward(x, v["weight"], v.get("bias"))
        found = found + (g * tangent).reshape(len(g), -1).sum(1)
    result: Tensor = found
    return result


def normed(layer: nn.LayerNorm, x: Tensor) -> Tensor:
    """Before weight and bias."""
    return F.layer_norm(x, layer.normalized_shape, None, None, layer.eps)


def update(uses: Sequence[Tapped], weights: Tensor) -> Values:
    """sum_i weights_i grad f_i."""
    found: Values = {}
    for layer, x, unweighted in uses:
        g = unweighted * weights.view(-1, *[1] * (unweighted.ndim - 1))
        if isinstance(layer, nn.Linear):
            rows = g.reshape(-1, g.shape[-1])
            parts = {"weight": rows.t() @ x.reshape(-1, x.shape[-1]), "bias": rows.sum(0)}
        elif isinstance(layer, nn.Embedding):
            size = layer.num_embeddings
            parts = {"weight": torch.ops.aten.embedding_dense_backward(g, x, size, -1, False)}
        elif isinstance(layer, nn.LayerNorm):
            product = (g * normed(layer, x)).flatten(0, -2)
            parts = {"weight": product.sum(0), "bias": g.flatten(0, -2).sum(0)}
        else:
            geometry = (layer.stride, layer.padding, layer.dilation, False)
            padding = [0] * len(layer.stride)
            sizes, mask = [len(layer.weight)], [False, True, True]
            _, weight, bias = torch.ops.aten.convolution_backward(
                g, x, layer.weight, sizes, *geometry, padding, layer.groups, mask
            )
            parts = {"weight": weight, "bias": bias}
        for name, p in layer.named_parameters(recurse=False):
            found[id(p)] = found.get(id(p), 0) + parts[name]
    return found


def clean_gradient(model: nn.Module, loss: Any, clean: Any) -> Values:
    """Of the mean clean loss; zero for frozen parameters."""
    theta = [p for p in model.parameters() if p.requires_grad]
    found = torch.autograd.grad(loss(model, clean).mean(), theta, allow_unused=True)
    values = {id(p): torch.zeros_like(p) for p in model.parameters()}
    values |= {id(p): g.to_dense() for p, g in zip(theta, found, strict=True) if g is not None}
    return values


def definition(model: nn.Module, loss: Any, train: Any, values: Values) -> Tensor:
    """< grad f_i, V > by one backward per example."""
    theta = [p for p in model.parameters() if p.requires_grad]
    rows = []
    for one in loss(model, train):
        found = torch.autograd.grad(one, theta, retain_graph=True, allow_unused=True)
        pairs = [(g, p) for g, p in zip(found, theta, strict=True) if g is not None]
        rows.append(sum((g.to_dense() * values[id(p)]).sum() for g, p in pairs))
    return torch.stack([torch.as_tensor(row) for row in rows])


def by_taps(problem: Problem) -> str:
    """Exact, wrong, or why not."""
    dtype = problem.only or torch.float64
    model, loss, train, clean = problem.make(dtype)
    with problem.context():
        try:
            shapes = shapes_of(model, loss, train)
            model, loss, train, clean = problem.make(dtype)
            values = clean_gradient(model, loss, clean)
            torch.manual_seed(0)
            losses, uses = tapped(model, loss, train, shapes, dtype)
            if any(len(use.g) != len(losses) for use in uses):
                return "refused: examples are not the first dimension of an output"
            mine = scores(uses, values)
            torch.manual_seed(0)
            right = definition(model, loss, train, values)
        except Exception as error:
            return f"refused: {str(error).splitlines()[0][:100]}"
    off = float((mine - right).abs().max() / right.abs().max())
    return "exact" if off < (1e-9 if dtype == torch.float64 else 2e-2) else f"wrong by {off:.0%}"


def by_ghost(problem: Problem) -> str:
    """The engine that runs, or that ghost refuses."""
    model, loss, train, clean = problem.make(problem.only or torch.float64)
    weigh = reweigh.Reweighter(model, loss, backend="ghost", safeguard=None)
    with problem.context():
        try:
            weigh(train, clean)
        except ReweighError:
            return "refused"
    return weigh.backend.reason.rpartition("; by ")[2]


def timed(name: str, rounds: int) -> list[str]:
    """Rows of the table of times: the fastest of each, in turns."""
    torch.manual_seed(0)
    case = CASES[name]
    model, train, clean = case.model(), case.batch(100), case.batch(10)
    shapes = shapes_of(model, case.loss, train)
    ghost = reweigh.Reweighter(model, case.loss, backend="ghost", safeguard=None)

    def taps() -> None:
        values = clean_gradient(model, case.loss, clean)
        _, uses = tapped(model, case.loss, train, shapes, torch.float32)
        found = update(uses, reweigh.weights_from_scores(scores(uses, values)))
        for p in model.parameters():
            p.grad = found[id(p)]

    def weighed() -> None:
        ghost(train, clean).loss.backward()

    steps: dict[str, Callable[[], Any]] = {
        "plain": lambda: case.loss(model, train).mean().backward(),
        "ghost, all checks": weighed,
        "taps, no checks": taps,
    }
    times: dict[str, list[float]] = {method: [] for method in steps}
    for _ in range(rounds):
        for method, step in steps.items():
            for _ in range(3):
                began = time.thread_time()
                step()
                times[method].append(time.thread_time() - began)
    best = {method: 1e3 * min(values) for method, values in times.items()}
    median = {method: 1e3 * statistics.median(values) for method, values in times.items()}
    return [f"| {name} | {k} | {best[k]:.2f} | {median[k]:.2f} |" for k in steps]


def main() -> None:
    """Run all of it, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--out", type=Path, default=Path("results/compiled"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    keep_large_blocks()
    warnings.simplefilter("ignore")
    rows = [(problem.name, by_ghost(problem), by_taps(problem)) for problem in PROBLEMS]
    times = [line for name in NETWORKS for line in timed(name, args.rounds)]
    runs = sum(ghost != "refused" for _, ghost, _ in rows)
    exact = sum(taps == "exact" for _, _, taps in rows)
    wrong = sum(taps.startswith("wrong") for _, _, taps in rows)
    page = [
        f"# Ghost's engines serve {runs} of {len(rows)} problems, taps {exact}; {wrong} they get wrong",
        "",
        f"Made by `benchmarks/taps.py`, torch {torch.__version__}. Eager steps, n=100, m=10, one thread, milliseconds",
        "of processor time: the fastest and the median.",
        "",
        "| network | step | fastest | median |",
        "|---|---|---:|---:|",
        *times,
        "",
        "| problem | ghost, by | taps |",
        "|---|---|---|",
        *(f"| {name} | {ghost} | {taps.replace('|', ' ')} |" for name, ghost, taps in rows),
        "",
    ]
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "taps.md").write_text("\n".join(page))
    print("\n".join(page))


if __name__ == "__main__":
    main()
