"""What `own` keeps in a run folder besides what training writes there.

options.json     what was asked
source.json      what the data is: kind, task, classes, paths
network.json     the model's shape, and what is done to its inputs and outputs
preprocess.*     the fitted pre-processing
audit.parquet, suspects.parquet
summary.json     figures and warnings, written last: a run that has one is finished
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import DataError
from ..files import write_whole

VERSION = 1
OPTIONS, SOURCE, NETWORK, SUMMARY = "options.json", "source.json", "network.json", "summary.json"
AUDIT, SUSPECTS, UNREADABLE = "audit.parquet", "suspects.parquet", "unreadable.txt"

Json = dict[str, Any]


def write_json(path: Path, value: Json) -> None:
    """As a whole, with the version of these files."""
    write_whole(path, json.dumps({"version": VERSION, **value}, indent=1, allow_nan=False) + "\n")


def read_json(path: Path) -> Json:
    """Read it back; refuses other versions."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        version = found["version"]
    except FileNotFoundError:
        raise DataError(
            f"there is no {path}; expected a finished run folder of `reweigh train`"
        ) from None
    except NotADirectoryError:
        raise DataError(f"{path.parent} is a file; expected a run folder") from None
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is damaged ({error}); train again") from error
    if version != VERSION:
        raise DataError(
            f"{path} is of version {version!r}, this reweigh reads {VERSION}; "
            "use the reweigh that wrote it, or train again"
        )
    values: Json = found
    return values


@dataclass(frozen=True)
class Run:
    """A finished run, read."""

    path: Path
    source: Json
    network: Json

    @classmethod
    def open(cls, path: Path) -> Run:
        """Read a run folder, or say what it lacks."""
        if not path.exists():
            raise DataError(f"there is no {path}; expected a run folder of `reweigh train`")
        source = read_json(path / SOURCE)
        if not (path / SUMMARY).exists():
            raise DataError(f"{path} is not finished; run the same `reweigh train` again")
        return cls(path, source, read_json(path / NETWORK))
