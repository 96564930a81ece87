"""Progress: what a run reports after every step, and a bar that shows it.

`fit(..., progress=callable)` calls it with a `Now` after every step. The numbers of a `Now` are read
from the device only when they are asked for, so a callable that only counts steps costs nothing.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO

from ..core import effective_sample_size
from ..methods import Weighed
from ..optional import optional


@dataclass(frozen=True)
class Now:
    """The state of a run: `step` of `steps` over all phases; `examples` trained on by this call."""

    phase: str
    step: int
    steps: int
    examples: int
    accuracy: float | None
    weighed: Weighed

    @property
    def loss(self) -> float:
        """The mean loss of the last train batch."""
        return float(self.weighed.losses.mean())

    @property
    def clean_loss(self) -> float | None:
        """The mean loss of the last clean batch; None if the method did not look at it."""
        value = self.weighed.clean_loss
        return None if value is None else float(value)

    @property
    def effective_sample_size(self) -> float:
        """How many examples the last weights amount to."""
        return float(effective_sample_size(self.weighed.weights))

    def __str__(self) -> str:
        parts = [f"loss {self.loss:.2f}"]
        if (clean := self.clean_loss) is not None:
            parts.append(f"clean {clean:.2f}")
        if self.accuracy is not None:
            parts.append(f"accuracy {self.accuracy:.1%}")
        return " ".join([*parts, f"effective {self.effective_sample_size:.0f}"])


Progress = Callable[[Now], None]
"""What `fit(..., progress=)` calls at every step; `bar` makes one."""

REDRAW_SECONDS = 0.5
LINE_SECONDS = 30.0


@contextmanager
def bar(stream: TextIO | None = None) -> Iterator[Progress]:
    """A bar on a terminal; elsewhere a plain line every half minute. "/s" means examples per second.

    with bar() as progress:
        fit(make_model, task, config, progress=progress)
    """
    stream = stream or sys.stderr
    with _rich(stream) if stream.isatty() else _plain(stream) as progress:
        yield progress


class _Paced:
    """Calls `show` for the first step, the last, and otherwise every `seconds`."""

    def __init__(self, seconds: float, show: Callable[[Now, float], None]) -> None:
        self._seconds, self._show = seconds, show
        self._begun: float | None = None
        self._next = 0.0

    def __call__(self, now: Now) -> None:
        clock = time.monotonic()
        if self._begun is None:
            self._begun = clock
        if clock >= self._next or now.step == now.steps:
            self._next = clock + self._seconds
            spent = clock - self._begun
            self._show(now, now.examples / spent if spent > 0 else 0.0)


@contextmanager
def _plain(stream: TextIO) -> Iterator[Progress]:
    def show(now: Now, rate: float) -> None:
        print(f"{now.phase} {now.step}/{now.steps}: {now} {rate:.0f}/s", file=stream)

    yield _Paced(LINE_SECONDS, show)


@contextmanager
def _rich(stream: TextIO) -> Iterator[Progress]:
    console = optional("rich.console", package="rich", needed_for="the progress bar")
    progress = optional("rich.progress", package="rich", needed_for="the progress bar")
    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(bar_width=10),  # so that the line fits into 80 columns
        progress.TaskProgressColumn(),
        progress.TimeRemainingColumn(compact=True),
        progress.TextColumn("{task.fields[numbers]}"),
    )
    with progress.Progress(*columns, console=console.Console(file=stream)) as bars:
        task = bars.add_task("", total=None, numbers="")

        def show(now: Now, rate: float) -> None:
            done = {"total": now.steps, "completed": now.step}
            bars.update(task, description=now.phase, numbers=f"{now} {rate:.0f}/s", **done)

        yield _Paced(REDRAW_SECONDS, show)
