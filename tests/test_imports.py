"""Who may import whom, and what an import may cost."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "reweigh"
# A package may import itself, `errors`, and what stands here.
MAY_IMPORT = {
    "errors": set(),
    "files": set(),
    "spreadsheets": set(),
    "numerals": set(),
    "core": set(),
    "data": set(),
    "models": set(),
    "audit": set(),
    "methods": {"core"},
    # Beyond the methods and the data, a run keeps a ledger and writes files.
    "training": {"methods", "core", "data", "audit", "files"},
    "experiments": {"files", "training", "methods", "models", "data", "audit", "core"},
    # A user's own data: from files to a trained, audited run.
    "own": {"files", "numerals", "spreadsheets", "training", "methods", "models", "data", "audit"},
    "report": {"files", "numerals"},
    "review": {"files", "spreadsheets", "audit", "report"},
    "clean_set": {"core"},
    "integrations": {"core", "methods", "audit", "clean_set"},
}
UNRESTRICTED = {"cli", "__init__", "__main__"}
BASE = {"torch", "numpy", "reweigh"}  # what `pip install reweigh` brings
FILES = sorted(SOURCE.rglob("*.py"))


def package(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[tuple[str, bool]]:
    """Every absolute module name imported, and whether at the top level of the file."""
    tree = ast.parse(path.read_text())
    here = ("reweigh", *path.relative_to(SOURCE).parts[:-1])
    found: set[tuple[str, bool]] = set()
    for node in ast.walk(tree):
        top = node in tree.body
        if isinstance(node, ast.Import):
            found |= {(alias.name, top) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = list(here[: len(here) - node.level + 1]) if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {(f"{module}.{alias.name}" if module == "reweigh" else module, top)
                      for alias in node.names}  # fmt: skip
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_layers(path):
    own = package(path)
    if own in UNRESTRICTED:
        return
    allowed = MAY_IMPORT[own] | {own, "errors"}
    for name, _ in imports(path):
        if name.startswith("reweigh.") and name != "reweigh.__version__":
            assert name.split(".")[1] in allowed, f"{own} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_core_and_methods_need_only_the_base_dependencies(path):
    if package(path) not in {"core", "methods", "clean_set", "errors"}:
        return
    for name, _ in imports(path):
        root = name.split(".")[0]
        assert root in BASE or root in sys.stdlib_module_names, f"{path.name} imports {name}"


def test_importing_reweigh_brings_no_extra():
    code = (
        "import sys, reweigh;"
        "extra = {'sklearn', 'typer', 'matplotlib', 'pandas', 'rich', 'PIL', 'accelerate', 'skorch', 'lightning', 'transformers'};"
        "print(sorted(extra & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
