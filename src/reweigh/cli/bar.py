"""The bar of a long command, on standard error, where that is a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def shown_bar(console: Any, description: str) -> Iterator[tuple[Any, Any]]:
    """A rich `Progress` and its one task; gone when the block ends."""
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        yield bar, bar.add_task(description, total=None)
