"""Where clean examples come from: chosen by models, or suggested for a person to check.

Read in this order:

    evidence       predictions of several small models for rows they were not trained on
    committee      those small models
    pseudo_clean   a balanced set of rows whose labels all of these models agree with
    suggestion     the rows to check by hand, and what checking k of them would bring
    coverage       an order of rows in which the first few represent the rest
    gain           an estimate of what k checked rows bring
"""

from .evidence import Evidence, cross_fit
from .gain import Gain
from .pseudo_clean import PseudoClean, pseudo_clean
from .suggestion import Suggestion, suggest_clean

__all__ = [
    "Evidence", "Gain", "PseudoClean", "Suggestion", "cross_fit", "pseudo_clean",
    "suggest_clean",
]  # fmt: skip
