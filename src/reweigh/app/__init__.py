"""Your own data: train, predict and audit without writing code.

    train(Options(data=..., clean=..., target=...), out)    doubtful labels, and a few checked ones
    load(run)                                               labels and probabilities for new rows

Read in this order: `options` (what can be asked), `gathering` (what the files are), `roles` (which
row does what), `encoding`, `preparing` (a task), `running` (all of it), `predicting`, `auditing`.
"""

from .options import Options
from .predict import Predictor, load
from .train import Signs, train

__all__ = ["Options", "Predictor", "Signs", "load", "train"]
