"""What the recipes print is what happens: every block runs, in order, in one session."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
PAGES = ["recipes.md", "clean-set.md", "integrations/sklearn.md"]


def blocks(page: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text()
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_run(page):
    if "integrations" in page:
        pytest.importorskip("skorch", reason="needs skorch: pip install 'reweigh[skorch]'")
    found = blocks(page)
    assert found
    names: dict[str, object] = {"__name__": "recipes"}
    for number, code in enumerate(found):
        exec(compile(code, f"{page}, block {number}", "exec"), names)


def test_the_recipes_train():
    """The blocks are not empty motions: the loop of the first recipe moves the model."""
    names: dict[str, object] = {}
    for code in blocks("recipes.md")[:2]:
        exec(compile(code, "recipes.md", "exec"), names)
    torch.manual_seed(0)
    fresh, model = names["network"](), names["model"]
    assert not torch.equal(fresh[0].weight, model[0].weight)
    assert names["weigh"].backend == "ghost"
