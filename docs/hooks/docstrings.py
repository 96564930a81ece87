"""An extension of griffe: docstrings written for readers of code, shown as a web page.

Ours are plain text: examples begin with `>>>`, formulas stand by themselves or line up in columns,
and arguments are `name: what it is` or two columns, continued by indented lines. Markdown would run
all of that together.
"""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe

ENTRY = re.compile(r"^([A-Za-z_][\w.]*(?:, [A-Za-z_][\w.]*)*)(?::\s+| {2,})([^\s=].*)$")
COLUMNS = re.compile(r"\S {2,}\S")


class Docstrings(griffe.Extension):
    """Rewrites every docstring as Markdown."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called once for everything that was read."""
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(docstring: str) -> str:
    """The docstring, block by block."""
    blocks = re.split(r"\n\s*\n", textwrap.dedent(docstring).strip("\n"))
    summary, *rest = blocks
    return "\n\n".join([_escaped(summary), *map(_block, rest)])


def _block(block: str) -> str:
    lines = block.splitlines()
    if lines[0].lstrip().startswith(">>>"):
        return _fenced("pycon", block)
    entries = _entries(textwrap.dedent(block).splitlines())
    if entries:
        return "\n".join(f"- `{name}`: {_escaped(text)}" for name, text in entries)
    if lines[0].startswith("    ") or any(COLUMNS.search(line) for line in lines):
        return _fenced("text", block)
    return _escaped(block)


def _fenced(language: str, block: str) -> str:
    return f"```{language}\n{textwrap.dedent(block)}\n```"


def _entries(lines: list[str]) -> list[tuple[str, str]]:
    """Arguments and what they are; nothing if these lines are something else."""
    found: list[tuple[str, str]] = []
    for line in lines:
        entry = ENTRY.match(line)
        if entry:
            found.append((entry[1], entry[2]))
        elif found and line.startswith("  "):
            found[-1] = (found[-1][0], f"{found[-1][1]} {line.strip()}")
        else:
            return []
    return found


def _escaped(text: str) -> str:
    """Text in which `<` is no tag, but for what stands between backticks."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else p.replace("<", "&lt;") for p in parts)
