"""JSON Lines with a review's decisions carried out: one value of a line changes, every other byte stays."""

import json
import re
from typing import IO

from ..errors import DataError
from ..runs import RunSource
from ..tables import is_blank, parsed, spans
from .corrections import Corrected, Corrections, check_rows
from .delimited import as_text, reading

_BARE = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false")
"""What stands in JSON without quotes."""


def correct_json_lines(source: RunSource, corrections: Corrections, out: IO[bytes]) -> Corrected:
    """Write the corrected lines to `out`. They are no spreadsheet: no cell needs an apostrophe."""
    rows, met = 0, Corrected()
    with (
        reading(source.data, source.encoding, newline="\n") as stream,
        as_text(out, source.encoding) as written,
    ):
        for number, line in enumerate(stream, start=1):
            if is_blank(line):
                written.write(line)
                continue
            index, rows = rows, rows + 1
            if index in corrections.given:
                where = f"line {number:,} of {source.data}"
                met.labels[index] = _label(parsed(line, where).get(source.target))
                corrections.check(index, met.labels[index])
            if index in corrections.dropped:
                continue
            label = corrections.labels.get(index)
            written.write(line if label is None else _relabelled(line, source.target, label))
    check_rows(source, rows)
    return met


def _label(value: object) -> str:
    if value is None or isinstance(value, bool):
        return "" if value is None else str(value).lower()
    return str(value).strip()


def _relabelled(line: str, target: str, label: str) -> str:
    """The line with another label: a word where a word was, a number where a number was."""
    if target not in (found := spans(line)):
        raise DataError(f"a row to relabel has no {target!r}; the data have changed: train again")
    start, end = found[target]
    bare = line[start] != '"' and _BARE.fullmatch(label)
    new = label if bare else json.dumps(label, ensure_ascii=line.isascii())
    return line[:start] + new + line[end:]
