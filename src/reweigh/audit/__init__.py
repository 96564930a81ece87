"""What became of each training example over a run.

ledger   how often it was seen, what it counted, how often that was nothing
"""

from .ledger import COLUMNS, Ledger

__all__ = ["COLUMNS", "Ledger"]
