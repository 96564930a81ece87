"""Which problems of the test suite compile, and how far the compiled step is from the eager one.

    PYTHONPATH=tests python benchmarks/compiled_problems.py [--backend aot_eager] [--out results/compiled]

Three steps of training on each problem, in float64 where the problem allows it: weights, gradients and
buffers of `compile=` against those of the eager step. One line per problem in `problems.jsonl`; those
already there are not run again. `table.md` is made from it.
"""

import argparse
import copy
import json
import warnings
from pathlib import Path
from typing import Any

import torch

import reweigh
from support.problems import PROBLEMS, Problem

STEPS = 3
RATE = 0.01


def apart(mine: Any, right: Any) -> float:
    """The largest difference between two tensors."""
    return float((mine.detach().to_dense() - right.detach().to_dense()).double().abs().max())


def compared(problem: Problem, backend: str) -> dict[str, Any]:
    """One row of the table."""
    dtype = problem.only or torch.float64
    model, loss, train, clean = problem.make(dtype)
    twin = copy.deepcopy(model)
    fast = reweigh.Reweighter(model, loss, compile={"backend": backend})
    slow = reweigh.Reweighter(twin, loss)
    error = 0.0
    for seed in range(STEPS):
        weights = []
        for weigh in (fast, slow):
            torch.manual_seed(seed)
            with problem.context():
                step = weigh(train, clean)
            step.loss.backward()
            weights.append(step.weights)
        error = max(error, apart(*weights))
        for p, q in zip(model.parameters(), twin.parameters(), strict=True):
            if (p.grad is None) != (q.grad is None):
                raise AssertionError(f"{problem}: a gradient on one side only")
            if p.grad is not None and q.grad is not None:
                error = max(error, apart(p.grad, q.grad))
                p.data.sub_(RATE * p.grad.to_dense())
                q.data.sub_(RATE * q.grad.to_dense())
                p.grad = q.grad = None
        pairs = zip(model.buffers(), twin.buffers(), strict=True)
        error = max([error, *(apart(a, b) for a, b in pairs)])
    assert fast.compiled is not None
    return {
        "problem": problem.name,
        "dtype": str(dtype).removeprefix("torch."),
        "eager": str(slow.backend),
        "compiled": None if fast.compiled.refused else str(fast.backend),
        "graphs": "two" if "two graphs" in fast.backend.reason else "one",
        "error": error,
        "reason": fast.compiled.refused,
        "torch": torch.__version__.split("+")[0],
        "backend": backend,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """As a page."""
    done = [row for row in rows if row["compiled"]]
    lines = [
        f"# {len(done)} of {len(rows)} problems of the tests compile",
        "",
        "Largest difference between the compiled and the eager step (weights, gradients, buffers) over three steps of",
        f"training. Made by `benchmarks/compiled_problems.py` with backend {rows[0]['backend']!r} of torch.compile, "
        f"torch {rows[0]['torch']}.",
        "",
        "| problem | precision | eager | compiled | graphs | difference |",
        "|---|---|---|---|---|---:|",
        *(
            f"| {r['problem']} | {r['dtype']} | {r['eager']} | {r['compiled']} | {r['graphs']} | {r['error']:.1e} |"
            for r in done
        ),
        "",
        "Not compiled; the eager step runs, and gives this reason:",
        "",
        "| problem | eager | reason |",
        "|---|---|---|",
        *(
            f"| {r['problem']} | {r['eager']} | {r['reason'].replace('|', ' ')[:300]} |"
            for r in rows
            if not r["compiled"]
        ),
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Run what is missing, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--out", type=Path, default=Path("results/compiled"))
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    args.out.mkdir(parents=True, exist_ok=True)
    kept = args.out / "problems.jsonl"
    rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    known = {row["problem"] for row in rows}
    for problem in PROBLEMS:
        if problem.name not in known:
            rows.append(compared(problem, args.backend))
            with kept.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
            print(rows[-1], flush=True)
    places = [problem.name for problem in PROBLEMS]
    rows.sort(key=lambda row: places.index(row["problem"]))
    (args.out / "table.md").write_text(table(rows))


if __name__ == "__main__":
    main()
