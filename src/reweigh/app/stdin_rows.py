"""Rows from standard input (`--data -`), put into a file: rows are read more than once.

    cat rows.csv | reweigh train --data - --clean checked.csv --target label --out run

The file is `RUN/stdin.csv`; its ending is that of `--format`, or is told from the first bytes. If the
same command is run again, it must bring the same bytes, or none.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import sys
import zlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import IO, cast

from ..errors import DataError, SettingError, unknown
from ..files import whole_file
from ..runs import RunFile

STDIN = Path("-")
"""The path that stands for standard input."""
FORMS = ("csv", "tsv", "jsonl", "parquet", "xlsx", "zip")
_AT_ONCE = 2**20


def received(folder: Path, form: str | None = None) -> Path:
    """The file in `folder` that holds what standard input has."""
    if form is not None and form not in FORMS:
        raise unknown("format", form, FORMS)
    there = next(iter(sorted(folder.glob(f"{RunFile.STDIN}.*"))), None)
    bound = there is not None and (folder / RunFile.OPTIONS).exists()
    stream = cast("IO[bytes]", getattr(sys.stdin, "buffer", io.BytesIO()))
    head = b"" if stream.isatty() else stream.read(_AT_ONCE)
    if not head:
        if there is not None and bound:
            return there
        raise DataError(
            "standard input is empty; expected rows, for example: cat rows.csv | reweigh train --data -"
        )
    path = folder / f"{RunFile.STDIN}.{form or told(head)}"
    if there is not None and bound:
        if there != path or _digest(chain([head], _pieces(stream))) != _digest(_content(there)):
            raise SettingError(
                f"{folder} holds a run of other rows from standard input; give another --out, or "
                "remove it"
            )
        return there
    if there is not None:
        there.unlink()
    with whole_file(path) as written:
        for piece in chain([head], _pieces(stream)):
            written.write(piece)
    return path


def told(head: bytes) -> str:
    """The ending that the first bytes ask for.

    >>> told(b'{"x": 1}'), told(b"x;y"), told(b"PAR1...."), told(gzip.compress(b'{"x": 1}'))
    ('jsonl', 'csv', 'parquet', 'jsonl.gz')
    """
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"PK\x03\x04"):
        return "xlsx" if b"[Content_Types].xml" in head or b"xl/workbook" in head else "zip"
    if head.startswith(b"\x1f\x8b"):
        return f"{told(_unpacked(head))}.gz"
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return "jsonl" if text.startswith(b"{") else "csv"


def _unpacked(head: bytes) -> bytes:
    try:
        with gzip.open(io.BytesIO(head)) as stream:
            return stream.read(64)
    except (OSError, EOFError, zlib.error):
        return b""


def _digest(pieces: Iterator[bytes]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def _content(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        yield from _pieces(stream)


def _pieces(stream: IO[bytes]) -> Iterator[bytes]:
    while piece := stream.read(_AT_ONCE):
        yield piece
