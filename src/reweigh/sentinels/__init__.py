"""Which labels are wrong, with what probability, and how many; without torch.

Read in this order:

    witnesses    models that say of a row what its class may be, fitted without that row
    joint        how often each class is called each name, with intervals
    suspicion    the probability that a label is wrong, calibrated by rows whose truth is known
    flags        as many labels as can be flagged at a rate of false alarms
"""

from .flags import flagged_from, needed, p_values, right_share
from .joint import Joint, estimate_joint
from .suspicion import LabelJudgement, Sentinels, Suspicion, judge_labels, suspect
from .witnesses import Testimony, usual_witnesses

__all__ = [
    "Joint", "LabelJudgement", "Sentinels", "Suspicion", "Testimony", "estimate_joint", "flagged_from",
    "judge_labels", "needed", "p_values", "right_share", "suspect", "usual_witnesses",
]  # fmt: skip
