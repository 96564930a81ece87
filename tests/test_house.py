"""Rules that the whole source tree keeps, so that a reader can rely on them."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "reweigh"
FILES = sorted(SOURCE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}

MOST_LINES = 60  # of a function
COMMAND_SIGNATURES = {
    "cli/audit.py": {"audit"},
    "cli/review.py": {"review"},
}  # every option is a parameter with its help
ROOMS = {"core", "data"}  # packages whose sub-packages are entered through their doors, too


def name(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def test_a_function_fits_a_screen():
    long = {
        f"{name(path)}:{node.name}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > MOST_LINES
        and node.name not in COMMAND_SIGNATURES.get(name(path), set())
    }
    assert not long


def test_no_two_public_classes_share_a_name():
    homes = defaultdict(list)
    for path, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(name(path))
    assert {one: files for one, files in homes.items() if len(files) > 1} == {}


def test_core_has_no_untyped_cache():
    text = {name(path): path.read_text(encoding="utf-8") for path in SOURCE.glob("core/**/*.py")}
    assert [file for file, content in text.items() if "dict[Any, Any]" in content] == []


def test_imports_of_ours_are_relative():
    absolute = {
        f"{name(path)}:{node.lineno}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if (isinstance(node, ast.Import) and any(a.name.split(".")[0] == "reweigh" for a in node.names))
        or (isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "reweigh")
    }  # fmt: skip
    assert not absolute


def test_a_package_is_entered_through_its_door():
    """Nobody outside a package imports its modules; in core and data this holds for each room."""
    inner = set()
    for path, tree in TREES.items():
        home = path.relative_to(SOURCE).parts[:-1]
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = home[: len(home) - node.level + 1]
                target = (*base, *(node.module.split(".") if node.module else ()))
                room = target[:-1] if target[:1] == home[:1] else target[:1]
                outside = room != home[: len(room)] and (room[:1] != home[:1] or room[0] in ROOMS)
                if outside and len(target) > len(room) and not SOURCE.joinpath(*target).is_dir():
                    inner.add(f"{name(path)}:{node.lineno} imports {'.'.join(target)}")
    assert not inner


@pytest.mark.parametrize("path", [p for p in FILES if p.name == "__init__.py"], ids=name)
def test_a_package_says_what_it_holds(path):
    text = ast.get_docstring(TREES[path]) or ""
    assert "TODO" not in text
    assert len(text.split()) >= 5
