"""What became of each training example over a run, and which labels to look at.

ledger    how often it was seen, what it counted, how often that was nothing
tables    the same as a Parquet file
ranking   every label by how suspicious it is
"""

from .ledger import COLUMNS, Ledger
from .ranking import Ranking, rank_classes, rank_numbers
from .tables import encode, read_ledger, read_table

__all__ = [
    "COLUMNS",
    "Ledger",
    "Ranking",
    "encode",
    "rank_classes",
    "rank_numbers",
    "read_ledger",
    "read_table",
]
