"""Is "auto" the cheapest? python benchmarks/backend_order.py [--seconds S] [--factor F]

Every problem of the test suite, and some networks at a usual batch size, by every exact back-end that can
run them and by "auto". The back-ends take turns in one process with one thread. Costs are processor time
(the tenth percentile) in plain steps. Where "auto" costs more than F times the cheapest, the table says so.

The problems of the suite are tiny: their costs are those of calls, not of arithmetic.
Writes results/performance/backend_order.json and backend_order.md.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reweigh import Reweighter, per_example
from reweigh.core import BACKENDS
from reweigh.errors import UnsupportedModelError
from reweigh.experiments import machine
from reweigh.files import write_whole

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from support.problems import PROBLEMS, Residual  # noqa: E402

RESULTS = ROOT / "results/performance"
EXACT = [name for name, kind in BACKENDS.items() if kind.exact]
N, M, CLASSES = 64, 16, 10
cross_entropy = per_example(F.cross_entropy)
Made = tuple[nn.Module, Any, Any, Any]  # model, loss, train, clean


class Sequences(nn.Module):
    """A recurrent layer, its last output normalised and classified."""

    def __init__(self, kind: type[nn.RNNBase], width: int, norm: bool) -> None:
        super().__init__()
        self.body = kind(16, width, batch_first=True)
        self.norm = nn.BatchNorm1d(width) if norm else nn.Identity()
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.norm(self.body(x)[0][:, -1]))
        return y


class Products(nn.Module):
    """nn.Bilinear of an activation with itself."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.pair = nn.Linear(64, 32), nn.Bilinear(32, 32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.body(x).tanh()
        y: Tensor = self.pair(h, h.flip(1))
        return y


def spectrum() -> nn.Module:
    """Weights divided by their largest singular value."""
    normed = nn.utils.parametrizations.spectral_norm
    return nn.Sequential(normed(nn.Linear(64, 256)), nn.ReLU(), normed(nn.Linear(256, CLASSES)))


def weight_normed(width: int) -> nn.Module:
    normed = nn.utils.parametrizations.weight_norm
    layers = [normed(nn.Linear(64, width)), nn.ReLU(), normed(nn.Linear(width, width)), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, CLASSES))


def flattened(activation: nn.Module) -> nn.Module:
    body = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.Flatten(), activation]
    return nn.Sequential(*body, nn.Linear(16 * 256, CLASSES))


def slopes() -> nn.Module:
    layers = [nn.Linear(64, 128), nn.PReLU(), nn.Linear(128, 128), nn.PReLU()]
    return nn.Sequential(*layers, nn.Linear(128, CLASSES))


USUAL: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    **{
        f"{kind.__name__.lower()} {width}{' + BatchNorm' if norm else ''}": (
            lambda kind=kind, width=width, norm=norm: Sequences(kind, width, norm),  # type: ignore[misc]
            (20, 16),
        )
        for kind in (nn.RNN, nn.GRU, nn.LSTM)
        for width in (32, 128)
        for norm in (True, False)
    },
    "PReLU": (slopes, (64,)),
    "Bilinear": (Products, (64,)),
    "weight norm 64": (lambda: weight_normed(64), (64,)),
    "weight norm 512": (lambda: weight_normed(512), (64,)),
    "spectral norm": (spectrum, (64,)),
    "BatchNorm, Flatten, ReLU": (lambda: flattened(nn.ReLU()), (3, 16, 16)),
    "BatchNorm, Flatten, ReLU in place": (lambda: flattened(nn.ReLU(True)), (3, 16, 16)),
    "BatchNorm, Flatten, Dropout in place": (lambda: flattened(nn.Dropout(0.3, True)), (3, 16, 16)),
    "residual, BatchNorm": (Residual, (3, 16, 16)),
    "GroupNorm": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 16, 3),
            nn.GroupNorm(4, 16),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * 196, 10),
        ),
        (3, 16, 16),
    ),
}


def usual(model: Callable[[], nn.Module], shape: tuple[int, ...]) -> Made:
    torch.manual_seed(0)
    train, clean = ((torch.randn(n, *shape), torch.randint(4, (n,))) for n in (N, M))
    return model(), cross_entropy, train, clean


def cases() -> dict[str, tuple[Made, Any]]:
    """What is measured, each with a context to run it in."""
    made: dict[str, tuple[Made, Any]] = {
        name: (usual(*recipe), contextlib.nullcontext) for name, recipe in USUAL.items()
    }
    for problem in PROBLEMS:
        made[f"suite: {problem}"] = problem.make(problem.only or torch.float32), problem.context
    return made


def steps(made: Made, context: Any) -> tuple[dict[str, Callable[[], None]], str, str]:
    """A step of each way that can run, and what "auto" chose, with the reason."""
    model, loss, train, clean = made
    plain = copy.deepcopy(model)

    def plainly() -> None:
        plain.zero_grad()
        with context():
            losses = loss(plain, train)
        losses.mean().backward()

    ways: dict[str, Callable[[], None]] = {"plain": plainly}
    chosen, reason = "", ""
    for name in (*EXACT, "auto"):
        own = copy.deepcopy(model)
        weigh = Reweighter(own, loss, backend=name)

        def step(own: nn.Module = own, weigh: Reweighter = weigh) -> None:
            own.zero_grad()
            with context():
                weighed = weigh(train, clean).loss
            weighed.backward()

        try:
            for _ in range(5):  # the first ones prove themselves
                step()
        except UnsupportedModelError:
            continue
        ways[name] = step
        if name == "auto":
            chosen, reason = str(weigh.backend), weigh.backend.reason
    return ways, chosen, reason


def measure(name: str, made: Made, context: Any, seconds: float) -> dict[str, Any]:
    """The cost of each way, in plain steps."""
    ways, chosen, reason = steps(made, context)
    times: dict[str, list[float]] = {way: [] for way in ways}
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds or len(times["plain"]) < 10:
        for way, step in ways.items():
            start = time.process_time()
            step()
            times[way].append(time.process_time() - start)
    low = {way: statistics.quantiles(seen, n=10)[0] for way, seen in times.items()}
    costs = {way: round(low[way] / low["plain"], 2) for way in ways if way != "plain"}
    exact = {way: cost for way, cost in costs.items() if way in EXACT}
    # "auto" runs the same code as its choice: the two columns also show how rough the numbers are.
    excess = round(exact.get(chosen, costs["auto"]) / min(exact.values()), 2) if exact else 1.0
    return {
        "case": name,
        "milliseconds": round(low["plain"] * 1e3, 3),
        "costs": costs,
        "auto": chosen,
        "excess": excess,
        "reason": reason,
    }


def table(document: dict[str, Any]) -> str:
    """The rows as a table; what costs too much stands first."""
    factor = document["factor"]
    lines = [
        f"| case | plain, ms | {' | '.join(EXACT)} | auto runs | auto / cheapest |",
        f"|---|---|{'---|' * len(EXACT)}---|---|",
    ]
    rows = sorted(document["rows"], key=lambda row: -row["excess"])
    for row in rows:
        cells = " | ".join(f"{row['costs'][b]:.2f}" if b in row["costs"] else "" for b in EXACT)
        mark = f"**{row['excess']:.2f}**" if row["excess"] > factor else f"{row['excess']:.2f}"
        lines.append(
            f"| {row['case']} | {row['milliseconds']:.2f} | {cells} | {row['auto']} | {mark} |"
        )
    more = [row["case"] for row in rows if row["excess"] > factor]
    head = (
        f"Processor time of a step in plain steps; one thread; usual networks with n = {N} and m = {M}. "
        f"`auto` costs more than {factor} times the cheapest exact back-end in {len(more)} of "
        f"{len(rows)} cases.\n\n"
    )
    return head + "\n".join(lines) + "\n"


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    options.add_argument("--seconds", type=float, default=1.0, help="per case")
    options.add_argument("--factor", type=float, default=1.25)
    options.add_argument("--only", default="", help="cases whose name contains this")
    options.add_argument("--out", type=Path, default=RESULTS)
    asked = options.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    document: dict[str, Any] = {"machine": machine(), "factor": asked.factor, "rows": []}
    for name, (made, context) in cases().items():
        if asked.only in name:
            row = measure(name, made, context, asked.seconds)
            document["rows"].append(row)
            print(f"{name}: {row['auto']} {row['excess']:.2f} {row['costs']}", flush=True)
    asked.out.mkdir(parents=True, exist_ok=True)
    write_whole(asked.out / "backend_order.json", json.dumps(document, indent=1) + "\n")
    write_whole(asked.out / "backend_order.md", table(document))
    print(table(document))


if __name__ == "__main__":
    main()
