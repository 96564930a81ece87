"""`+clean`: any method that also learns from the clean batch it is given.

    loss = (1 - s) * (loss of the method) + s * mean of the clean losses,      s = m / (n + m)

n train and m clean examples a step: every clean example counts what a train example counts in plain
training. The paper only asks the clean examples; a person who has checked a row expects that it is learnt.
"""

from dataclasses import replace

from ..core import Loss, process_count
from ..errors import SettingError
from .contract import Method, View, Weighed


def with_clean(method: Method) -> Method:
    """The method, learning from the clean batches too."""
    if process_count() > 1:
        raise SettingError(
            f"{process_count()} processes train with '{method.name}+clean', which runs the model "
            f"twice a step; expected one process, or {method.name!r} alone"
        )

    if method.name == "reweigh_hedged":
        raise SettingError(
            "'reweigh_hedged+clean' would learn the clean rows that judge it; expected "
            "'reweigh_hedged', or 'reweigh_hedged+ft', which learns them afterwards"
        )

    def weigh(view: View, loss: Loss) -> Weighed:
        weighed = method.weigh(view, loss)
        clean = loss(view.model, view.clean).mean()
        share = len(view.clean[1]) / (len(view.clean[1]) + len(view.ids))
        return replace(weighed, loss=(1 - share) * weighed.loss + share * clean)

    return replace(method, weigh=weigh)
