"""What became of each training example over a run.

ledger   how often it was seen, what it counted, how often that was nothing
tables   the same as a Parquet file
"""

from .ledger import COLUMNS, Ledger
from .tables import encode, read_ledger, read_table

__all__ = ["COLUMNS", "Ledger", "encode", "read_ledger", "read_table"]
