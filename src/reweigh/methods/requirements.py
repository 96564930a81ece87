"""What a method can require of a problem besides a train part, and the error if it is missing.

classes       targets that are classes
clean         at least one trusted example
right_share   the true share of right labels per class, known to an oracle only
pretrained    a model trained plainly on the same data
confusion     counts of that model's predictions against the given labels
"""

from collections.abc import Collection
from typing import Any

from torch import Tensor

from ..errors import SettingError
from .contract import Problem

EXPECTED = {
    "classes": "a classification problem: set Problem.classes, or take a method for any target",
    "clean": "one trusted example at least: set Problem.clean and Problem.clean_labels",
    "right_share": "the true share of right labels per class, [classes]: only where noise was made "
    "on purpose; set Problem.right_share",
    "pretrained": "a model trained plainly on the same data: set Problem.pretrained",
    "confusion": "its predictions against the given labels, [classes, classes]: set "
    "Problem.confusion",
}


def check_problem(problem: Problem, needs: Collection[str], method: str) -> None:
    """Refuse a problem whose labels contradict its classes, or that lacks what `method` needs."""
    if len(problem.train_labels) == 0:
        raise SettingError("the train part has no labels; expected one example at least")
    if problem.classes:
        _check_labels(problem.train_labels, problem.classes, "train")
        _check_labels(problem.clean_labels, problem.classes, "clean")
    present = {
        "classes": problem.classes > 1,
        "clean": len(problem.clean_labels) > 0 and problem.clean is not None,
    }
    for need in needs:
        if not present.get(need, True):
            raise _lacking(need, method)
        require(problem, need, method)
    c = problem.classes
    for name, shape in (("right_share", (c,)), ("confusion", (c, c))):
        value: Tensor | None = getattr(problem, name)
        if name in needs and value is not None and tuple(value.shape) != shape:
            raise SettingError(f"{name} has shape {tuple(value.shape)}; expected {shape}")


def require(problem: Problem, need: str, method: str) -> Any:
    """The field `need` of the problem; an error if it is None."""
    value = getattr(problem, need)
    if value is None:
        raise _lacking(need, method)
    return value


def _lacking(need: str, method: str) -> SettingError:
    expected = EXPECTED[need]
    return SettingError(f"the problem has no {need}, which {method!r} needs; expected {expected}")


def _check_labels(labels: Tensor, classes: int, which: str) -> None:
    if labels.ndim != 1:
        raise SettingError(
            f"the {which} labels have shape {tuple(labels.shape)}; expected one class per example"
        )
    wrong = labels[(labels != labels.long()) | (labels < 0) | (labels >= classes)]
    if len(wrong):
        raise SettingError(
            f"the {which} labels hold {wrong[0].item()}; expected classes 0 ... {classes - 1}: "
            f"number them from zero, or set Problem.classes=0 for a regression"
        )
