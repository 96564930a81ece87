"""What surrounds a run: Accelerate, threads, random numbers, signals. Left as it was found.

Random numbers of step t depend on (seed, phase, t, process) alone, like the batches: there is no
generator state to save, and a resumed run draws what it would have drawn.
"""

from __future__ import annotations

import hashlib
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from ..core import says_lost, unanswered
from ..errors import LostProcessError, SettingError
from ..optional import optional
from .config import Config


@contextmanager
def surroundings(config: Config, out: Path | None) -> Iterator[Any]:
    """Yield an `Accelerator`; threads and the global generators are restored afterwards."""
    accelerator = make_accelerator(config, out)
    threads = torch.get_num_threads()
    device = accelerator.device
    devices = [device] if device.type != "cpu" else []
    try:
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        with torch.random.fork_rng(devices=devices, device_type=device.type if devices else "cuda"):
            yield accelerator
    finally:
        torch.set_num_threads(threads)
        for tracker in accelerator.trackers:  # `end_training` would end other runs' processes too
            tracker.finish()


def make_accelerator(config: Config, out: Path | None) -> Any:
    """One for this config, whatever an earlier run in this process had."""
    accelerate = optional("accelerate", package="accelerate", needed_for="training")
    if config.trackers and out is None:
        raise SettingError(
            f"trackers {', '.join(config.trackers)} need a run folder; expected out=FOLDER"
        )
    state = accelerate.state.AcceleratorState
    if state._shared_state and state().mixed_precision != config.precision:
        state._reset_state()  # it would insist on the precision of the first run of the process
    try:
        return accelerate.Accelerator(
            mixed_precision=config.precision,
            # Pieces are counted, not data loaders watched: one that another trainer of this process
            # has left at its end would make every piece an update.
            gradient_accumulation_plugin=accelerate.utils.GradientAccumulationPlugin(
                num_steps=config.accumulate, sync_with_dataloader=False
            ),
            cpu=config.device == "cpu",
            log_with=list(config.trackers) or None,
            project_dir=out,
        )
    except (ValueError, ImportError) as error:
        raise SettingError(f"Accelerate cannot run this: {error}") from error


def seed_step(seed: int, draws: str, step: int, *, rank: int, device: torch.device) -> None:
    """Set torch's generators, here and on `device`, for one step."""
    digest = hashlib.sha256(f"{seed} {draws} {step} {rank}".encode()).digest()
    number = int.from_bytes(digest[:7], "big")
    torch.default_generator.manual_seed(number)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(number)


@contextmanager
def telling_of_lost_processes(count: int) -> Iterator[None]:
    """Say what to do when one of `count` processes has died, wherever in a step that shows."""
    try:
        yield
    except RuntimeError as error:
        if count == 1 or not says_lost(error):
            raise
        raise LostProcessError(
            f"{unanswered(error)}, or run the same command again: a run with a folder goes on from "
            f"its last checkpoint"
        ) from error


class Stop:
    """Whether somebody wants the run to stop: `signal` is 0 until then."""

    def __init__(self) -> None:
        self.signal = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """The first signal asks; a second Ctrl-C does not wait for the end of the step."""
        if self.signal and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number


@contextmanager
def listening() -> Iterator[Stop]:
    """Turn Ctrl-C and SIGTERM into a request while the block runs.

    Only in the main thread, where Python allows it; a signal that is ignored stays so.
    """
    stop = Stop()
    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, stop) or signal.SIG_DFL
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
