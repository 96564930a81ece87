"""What training writes into a run folder, and reads back (names and content: runs/file_names.py).

All files are pure functions of config, data and model: no times, no paths. The line with the final
metrics is written last; a folder without it is unfinished, and the same call goes on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from ..audit import Ledger, encode, read_ledger
from ..errors import DataError, SettingError
from ..files import sweep, unwritable, writable_folder, write_whole
from ..runs import FINAL, RunFile, as_json, of_json
from ..text import first_line
from .config import Config

Point = dict[str, Any]


@dataclass(frozen=True)
class _ConfigFile:
    """config.json: `data` is a fingerprint of the task."""

    data: str
    config: Config


@dataclass(frozen=True)
class RunFolder:
    """A folder that belongs to one config and one task."""

    path: Path

    @classmethod
    def open(cls, path: Path, config: Config, data: str, *, sweeps: bool = True) -> RunFolder:
        """Make the folder or find it, and refuse one of another run.

        `sweeps`: this process is the one that writes, and removes what a killed one left.
        """
        writable_folder(path)
        file = path / RunFile.CONFIG
        if file.exists():
            theirs, their_data = read_config(path)
            if differences := theirs.differences(config):
                raise SettingError(
                    f"{path} holds a run of other settings (there and here: "
                    f"{'; '.join(differences)}); expected the same: choose another folder, or remove it"
                )
            if their_data != data:
                raise SettingError(
                    f"{path} holds a run on other data; expected the same training and clean "
                    f"examples: choose another folder, or remove it"
                )
        else:
            content = as_json(_ConfigFile(data, config))
            write_whole(file, json.dumps(content, indent=2) + "\n")
        writable_folder(path / RunFile.CHECKPOINTS)
        if sweeps:
            sweep(path)
            sweep(path / RunFile.CHECKPOINTS)
        return cls(path)

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints are kept."""
        return self.path / RunFile.CHECKPOINTS

    def points(self) -> list[Point]:
        """The evaluations so far; a line that was being written when the process died is left out."""
        file = self.path / RunFile.METRICS
        if not file.exists():
            return []
        points = []
        for line in file.read_text(encoding="utf-8").splitlines():
            try:
                points.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return points

    def final(self) -> dict[str, Any] | None:
        """The metrics of a finished run; None if it is not finished."""
        points = self.points()
        metrics: dict[str, Any] | None = points[-1].get(FINAL) if points else None
        return metrics

    def rewrite(self, points: list[Point]) -> None:
        """The evaluations anew, as a whole: what came after a checkpoint will come again."""
        write_whole(self.path / RunFile.METRICS, "".join(map(_line, points)))

    def append(self, point: Point) -> None:
        """One evaluation more."""
        file = self.path / RunFile.METRICS
        try:
            with file.open("a", encoding="utf-8") as stream:
                stream.write(_line(point))
        except OSError as error:
            raise unwritable(file, error) from error

    def ledger(self) -> Ledger:
        """What each training example counted, from the finished run's table."""
        return read_ledger(self.path / RunFile.WEIGHTS)

    def finish(
        self, model: Mapping[str, Tensor], ledger: Ledger, labels: Tensor, points: list[Point]
    ) -> None:
        """The results, and last of all the line that says so."""
        from safetensors.torch import save

        # Tied parameters are saved once each: the format knows no sharing.
        tensors = {name: t.detach().cpu().contiguous().clone() for name, t in model.items()}
        write_whole(self.path / RunFile.MODEL, save(tensors))
        write_whole(self.path / RunFile.WEIGHTS, encode(ledger, labels))
        self.rewrite(points)


def read_config(path: Path) -> tuple[Config, str]:
    """The config of a run folder, and the fingerprint of its data."""
    file = path / RunFile.CONFIG
    try:
        content = of_json(_ConfigFile, json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise DataError(f"{path} is no run folder: it has no {RunFile.CONFIG}") from None
    except (ValueError, TypeError) as error:
        raise DataError(
            f"{file} cannot be read ({error}); expected what a run writes: choose another folder"
        ) from None
    return content.config, content.data


def read_model(path: Path) -> dict[str, Tensor]:
    """The trained model of a finished run folder, as a state dict."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    file = path / RunFile.MODEL
    if not file.exists():
        raise DataError(
            f"{path} has no {RunFile.MODEL}; expected a finished run: let it run to its end"
        )
    try:
        state: dict[str, Tensor] = load_file(file)
    except SafetensorError as error:
        raise DataError(
            f"{file} is damaged ({first_line(error)}); restore it from a copy, or train again"
        ) from error
    return state


def _line(point: Point) -> str:
    return json.dumps(point) + "\n"
