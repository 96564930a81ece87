"""Which labels are wrong, with what probability, and how many; without torch.

Read in this order:

    witnesses    models that say of a row what its class may be, fitted without that row
    dynamics     how a label fares while a plain model is trained
    joint        how often each class is called each name, with intervals
    bounds       how many labels can be wrong at least and at most, whatever errors depend on
    evidence     what is said of a row under a label
    copies       checked rows under right and wrong labels
    combination  one probability from all of it, learnt with little freedom
    judgements   what is said of labels, and of all of them together
    suspicion    the probability that a label is wrong, calibrated by rows whose truth is known
    contradictions   checked rows that the others contradict
    flags        as many labels as can be flagged at a rate of false alarms
    repairs      keep, relabel or set aside; the share of right labels before and after
    sources      the error rate of each annotator, rule or file, shrunk
"""

from .contradictions import Contradictions, contradictions
from .flags import flagged_from, needed, p_values, right_share
from .joint import Joint, Mixing, estimate_joint
from .judgements import LabelJudgement, Sentinels, Suspicion
from .repairs import KEEP, RELABEL, SET_ASIDE, Policy, RightLabels, right_labels
from .sources import SourceRate, source_rates, source_weights
from .suspicion import FEWEST_PAIRS, hear_witnesses, judge_labels, suspect
from .witnesses import Testimony, usual_witnesses

__all__ = [
    "FEWEST_PAIRS", "KEEP", "RELABEL", "SET_ASIDE", "Contradictions", "Joint", "LabelJudgement", "Mixing", "Policy", "RightLabels",
    "Sentinels", "SourceRate", "Suspicion", "Testimony", "contradictions", "estimate_joint", "flagged_from",
    "hear_witnesses", "judge_labels", "needed", "p_values", "right_labels", "right_share", "source_rates", "source_weights", "suspect",
    "usual_witnesses",
]  # fmt: skip
