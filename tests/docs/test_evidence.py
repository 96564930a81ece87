"""docs/evidence.md against the lines under results/, read here by hand."""

import json
import re
from pathlib import Path
from statistics import mean

import pytest

from reweigh.experiments import EXPERIMENTS, cells

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
ROWS = {"uniform": "Baseline", "reweigh_literal": "Ours", "uniform+ft": "Baseline +FT"}


def block(name):
    return PAGE.partition(f"<!-- {name} -->")[2].partition(f"<!-- /{name} -->")[0]


def lines(name):
    path = ROOT / "results" / name / "results.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("name", ["cifar10-background", "cifar10-uniform"])
def test_its_accuracies_are_means_over_the_seeds(name):
    text = block(name)
    for scale, folder in (("small", name), ("medium", f"{name}-medium")):
        table = text.partition(f"At `{scale}`.")[2].partition("\n\n")[0]
        for method, title in ROWS.items():
            own = [
                100 * x["metrics"]["test_accuracy"] for x in lines(folder) if x["method"] == method
            ]
            shown = re.findall(rf"^\| {re.escape(title)} \| \**([\d.]+)", table, flags=re.MULTILINE)
            assert shown == ([f"{mean(own):.1f}"] if own else [])


def test_it_says_how_many_cells_have_been_run():
    counts = re.findall(r"^\| `([\w-]+)` \|[^|]*\| (\d+) of (\d+) \| (\d+) of (\d+) \|", PAGE, re.M)
    assert len(counts) > 10
    for name, *numbers in counts:
        small, planned_small, medium, planned_medium = map(int, numbers)
        for scale, done, planned, folder in (
            ("small", small, planned_small, name),
            ("medium", medium, planned_medium, f"{name}-medium"),
        ):
            # Somebody may have added methods to a folder; they are no part of the plan.
            plan = {
                (cell.method, str(sorted(dict(cell.setting).items())), cell.seed)
                for cell in cells(EXPERIMENTS[name], scale)
            }
            found = {
                (x["method"], str(sorted(x["setting"].items())), x["seed"]) for x in lines(folder)
            }
            assert (done, planned) == (len(plan & found), len(plan)), folder


def test_every_experiment_has_its_place():
    from reweigh.experiments import EXPERIMENTS

    for name in EXPERIMENTS:
        assert f"<!-- {name} -->" in PAGE
        assert f"| `{name}` |" in block("ran")
