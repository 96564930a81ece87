"""docs/training.md tells the truth: its code runs, and it names every setting and column."""

import re
from dataclasses import fields
from pathlib import Path

from reweigh.audit import COLUMNS
from reweigh.training import PAPER, Config

PAGE = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")


def test_its_code_runs():
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    exec(compile(block, "docs/training.md", "exec"), {})


def test_it_names_every_setting_column_and_schedule():
    names = [*(f.name for f in fields(Config)), *COLUMNS]
    assert not [name for name in names if f"`{name}`" not in PAGE]
    assert not [name for name in PAPER if f'PAPER["{name}"]' not in PAGE]
