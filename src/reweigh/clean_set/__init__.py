"""Where clean examples come from: chosen by the data itself, or suggested for a person to check.

evidence       what several small models, each tested on rows it never saw, think of every label
pseudo_clean   a balanced set of rows that all of them believe
suggestion     the rows worth checking by hand, and what checking k of them would bring
"""

from .evidence import Evidence, cross_fit
from .gain import Gain
from .pseudo_clean import PseudoClean, pseudo_clean
from .suggestion import Suggestion, suggest_clean

__all__ = [
    "Evidence",
    "Gain",
    "PseudoClean",
    "Suggestion",
    "cross_fit",
    "pseudo_clean",
    "suggest_clean",
]
