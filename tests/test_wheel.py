"""The wheel holds the package and nothing else, and needs no more than it asks for."""

from __future__ import annotations

import runpy
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "check_wheel.py"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def asked_for(requirements: list[str], found: dict[str, metadata.Distribution]) -> None:
    """Add to `found` what these requirements bring, and what that brings in turn."""
    for text in requirements:
        one = Requirement(text)
        if one.marker is not None and not one.marker.evaluate({"extra": ""}):
            continue
        if one.name not in found:
            found[one.name] = metadata.distribution(one.name)
            asked_for(found[one.name].requires or [], found)


def test_it_holds_the_package_and_nothing_else(wheel):
    assert SCRIPT["problems"](wheel) == []
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "reweigh/py.typed" in names
    assert any(name.startswith("reweigh/report/templates/") for name in names)
    assert any(name.startswith("reweigh/review/templates/") for name in names)
    assert not [name for name in names if any(p.startswith("test") for p in name.split("/"))]


def test_problems_are_found(wheel, tmp_path):
    poorer = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(poorer, "w") as other:
        for name in whole.namelist():
            if name != "reweigh/py.typed":
                other.writestr(name, whole.read(name))
        other.writestr("tests/test_it.py", "")
    assert SCRIPT["problems"](poorer) == ["lacks reweigh/py.typed", "holds tests/test_it.py"]


def test_the_readmes_example_needs_what_the_wheel_asks_for_and_no_more(wheel, tmp_path):
    """In a process that sees the wheel, its dependencies and theirs, and no other package."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "wheel")
    (info,) = (tmp_path / "wheel").glob("*.dist-info")
    found: dict[str, metadata.Distribution] = {}
    asked_for(metadata.Distribution.at(info).requires or [], found)
    assert {"torch", "numpy"} <= found.keys()
    assert not {"typer", "pandas", "accelerate"} & found.keys()
    links = tmp_path / "links"
    links.mkdir()
    for one in found.values():
        for top in {path.parts[0] for path in one.files or [] if path.parts[0] != ".."}:
            target = links / top
            if not target.exists() and top != "__pycache__":
                target.symlink_to(one.locate_file(top))
    code = (
        f"import sys; sys.path += [{str(tmp_path / 'wheel')!r}, {str(links)!r}]\n"
        + SCRIPT["example"]()
        + f"assert reweigh.__file__.startswith({str(tmp_path)!r})\n"
        + "import importlib.util; assert importlib.util.find_spec('typer') is None\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "ghost" in done.stdout
