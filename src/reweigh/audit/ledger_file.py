"""The ledger's table as the content of a Parquet file (`weights.parquet`), and back."""

import io
from pathlib import Path

import numpy as np
from torch import Tensor

from ..errors import DataError
from .ledger import COLUMNS, Column, Ledger


def encode(ledger: Ledger, labels: Tensor | None = None) -> bytes:
    """`ledger.table(labels)` as the content of a Parquet file; NaN becomes null."""
    import pyarrow
    from pyarrow import parquet

    columns = ledger.table(labels)
    table = pyarrow.table({n: pyarrow.array(c, from_pandas=True) for n, c in columns.items()})
    stream = io.BytesIO()
    parquet.write_table(table, stream)
    return stream.getvalue()


def read_table(path: Path | str) -> dict[str, Column]:
    """The columns of a `weights.parquet`; null becomes NaN."""
    import pyarrow
    from pyarrow import parquet

    try:
        table = parquet.read_table(path)
    except (FileNotFoundError, pyarrow.ArrowException) as error:
        raise DataError(
            f"{path} cannot be read ({error}); expected a run's weights.parquet"
        ) from None
    optional = ("given_label", "against_share")  # the second came later
    missing = [n for n in COLUMNS if n not in optional and n not in table.column_names]
    if missing:
        raise DataError(f"{path} has no column {missing[0]}; expected a run's weights.parquet")
    columns = {name: table[name].to_numpy() for name in COLUMNS if name in table.column_names}
    return {"against_share": np.full(len(table), np.nan), **columns}


def read_ledger(path: Path | str) -> Ledger:
    """The ledger of a finished run."""
    return Ledger.of(read_table(path))
