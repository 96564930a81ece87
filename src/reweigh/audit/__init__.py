"""What each training example counted over a run, and which labels to check.

Read in this order:

    ledger        how often each example was seen, what it counted, how often it counted nothing
    ledger_file   the ledger's table as a Parquet file
    ranking       every label ranked by how suspicious it is
"""

from .ledger import COLUMNS, Ledger
from .ledger_file import encode, read_ledger, read_table
from .ranking import Ranking, rank_classes, rank_numbers

__all__ = [
    "COLUMNS", "Ledger", "Ranking", "encode", "rank_classes", "rank_numbers", "read_ledger",
    "read_table",
]  # fmt: skip
