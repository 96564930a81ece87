"""The surroundings of a run: Accelerate, threads, random numbers, signals. All are put back after it.

The random numbers of step t depend on (seed, phase, t, process) alone, as the batches do. So there
is no generator state to save, and a resumed run draws what it would have drawn.
"""

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
from ..rng import hashed_seed
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
    """An `Accelerator` for this config, whatever an earlier run in this process had."""
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
            # Accelerate may decide by its data loaders when a window of pieces ends. A loader that
            # another trainer of this process left at its end would make every piece an update. So
            # pieces are counted instead.
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
    """Seed torch's generators, on the CPU and on `device`, for one step."""
    number = hashed_seed(seed, draws, step, rank)
    torch.default_generator.manual_seed(number)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(number)


@contextmanager
def telling_of_lost_processes(count: int) -> Iterator[None]:
    """If one of `count` processes dies inside the block, raise an error that says what to do."""
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
    """A request to stop the run: `signal` is 0 until one arrives."""

    def __init__(self) -> None:
        self.signal = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Note the first signal; a second Ctrl-C ends the run without waiting for the step."""
        if self.signal and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number


@contextmanager
def listening() -> Iterator[Stop]:
    """Turn Ctrl-C and SIGTERM into a request while the block runs.

    Only in the main thread, where Python allows it. A signal that the process ignores stays ignored.
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
