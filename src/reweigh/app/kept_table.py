"""A table whose file is read once where its rows fit into memory.

Training looks at the rows of a table three times: for labels and a sample, to encode them, and at the
end for the cells of the suspects. The first look keeps what it reads, up to KEPT_BYTES. A table that
is larger is read again each time, so that memory stays bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields

from ..tables import Piece, Table

KEPT_BYTES = 128 * 2**20


@dataclass(frozen=True)
class KeptTable(Table):
    """A `Table`; `keep` are the columns that will be asked for again."""

    keep: tuple[str, ...] = ()
    _kept: list[Piece] = field(default_factory=list, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, table: Table, keep: Sequence[str]) -> KeptTable:
        """The table, with those columns of `keep` that it has."""
        names = tuple(name for name in table.columns if name in set(keep))
        return cls(**{each.name: getattr(table, each.name) for each in fields(Table)}, keep=names)

    def pieces(self, columns: Sequence[str] | None = None) -> Iterator[Piece]:
        """The rows in order, `columns` of them (all if None), a piece at a time."""
        wanted = list(self.columns if columns is None else columns)
        self.require(*wanted)
        if not set(wanted) <= set(self.keep) or self._size() > KEPT_BYTES:
            yield from super().pieces(wanted)
        elif self._kept:
            yield from (piece.select(wanted) for piece in self._kept)
        else:
            yield from self._read_and_keep(wanted)

    def _size(self) -> int:
        return sum(path.stat().st_size for path in self.read_from)

    def _read_and_keep(self, wanted: list[str]) -> Iterator[Piece]:
        pieces: list[Piece] = []
        room = KEPT_BYTES
        for piece in super().pieces(self.keep):
            room -= piece.nbytes
            if room >= 0:
                pieces.append(piece)
            else:
                pieces.clear()
            yield piece.select(wanted)
        if room >= 0:  # compressed files can be small and their rows not
            self._kept.extend(pieces)
