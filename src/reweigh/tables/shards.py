"""Several files of the same columns as one table: the rows of the first, then those of the next.

    columns    the same names in every shard; in Parquet and JSON in any order, and that of the first counts
    types      of Parquet: one type for every column that all shards' types fit into (int64 and double: double)
    index      of row r of shard k:  rows of the shards before k, and r

Which files are shards of one table: shard_files.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DataError
from ..text import first_line
from .cells import arrow
from .endings import PARQUET

if TYPE_CHECKING:
    from .reader import Table


@dataclass(frozen=True, eq=False)
class ShardedRows:
    """The rows of some tables; `schema` of Parquet files, None for text."""

    tables: tuple[Table, ...]
    schema: Any = None
    _counts: dict[int, int] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:
        """In the order of the first shard."""
        return tuple(self.tables[0].columns)

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that are read."""
        return tuple(table.path for table in self.tables)

    def with_commas(self, columns: Collection[str]) -> ShardedRows:
        """Decimal commas that one shard, or another file, tells are those of all."""
        return replace(self, tables=tuple(table.with_commas(columns) for table in self.tables))

    def pieces(self, columns: list[str]) -> Iterator[Any]:
        """The rows in order, as pyarrow record batches of the same types."""
        for number, table in enumerate(self.tables):
            rows = 0
            for piece in table.pieces(columns):
                rows += piece.num_rows
                yield piece if self.schema is None else self._typed(piece, columns)
            self._counts[number] = rows

    def _typed(self, piece: Any, columns: list[str]) -> Any:
        types = [self.schema.field(name).type for name in columns]
        arrays = [piece.column(k).cast(kind) for k, kind in enumerate(types)]
        return arrow().RecordBatch.from_arrays(arrays, names=columns)

    def counts(self) -> dict[str, int]:
        """Rows of each shard, by its name; counted now, if they were not read before."""
        if len(self._counts) < len(self.tables):
            for _ in self.pieces([self.columns[0]]):
                pass
        return {file.name: self._counts[k] for k, file in enumerate(self.files)}


def joined(tables: Sequence[Table]) -> ShardedRows:
    """Opened shards as one; an error that names the first whose columns differ."""
    first = tables[0]
    for table in tables[1:]:
        for one, other in ((first, table), (table, first)):
            if lacks := [name for name in one.columns if name not in set(other.columns)]:
                more = f" ({len(lacks)} such columns)" if len(lacks) > 1 else ""
                raise DataError(
                    f"{other.path} has no column {lacks[0]!r}, but {one.path} has{more}; expected shards of one table "
                    "with the same columns: mend it, or give the files that belong together by a pattern in quotes"
                )
        if table.delimiter is not None and table.columns != first.columns:
            raise DataError(
                f"{table.path} has the columns of {first.path} in another order; expected the same order in "
                "shards of text: save it again"
            )
        if table.delimiter != first.delimiter:
            raise DataError(
                f"{table.path} parts its cells by {table.delimiter!r}, but {first.path} by {first.delimiter!r}; "
                "expected shards of one form: save it again"
            )
    schema = _schema(tables) if first.path.name.lower().endswith(PARQUET) else None
    commas = frozenset().union(*(table.commas for table in tables))
    return ShardedRows(tuple(tables), schema).with_commas(commas)


def _schema(tables: Sequence[Table]) -> Any:
    """One type for every column, with what the first file notes about them."""
    pa, pq = arrow(), arrow("parquet")
    first = pq.read_schema(tables[0].path)
    fields = {
        name.strip(): first.field(k).with_name(name.strip()).with_nullable(True)
        for k, name in enumerate(first.names)
    }
    for table in tables[1:]:
        other = pq.read_schema(table.path)
        for k, name in enumerate(other.names):
            mine, theirs = fields[name.strip()], other.field(k)
            if theirs.type == mine.type:
                continue
            try:
                one = [pa.schema([("x", each.type)]) for each in (mine, theirs)]
                kind = pa.unify_schemas(one, promote_options="permissive").field(0).type
            except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
                raise DataError(
                    f"column {name!r} is {theirs.type} in {table.path}, but {mine.type} in {tables[0].path} "
                    f"({first_line(error)[:80]}); expected one type: write the shards again"
                ) from None
            fields[name.strip()] = mine.with_type(kind)
    return pa.schema(list(fields.values()), metadata=first.metadata)
