"""Whatever the documentation shows is run, or at least understood by the program it calls."""

from __future__ import annotations

import csv
import random
import re
import shlex
from pathlib import Path

import pytest
import torch

pytest.importorskip("typer", reason="needs the command line: pip install 'reweigh[app]'")

from reweigh.app import networks as models
from reweigh.cli import main
from reweigh.cli.commands import root

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
HERE = ["compile.md", "index.md", "quick-start.md", "when-it-fails.md"]
ELSEWHERE = {
    "../README.md": "test_readme",
    "clean-set.md": "test_recipes",
    "data.md": "test_data_docs",
    "integrations/sklearn.md": "test_recipes",
    "language-models.md": "test_sequence_levels",
    "methods/README.md": "test_method_cards",
    "own-data.md": "test_own_docs",
    "recipes.md": "test_recipes",
    "scale.md": "test_scale_docs",
    "training.md": "test_training_docs",
}


def blocks(page: Path, language: str) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def commands(page: Path) -> list[list[str]]:
    """What a page tells its readers to type, without its comments."""
    lines = [line for block in blocks(page, "console") for line in block.splitlines()]
    return [shlex.split(line[2:], comments=True) for line in lines if line.startswith("$ ")]


def relative(page: Path) -> str:
    return "../README.md" if page.parent == ROOT else page.relative_to(DOCS).as_posix()


@pytest.mark.parametrize("name", HERE)
def test_python_blocks_run(name):
    names: dict[str, object] = {}
    for number, code in enumerate(blocks(DOCS / name, "python")):
        torch.manual_seed(0)
        exec(compile(code, f"{name}, block {number}", "exec"), names)
    assert names


def test_every_page_with_code_is_run_somewhere():
    with_code = {relative(page) for page in PAGES if blocks(page, "python")}
    assert with_code == {*HERE, *ELSEWHERE}
    for page, test in ELSEWHERE.items():
        (path,) = (ROOT / "tests").rglob(f"{test}.py")
        text = path.read_text(encoding="utf-8")
        assert page.rpartition("/")[2] in text or f"PAGE = {page!r}" in text, (page, test)


SHOWN = sorted({tuple(c) for page in PAGES for c in commands(page) if c[0] == "reweigh"})


@pytest.mark.parametrize("command", SHOWN, ids=" ".join)
def test_commands_are_understood(command):
    """Parsed by the command line itself, but not run."""
    group, arguments = root(), list(command[1:])
    parent = group.make_context("reweigh", [], resilient_parsing=True)
    while hasattr(group, "get_command"):
        name = arguments.pop(0)
        group = group.get_command(parent, name)
        assert group is not None, name
        parent = group.make_context(name, [], parent=parent, resilient_parsing=True)
    if "--help" not in arguments:
        group.make_context(group.name, arguments)


def test_programs_are_ones_we_know():
    programs = {command[0] for page in PAGES for command in commands(page)}
    assert programs == {"make", "pip", "python", "reweigh", "torchrun"}


def call(arguments):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 0, arguments


def table(path, rows):
    """Rows whose label is the sign of their first number, one in five wrong if `rows` is large."""
    draws = random.Random(rows)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", "label"])
        for k in range(rows):
            a, wrong = draws.gauss(0, 1), rows > 30 and k % 5 == 0
            writer.writerow([a, draws.gauss(0, 1), "up" if (a > 0) != wrong else "down"])


def test_the_quick_start_for_ones_own_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("FEWEST", "MOST"):
        monkeypatch.setattr(models, name, 60)
    for path, rows in {"rows.csv": 120, "checked.csv": 24, "new.csv": 10}.items():
        table(path, rows)
    typed = [c[1:] for c in commands(DOCS / "quick-start.md") if c[0] == "reweigh"]
    own = [c for c in typed if c[0] in {"train", "audit", "predict"}]
    assert [c[0] for c in own] == ["train", "audit", "predict"]
    for arguments in own:
        call(arguments)
    assert len(Path("audit.csv").read_text().splitlines()) == 121
    assert len(Path("predictions.csv").read_text().splitlines()) == 11


def test_the_quick_start_for_research(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    typed = [c[1:] for c in commands(DOCS / "quick-start.md") if c[0] == "reweigh"]
    for arguments in (c for c in typed if c[0] in {"reproduce", "report"}):
        smaller = (
            ["--methods", "uniform", "--seeds", "1", "--jobs", "1"] if "--out" in arguments else []
        )
        call([*arguments, *smaller])
    assert (tmp_path / "figure2" / "report.html").exists()
    assert "mnist-imbalance" in capsys.readouterr().out


def test_the_readme_types_what_the_quick_starts_type():
    shown = {tuple(c) for c in commands(DOCS / "quick-start.md")}
    assert {tuple(c) for c in commands(ROOT / "README.md") if c[0] != "make"} <= shown


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_lead_somewhere(page):
    """On a repository page; in the site, the strict build looks."""
    text = re.sub(
        r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text):
        if target.startswith(("http:", "https:", "mailto:")):
            continue
        path = page.parent / target if target else page
        assert path.exists(), target
        if anchor and path.suffix == ".md":
            assert anchor in anchors(path), f"{target}#{anchor}"


def anchors(page: Path) -> set[str]:
    """Of its headings, as repository pages and mkdocs spell them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    plain = [
        re.sub(r"[^\w\- ]", "", heading.replace("`", "")).strip().lower() for heading in headings
    ]
    return {heading.replace(" ", "-") for heading in plain}


def test_the_map_names_every_package():
    text = (DOCS / "how-it-works.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| `(\w+)` \|", text.partition("## The map")[2], flags=re.MULTILINE)
    source = ROOT / "src" / "reweigh"
    assert sorted(shown) == sorted(path.parent.name for path in source.glob("*/__init__.py"))


def test_failures_name_tests_and_problems_that_exist():
    from support.problems import PROBLEMS

    text = (DOCS / "when-it-fails.md").read_text(encoding="utf-8")
    named = re.findall(r"`tests/([\w/]+)\.py::(\w+)`", text)
    assert len(named) > 20
    for file, test in named:
        assert f"def {test}(" in (ROOT / "tests" / f"{file}.py").read_text(encoding="utf-8"), test
    known = {str(problem) for problem in PROBLEMS}
    for line in re.findall(r"problems? (`[^.]*`)", text):
        assert set(re.findall(r"`([\w-]+)`", line)) <= known, line


def test_the_cost_model_is_its_own_arithmetic():
    """A step of c + 3 m/n forwards, in plain steps of 3."""
    text = (DOCS / "speed.md").read_text(encoding="utf-8")
    rows = re.findall(r"\| (?:about )?([\d.]+) \+ 3m/n \| ([\d.]+) \| ([\d.]+) \|", text)
    assert len(rows) == 5
    for forwards, small, large in rows:
        cost = float(forwards)
        assert [small, large] == [f"{(cost + 3 * share) / 3:.2f}" for share in (0.1, 1)]
