"""docs/scale.md tells the truth: its code runs, in one session, and its commands exist."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest

pytest.importorskip("accelerate")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
BIG_DATA = PAGE.partition("## Big data")[2].partition("\n## ")[0]


def test_the_code_of_big_data_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", BIG_DATA, flags=re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "docs/scale.md", "exec"), names)
    assert float(capsys.readouterr().out.split()[0]) > 0.7


def test_its_commands_have_the_options_they_use():
    typer = pytest.importorskip("typer")
    from reweigh.cli.reproduce import app

    known = {name for one in typer.main.get_command(app).params for name in one.opts}
    used = set(re.findall(r"reweigh reproduce [^\n]*", PAGE))
    assert len(used) == 2
    for command in used:
        assert set(re.findall(r"--[a-z-]+", command.partition("#")[0])) <= known


def test_its_figures_are_those_measured_and_memory_is_constant():
    measured = json.loads((ROOT / "results" / "streaming" / "runs.json").read_text())
    assert max(case["rows"] for case in measured["cases"]) == 10_000_000
    for case in measured["cases"]:
        memory = case["resident_mb_by_tenth"]
        workers = f", {case['workers']} worker" if case["workers"] else ""
        row = (
            f"| {case['format']}, {case['what']}{workers} | {case['rows']:,} | "
            f"{case['rows_per_second']:,} | {case['cpu_seconds']:,} | "
            f"{memory[0]:,} | {memory[-1]:,} | {case['peak_mb']:,} |"
        )
        assert row in PAGE, row
        assert max(memory) < 1.02 * memory[0]


def test_the_gpu_on_paper_is_counted():
    page = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
    assert runpy.run_path(str(ROOT / "benchmarks" / "gpu_on_paper.py"))["table"]() in page


def test_the_model_on_paper_is_computed():
    assert runpy.run_path(str(ROOT / "benchmarks" / "on_paper.py"))["table"]() in PAGE


def test_the_measurements_are_those_on_file():
    script = runpy.run_path(str(ROOT / "benchmarks" / "distributed.py"))
    assert script["summary"](json.loads(script["OUT"].read_text())) in PAGE
