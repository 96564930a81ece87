"""docs/data.md tells the truth: its code runs, its tables agree with the code's."""

import re
from pathlib import Path

import torch

from reweigh import data, models

PAGE = (Path(__file__).parents[1] / "docs" / "data.md").read_text(encoding="utf-8")


def test_its_code_runs():
    for block in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL):
        exec(compile(block, "docs/data.md", "exec"), {})


def test_every_name_is_documented():
    names = {
        *(set(data.SOURCES) | set(data.PRESETS) | set(data.CORRUPTIONS) | set(models.MODELS)),
        *(origin.name for s in data.SOURCES.values() for origin in s.origins[1:]),
    }
    assert not [name for name in sorted(names) if f"`{name}`" not in PAGE]


def test_its_parameter_counts_are_right():
    for name in models.MODELS:
        with torch.device("meta"):
            count = sum(p.numel() for p in models.build(name).parameters())
        assert f"{count:,}" in PAGE, name
