"""What became of each training example over a run, and which labels to look at.

ledger    how often it was seen, what it counted, how often that was nothing
ranking   every label by how suspicious it is
"""

from .ledger import COLUMNS, Ledger
from .ranking import Ranking, rank_classes, rank_numbers

__all__ = ["COLUMNS", "Ledger", "Ranking", "rank_classes", "rank_numbers"]
