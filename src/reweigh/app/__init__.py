"""Your own data: train, predict and audit without writing code.

    train(Options(data=..., clean=..., target=...), out)    doubtful labels, and a few checked ones
    load(run)                                               labels and probabilities for new rows

Read in this order:

    options          what can be asked
    training_run     `train`: all of it, from the files to a finished run folder
    inspection       what the user's files are; an encoder fitted to them (encoder_file, kept_table)
    row_split        which row is for training, which is clean, which is for judging (labelled_rows)
    encoded_rows     every row encoded, on the disk
    preparation      all of these: a task to train on
    networks         which model, how large, how long
    final_outputs    what the final model says of each row
    advice           what to know before trusting it
    summary          the figures of a run, and how much better it is than plain training
    checked_doubts   checked rows that the others contradict
    label_doubts     the probability that each label is wrong (label_errors, label_sources)
    fixing           what to do with each label
    audit            the ranking of its rows; voice_file, who speaks against the first of
                     them; audit_list, as the user wants it
    predict          new rows
    export           the model for other programs (exported_module)
"""

import importlib
from typing import TYPE_CHECKING, Any

from .options import Help, Options, flag, shown_options  # all but Options for our command line only

if TYPE_CHECKING:
    from .audit_list import label_notes, read_audit_list, write_audit_list
    from .export import export_model
    from .fixing import FixPlan, plan_fix
    from .predict import Predictor, load, write_predictions
    from .stdin_rows import STDIN, received
    from .training_run import Signs, run_training, train

__all__ = [
    "STDIN", "FixPlan", "Options", "Predictor", "Signs", "export_model", "label_notes", "load", "plan_fix",
    "read_audit_list", "received", "run_training", "train", "write_audit_list", "write_predictions",
]  # fmt: skip

# All but the options need torch, which takes seconds to import; `reweigh train --help` does not.
_HOMES = {
    "export": ("export_model",),
    "predict": ("Predictor", "load", "write_predictions"),
    "training_run": ("Signs", "run_training", "train"),
    "fixing": ("FixPlan", "plan_fix"),
    "audit_list": ("label_notes", "read_audit_list", "write_audit_list"),
    "stdin_rows": ("STDIN", "received"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f".{home}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
