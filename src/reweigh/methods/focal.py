"""Focal loss: easy examples count less.

    f_i = - (1 - p_y)^gamma log p_y      gamma = 2

Lin, Goyal, Girshick, He, Dollár: Focal Loss for Dense Object Detection, 2017. It is made for
imbalance. Under label noise it does the opposite of what is wanted: wrong labels are hard, so they
count more.
"""

from torch import Tensor

from ..errors import SettingError
from .contract import Method, Problem, evenly, weighed_by
from .probabilities import losses_from, of_label


def focal(problem: Problem, *, gamma: float = 2.0) -> Method:
    """Cross-entropy, scaled down where the model is already sure of the label."""
    if gamma != 0 and not gamma >= 1:  # for 0 < gamma < 1 the slope at p = 1 is infinite
        raise SettingError(f"gamma is {gamma}; expected 1 or more, or 0 for plain cross-entropy")

    def rule(log_p: Tensor, labels: Tensor) -> Tensor:
        own = of_label(log_p, labels)
        return -((-own.expm1()) ** gamma) * own

    return Method("focal", losses=losses_from(problem, rule), weigh=weighed_by(evenly))
