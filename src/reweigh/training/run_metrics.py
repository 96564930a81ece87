"""The metrics of a run, and `Outcome`, which is what a run returns."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from ..audit import Ledger
from ..data import AnyPart, AnyTask
from .evaluation import Judged
from .run_folder import Point

Judge = Callable[[str, AnyPart], tuple[Judged, Judged]]
"""Called with the name of a part ("test", "hyper", "clean", "train") and the part."""


@dataclass(frozen=True)
class Outcome:
    """A finished run.

    metrics   of the model at the end of training, not of a best step; see `final_metrics`
    curve     the evaluations during the run: phase, step, learning rate, losses, accuracies
    ledger    what each training example counted in the main phase
    model     the trained model, on the CPU, in eval mode
    """

    metrics: dict[str, Any]
    curve: list[Point]
    ledger: Ledger
    model: nn.Module

    @property
    def test_accuracy(self) -> float:
        """The accuracy on the test part's true labels."""
        return float(self.metrics["test_accuracy"])


def curve_metrics(judge: Judge, task: AnyTask, probe: int) -> Point:
    """During a run: test, hyper-validation and clean part in full, `probe` evenly spread train examples."""
    return _numbers(_judged(judge, task, task.train.probe(probe)))


def final_metrics(judge: Judge, task: AnyTask) -> dict[str, Any]:
    """At the end of a run: all parts in full, as plain JSON.

    test_loss, test_accuracy, class_accuracy, confusion    true labels; confusion has a row per true class
    hyper_loss, hyper_accuracy, hyper_true_accuracy        against noisy and against true labels
    clean_loss, clean_accuracy                             of the whole clean part
    train_loss, train_accuracy, train_true_accuracy        against given and against true labels

    An empty part has no entry. A regression has no accuracies; its losses are mean squared errors.
    """
    judged = _judged(judge, task, task.train)
    metrics = _numbers(judged)
    if "test_accuracy" in metrics:
        _, test = judged["test"]
        metrics |= {"class_accuracy": test.class_accuracy, "confusion": test.confusion.tolist()}
    return metrics


def _judged(judge: Judge, task: AnyTask, train: AnyPart) -> dict[str, tuple[Judged, Judged]]:
    parts = {"test": task.test, "hyper": task.hyper_validation, "clean": task.clean, "train": train}
    return {name: judge(name, part) for name, part in parts.items() if len(part)}


def _numbers(judged: dict[str, tuple[Judged, Judged]]) -> dict[str, Any]:
    metrics: dict[str, Any] = {}
    for name, (given, true) in judged.items():
        noisy = name in ("hyper", "train")
        metrics[f"{name}_loss"] = (given if noisy else true).mean_loss
        if len(given.confusion):
            metrics[f"{name}_accuracy"] = (given if noisy else true).accuracy
            if noisy:
                metrics[f"{name}_true_accuracy"] = true.accuracy
    return metrics
