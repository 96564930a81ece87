"""The tables of docs/scale.md are what its scripts say."""

import json
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")


def test_the_model_on_paper_is_computed():
    assert runpy.run_path(str(ROOT / "benchmarks" / "on_paper.py"))["table"]() in PAGE


def test_the_measurements_are_those_on_file():
    script = runpy.run_path(str(ROOT / "benchmarks" / "distributed.py"))
    assert script["summary"](json.loads(script["OUT"].read_text())) in PAGE
