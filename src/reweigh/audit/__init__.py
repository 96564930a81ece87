"""What each training example counted over a run, and which labels to check.

Read in this order:

    ledger        how often each example was seen, what it counted, how often it counted nothing
    ledger_file   the ledger's table as a Parquet file
    ranking       every label ranked by how suspicious it is
    voices        the checked rows that speak against and for a row
"""

from .ledger import COLUMNS, Ledger
from .ledger_file import encode, read_ledger, read_table
from .ranking import Ranking, rank_classes, rank_numbers
from .voices import Voices, gradient_products, strongest

__all__ = [
    "COLUMNS", "Ledger", "Ranking", "Voices", "encode", "gradient_products", "rank_classes",
    "rank_numbers", "read_ledger", "read_table", "strongest",
]  # fmt: skip
