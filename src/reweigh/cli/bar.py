"""The bar of a long command, on standard error, where that is a terminal."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def shown_bar(
    console: Any, description: str, *, in_bytes: bool = False
) -> Iterator[tuple[Any, Any]]:
    """A rich `Progress` and its one task; gone when the block ends. `in_bytes`: of a download."""
    from rich.progress import Progress

    with Progress(
        *columns(in_bytes=in_bytes),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        yield bar, bar.add_task(description, total=None)


def columns(*, in_bytes: bool = False) -> tuple[Any, ...]:
    """What a bar shows: what is done, how much of it, and the time left."""
    from rich import progress
    from rich.text import Text

    class Size(progress.DownloadColumn):
        """Nothing while the size is unknown, rather than question marks."""

        def render(self, task: progress.Task) -> Text:
            return super().render(task) if task.total else Text()

    name, bar = progress.TextColumn("{task.description}"), progress.BarColumn()
    left = progress.TimeRemainingColumn()
    if in_bytes:
        return progress.SpinnerColumn(), name, bar, Size(), left
    return name, bar, progress.TaskProgressColumn(), left
