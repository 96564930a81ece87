"""Data sets on disk, as this library keeps them.

    ROOT/NAME/train_images.npy train_labels.npy test_images.npy test_labels.npy manifest.json

Arrays are plain .npy, mapped into memory rather than read. `manifest.json` is written last and has
the digest of each array, sha256("uint8 60000x1x28x28\\n" + bytes in C order): every load compares
it, so that a truncated or altered file is named and refused. A folder appears under its name only
when it is complete, by a rename.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DataError
from .decoders import Bytes
from .layouts import ARRAY_NAMES, Arrays

MANIFEST = "manifest.json"
MARK = "making-"
"""In the name of every temporary folder, so that leftovers can be told from data sets."""


@dataclass(frozen=True)
class Manifest:
    """What a stored data set is and where it came from."""

    name: str
    origin: str
    form: str
    digests: dict[str, str]
    subset: bool = False


def data_root(root: str | Path | None = None) -> Path:
    """Where data sets are kept: `root`, else $REWEIGH_DATA, else the user's cache folder."""
    if root is not None:
        return Path(root).expanduser()
    if named := os.environ.get("REWEIGH_DATA"):
        return Path(named).expanduser()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "reweigh" / "data"


def digest(array: Bytes) -> str:
    """sha256 of type, shape and content."""
    head = f"{array.dtype} {'x'.join(map(str, array.shape))}\n"
    content = hashlib.sha256(head.encode())
    content.update(np.ascontiguousarray(array).data)
    return content.hexdigest()


def digests(arrays: Arrays) -> dict[str, str]:
    """The digest of each of the four arrays."""
    return {name: digest(arrays[name]) for name in ARRAY_NAMES}


def is_stored(root: Path, name: str) -> bool:
    """Whether a folder of that name is there; `read_stored` tells whether it is sound."""
    return (root / name / MANIFEST).is_file()


def place(root: Path, arrays: Arrays, manifest: Manifest) -> Path:
    """Write a data set beside its place, then move it there in one step."""
    target = root / manifest.name
    fresh = Path(tempfile.mkdtemp(prefix=f".{manifest.name}-{MARK}", dir=root))
    try:
        for name in ARRAY_NAMES:
            with (fresh / f"{name}.npy").open("wb") as file:
                np.save(file, np.ascontiguousarray(arrays[name]), allow_pickle=False)
                file.flush()
                os.fsync(file.fileno())
        text = json.dumps({"version": 1, **asdict(manifest)}, indent=2)
        (fresh / MANIFEST).write_text(text + "\n", encoding="utf-8")
        fresh.chmod(0o755)  # mkdtemp gives 0700; a shared folder must be readable by others
        _swap(fresh, target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return target


def _swap(fresh: Path, target: Path) -> None:
    """Rename onto `target`; a folder cannot replace another, so an old one steps aside first."""
    if target.exists():
        aside = Path(tempfile.mkdtemp(prefix=f".{target.name}-{MARK}", dir=target.parent))
        try:
            os.replace(target, aside / "old")
            os.replace(fresh, target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    else:
        os.replace(fresh, target)


def read_manifest(root: Path, name: str) -> Manifest:
    """The manifest of a stored data set."""
    path = root / name / MANIFEST
    try:
        fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        version = fields.pop("version")
        manifest = Manifest(**fields)
        sound = version == 1 and manifest.name == name and set(manifest.digests) == {*ARRAY_NAMES}
    except FileNotFoundError:
        raise DataError(f"{name} is not in {root}; run: reweigh data fetch {name}") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _damaged(path, name, "it cannot be read") from error
    if not sound:
        raise _damaged(path, name, "it does not describe this data set")
    return manifest


def read_stored(root: Path, name: str, *, check: bool = True) -> tuple[Arrays, Manifest]:
    """The arrays, mapped copy-on-write (changes stay in memory), and their manifest.

    `check=False` skips the digests (0.2 s for CIFAR) for a set that was just verified.
    """
    manifest = read_manifest(root, name)
    arrays: Arrays = {}
    for array_name in ARRAY_NAMES:
        path = root / name / f"{array_name}.npy"
        try:
            array = np.load(path, mmap_mode="c", allow_pickle=False)
        except FileNotFoundError:
            raise _damaged(path, name, "it is missing") from None
        except (ValueError, EOFError, OSError) as error:
            raise _damaged(path, name, "it is truncated") from error
        if array.dtype != np.uint8 or (check and digest(array) != manifest.digests[array_name]):
            raise _damaged(path, name, "its content was altered")
        arrays[array_name] = array
    return arrays, manifest


def _damaged(path: Path, name: str, how: str) -> DataError:
    return DataError(f"{path}: {how}; run: reweigh data fetch {name}")
