"""A blend: the mean of the probabilities of several candidates.

Candidates of different kinds err on different rows, so their mean is steadier than each. The members
are fixed by the kind of data: choosing them by few checked rows would bring back the luck of that choice.

    table     the corrected data under three models, and the fine-tuned network
    text      logistic regression on the corrected data, and on all rows with the checked ones weighted
              up; a network on texts is more certain of itself than they are, and would decide alone
    images    the fine-tuned network, and logistic regression on the corrected data
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from .judging import Judgement

BLEND = "blend"
MEMBERS = {
    "table": ("linear_corrected", "forest_corrected", "boosting_corrected", "fine_tuned"),
    "text": ("linear_corrected", "linear_weighted"),
    "images": ("fine_tuned", "linear_corrected"),
}


def blend(judgements: Mapping[str, Judgement], members: Sequence[str]) -> Judgement:
    """The mean of the members' probabilities; a row counts where all of them were judged."""
    each = np.stack([judgements[name].probabilities for name in members])
    return Judgement(BLEND, each.mean(0), 0)
