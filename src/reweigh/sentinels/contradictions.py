"""Who checks the checkers: checked rows that the other checked rows and the data contradict.

    p_j(c)     mean over the witnesses of what each says of checked row j; none of them learnt row j
    rival      the most probable class other than the label of row j
    named      p_j(label) - p_j(rival) < -SURELY

Every witness learns the train rows and the other checked rows in a way of its own: a row is named only
where they agree, with conviction. A wrong label among the checked rows misleads the weights of
all train rows, so a named row is worth a look before anything else.

Pitfall: the witnesses are plain models. A checked row that is unusual but right can be named; nothing
is changed here, a person decides.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..candidates import Places, Reals
from .witnesses import Testimony

SURELY = 0.5


@dataclass(frozen=True, eq=False)
class Contradictions:
    """Of each checked row, [m]: the probability of its label, the likeliest other class, and its."""

    p_label: Reals
    rival: Places
    p_rival: Reals

    @property
    def named(self) -> npt.NDArray[np.bool_]:
        """Which rows to look at."""
        return np.asarray(self.p_label - self.p_rival < -SURELY)


def contradictions(labels: Places, said: Testimony) -> Contradictions:
    """From what the witnesses say of the checked rows, whose labels are [m]."""
    p = np.mean(list(said.checked.values()), axis=0)
    each = np.arange(len(labels))
    p_label = p[each, labels].copy()
    p[each, labels] = -1
    rival = p.argmax(1)
    return Contradictions(p_label, rival, p[each, rival])
