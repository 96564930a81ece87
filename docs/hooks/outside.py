"""A hook of mkdocs: links that lead out of docs/ work in the site, too.

On a repository page `../results/audit/table.md` is a link like any other, but the site holds docs/
only. So every file that a page links to is brought along under `repository/`: Markdown and source as
pages, anything else as it is. What is brought along may link on; links are followed to the end.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(?=[)#])")
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n"
SOURCE = {".py": "python", ".toml": "toml", ".yml": "yaml", "": "text"}


def on_files(files: Files, config: Any) -> Files:
    """Add what the pages link to."""
    waiting = [DOCS / file.src_uri for file in files.documentation_pages()]
    known: set[Path] = set()
    while waiting:
        for path in outside(waiting.pop()):
            if path not in known:
                known.add(path)
                files.append(brought(path, config))
                waiting += [path] if path.suffix == ".md" else []
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links at where their targets lie in the site."""
    here = page.file.src_uri
    origin = original(here)

    def moved(found: re.Match[str]) -> str:
        path = (origin.parent / found[0]).resolve()
        if not path.is_file() or (is_page(origin) and is_page(path)):
            return found[0]
        return os.path.relpath(address(path), os.path.dirname(here))

    return LINK.sub(moved, markdown)


def outside(page: Path) -> Iterator[Path]:
    """The files outside docs/ that a page links to."""
    for found in LINK.findall(page.read_text(encoding="utf-8")):
        path = (page.parent / found).resolve()
        if path.is_file() and path.is_relative_to(ROOT) and not is_page(path):
            yield path


def is_page(path: Path) -> bool:
    """Whether mkdocs shows a file by itself; the scripts that make pages lie beside them."""
    return path.is_relative_to(DOCS) and path.suffix != ".py"


def address(path: Path) -> str:
    """Where a file of the repository lies among the pages."""
    if is_page(path):
        return path.relative_to(DOCS).as_posix()
    suffix = ".md" if path.suffix in SOURCE else ""
    return f"repository/{path.relative_to(ROOT).as_posix()}{suffix}"


def original(uri: str) -> Path:
    """The file of the repository that a page shows."""
    if not uri.startswith("repository/"):
        return DOCS / uri
    path = ROOT / uri.removeprefix("repository/")
    return path if path.exists() else path.with_suffix("")


def brought(path: Path, config: Any) -> File:
    """A file of the repository as a file of the site; what is no page, such as a picture, byte for byte."""
    if not address(path).endswith(".md"):
        return File.generated(config, address(path), content=path.read_bytes())
    text = path.read_text(encoding="utf-8")
    if path.suffix in SOURCE:
        name = path.relative_to(ROOT).as_posix()
        text = f"# {name}\n\n~~~~~~{SOURCE[path.suffix]}\n{text}~~~~~~\n"
    return File.generated(config, address(path), content=f"{UNSEARCHED}{text}")
