"""Who may import whom, and what an import may cost."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "reweigh"
# What each package or top-level module imports of ours, besides `errors`: no more and no less.
# From the lowest to the highest; nobody imports what stands below it in this table.
IMPORTS = {
    "errors": set(),
    "_warn": set(),
    "files": set(),
    "rng": set(),
    "optional": set(),
    "templates": {"optional"},
    "intervals": set(),
    "results": set(),
    "text": set(),
    "tables": {"optional", "rng", "text"},
    "runs": {"files", "optional", "text"},
    "exchange": {"files", "runs", "tables", "text"},
    "core": {"_warn"},
    "methods": {"core", "rng"},
    "clean_set": {"core"},
    "models": set(),
    "audit": set(),
    "candidates": {"optional", "rng"},
    "sentinels": {"candidates", "rng", "runs"},
    "encoders": {"optional", "tables"},
    "data": {"encoders", "files", "optional", "rng", "tables", "text"},
    "training": {"audit", "core", "data", "files", "methods", "optional", "rng", "runs", "text"},
    "app": {
        "audit",
        "candidates",
        "data",
        "encoders",
        "exchange",
        "files",
        "models",
        "rng",
        "runs",
        "sentinels",
        "tables",
        "text",
        "training",
        "optional",
        "templates",
    },
    "experiments": {
        "audit",
        "core",
        "data",
        "files",
        "intervals",
        "methods",
        "models",
        "optional",
        "results",
        "rng",
        "text",
        "training",
    },
    "report": {"files", "intervals", "optional", "results", "runs", "tables", "templates", "text"},
    "review": {"exchange", "files", "optional", "runs", "tables", "templates", "text"},
    "integrations": {"audit", "candidates", "clean_set", "core", "optional", "sentinels"},
    "own": {"app"},
    "cli": {"app", "data", "experiments", "files", "report", "review", "runs", "text"},
}
UNRESTRICTED = {"__init__", "__main__"}
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


@pytest.mark.parametrize("name", IMPORTS)
def test_each_package_imports_what_the_table_says(name):
    found = {
        target.split(".")[1]
        for path in FILES
        if package(path) == name
        for target, _ in imports(path)
        if target.startswith("reweigh.") and target != "reweigh.__version__"
    }
    assert found - {name, "errors"} == IMPORTS[name]


def test_the_table_has_every_package_and_goes_upwards():
    assert {package(path) for path in FILES} - UNRESTRICTED == set(IMPORTS)
    order = list(IMPORTS)
    for name, below in IMPORTS.items():
        assert all(order.index(other) < order.index(name) for other in below), name


# The rooms of core, from the lowest to the highest.
CORE = (
    "torch_internals", "model", "rule", "rounding", "proof", "ops", "processes", "clean", "backends", "update",
    "health", "session", "safeguard", "step", "compiled", "scores", "validate", "reweighter",
)  # fmt: skip


@pytest.mark.parametrize("path", [p for p in FILES if package(p) == "core"], ids=lambda p: p.stem)
def test_the_rooms_of_core_look_downwards(path):
    room = (*path.relative_to(SOURCE / "core").parts, "")[0].removesuffix(".py")
    if room != "__init__":
        targets = {
            name.split(".")[2] for name, _ in imports(path) if name.startswith("reweigh.core.")
        }
        assert all(CORE.index(other) <= CORE.index(room) for other in targets), targets


def behind_doors(path: Path) -> set[str]:
    """What a file imports from inside another package, or another room of core."""
    here = ["reweigh", *path.relative_to(SOURCE).parts[:-1]]
    found = set()
    for name, _ in imports(path):
        parts = name.split(".")
        if parts[0] == "reweigh" and not SOURCE.joinpath(*parts[1:]).is_dir():
            pairs = enumerate(zip(parts, here, strict=False))
            shared = next((k for k, (a, b) in pairs if a != b), len(here))
            neighbour = (
                shared > 1 and parts[1] != "core"
            )  # in the same package, if not the same room
            if len(parts) > min(shared, len(parts)) + 1 and not neighbour:
                found.add(name)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_packages_are_entered_through_their_doors(path):
    assert not behind_doors(path)


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
