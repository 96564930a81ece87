"""Your own data: train, predict and audit without writing code.

    train(Options(data=..., clean=..., target=...), out)    doubtful labels, and a few checked ones
    load(run)                                               labels and probabilities for new rows

Read in this order: `options` (what can be asked), `inspection` (what the files are), `roles` (which
row does what), `encoding`, `preparation` (a task), `training_run` (all of it), `predict`, `audit`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .options import Options

if TYPE_CHECKING:
    from .listing import write_listing
    from .predict import Predictor, load
    from .prediction_file import write_predictions
    from .training_run import Signs, train

__all__ = [
    "Options",
    "Predictor",
    "Signs",
    "load",
    "train",
    "write_listing",
    "write_predictions",
]

# All but the options need torch, which takes seconds to import; `reweigh train --help` does not.
_HOMES = {
    "Predictor": "predict",
    "Signs": "training_run",
    "load": "predict",
    "train": "training_run",
    "write_listing": "listing",
    "write_predictions": "prediction_file",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value
