"""docs/data.md tells the truth: its code runs, its tables agree with the code's."""

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from reweigh import data, models
from reweigh.data.sets.decoders import read_sheet
from reweigh.errors import MissingExtraError

PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")


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


def test_its_examples_in_docstrings_run():
    import reweigh.rng

    for module in (data, reweigh.rng):
        outcome = doctest.testmod(module)
        assert outcome.attempted
        assert not outcome.failed


@pytest.mark.parametrize(
    ("missing", "use"),
    [
        ("sklearn.datasets", lambda: data.load("digits")),
        ("PIL.Image", lambda: read_sheet(b"", "data_batch_1.png")),
    ],
)
def test_a_missing_extra_says_how_to_get_it(missing, use, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'reweigh\[app\]'"):
        use()


def test_the_base_install_is_enough_to_import_data_and_models():
    blocked = ["sklearn", "PIL", "pooch", "rich", "typer", "pandas", "accelerate", "matplotlib"]
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({blocked}))\n"
        "import reweigh.data, reweigh.models\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
