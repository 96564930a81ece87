"""The site builds without a warning, needs nobody else, and documents every public name."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import runpy
import subprocess
import sys
import zlib
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("mkdocs", reason="needs mkdocs: pip install 'reweigh[docs]'")

from reweigh.methods import METHODS
from support.review_browser import chromium

pytestmark = pytest.mark.site
ROOT = Path(__file__).parents[2]
PACKAGES = ["audit", "clean_set", "core", "data", "methods", "models", "app", "training"]
MODULES = ["reweigh", *(f"reweigh.{name}" for name in PACKAGES)]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(out),
    ]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        command, cwd=ROOT, env=quiet, check=False, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    return out


def test_nothing_is_fetched_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        text = page.read_text(encoding="utf-8")
        found = re.findall(r"<(?:script|img|iframe)[^>]+src=[\"']?(https?:)?//[^>]+>", text)
        found += re.findall(r"<link[^>]+href=[\"']?(?:https?:)?//[^>]+>", text)
        assert not found, page.name
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//", sheet.read_text(encoding="utf-8")), sheet


def test_what_pages_link_to_in_the_repository_comes_along(site):
    assert (site / "repository" / "results" / "audit" / "table.html").exists()
    source = (site / "repository" / "src" / "reweigh" / "core" / "safeguard.py.html").read_text()
    assert "class" in source
    assert "NextBatchJudge" in source
    assert not list(site.rglob("refresh.py"))


def test_every_public_name_is_in_the_reference(site):
    documented = inventory(site)
    missing = []
    for module in MODULES:
        exported = importlib.import_module(module)
        for name in exported.__all__:
            value = getattr(exported, name)
            home = f"{getattr(value, '__module__', module)}.{getattr(value, '__qualname__', name)}"
            if documented.isdisjoint({f"{module}.{name}", home}):
                missing.append(f"{module}.{name}")
    assert not missing


def test_every_integration_is_in_the_reference(site):
    text = (site / "reference" / "integrations.html").read_text(encoding="utf-8")
    names = [
        "ReweighClassifier",
        "ReweighRegressor",
        "ReweighTrainer",
        "ReweighMixin",
        "Numbered",
    ]
    assert [name for name in names if f'.{name}"' not in text] == []


def inventory(site: Path) -> set[str]:
    """The names that mkdocstrings has written a heading for."""
    *_, packed = (site / "objects.inv").read_bytes().split(b"\n", 4)
    return {line.split(" ", 1)[0] for line in zlib.decompress(packed).decode().splitlines()}


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_has_a_docstring(module):
    exported = importlib.import_module(module)
    bare = []
    for name in exported.__all__:
        value = getattr(exported, name)
        if inspect.isclass(value) or inspect.isroutine(value):
            # A dataclass without a docstring is given its signature for one.
            if not value.__doc__ or value.__doc__.startswith(f"{name}("):
                bare.append(name)
        elif name not in described_values():
            bare.append(name)
    assert not bare


@cache
def described_values() -> set[str]:
    """Names assigned at the top of a module with a string right after, which is their docstring."""
    found = set()
    for path in (ROOT / "src" / "reweigh").rglob("*.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        for value, text in pairwise(body):
            targets = (
                value.targets if isinstance(value, ast.Assign) else [getattr(value, "target", None)]
            )
            if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def test_the_navigation_has_every_method():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    cards = re.findall(r"^ +- (\w+): methods/(\w+)\.md$", text, flags=re.MULTILINE)
    assert cards == [(name, name) for name in METHODS]


def test_docstrings_are_shown_as_written():
    as_markdown = runpy.run_path(str(ROOT / "docs" / "hooks" / "docstrings.py"))["as_markdown"]
    plain = "The <a, b>, `<c>`.\n\n    y = a < b\n\nx: one\n   number\nz, w: two\n\n>>> 1 + 1\n2"
    assert as_markdown(plain).split("\n\n") == [
        "The &lt;a, b>, `<c>`.",
        "```text\ny = a < b\n```",
        "- `x`: one number\n- `z, w`: two",
        "```pycon\n>>> 1 + 1\n2\n```",
    ]


@pytest.fixture(scope="module")
def browser():
    with chromium() as made:
        yield made


def test_it_is_searched_from_disk(site, browser):
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    heard, asked = [], []
    page.on("console", lambda said: heard.append(said.text))
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.on("request", lambda request: asked.append(request.url.partition(":")[0]))
    page.goto((site / "reference" / "index.html").as_uri(), timeout=60_000)
    page.wait_for_selector(".md-search__input")
    page.focus(".md-search__input")
    page.keyboard.type("safeguard")
    found = page.wait_for_selector(".md-search-result__link", timeout=60_000)
    assert found.get_attribute("href").startswith("file:")
    assert set(asked) <= {"file", "data", "about"}
    assert heard == []
    context.close()


PHONE = ["index", "how-it-works", "when-it-fails", "own-data", "methods/index", "reference/data"]


def test_pages_fit_a_phone_in_light_and_dark(site, browser):
    context = browser.new_context(viewport={"width": 390, "height": 800})
    page = context.new_page()
    for name in PHONE:
        page.goto((site / f"{name}.html").as_uri(), wait_until="domcontentloaded", timeout=60_000)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, name
    for scheme, paper in (("light", "rgb(253, 252, 250)"), ("dark", "rgb(22, 23, 26)")):
        page.emulate_media(color_scheme=scheme)
        page.reload()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == paper
    context.close()
