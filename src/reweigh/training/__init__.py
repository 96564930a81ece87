"""Training: from a model, a task and a config to a trained model and a run folder.

    fit(make_model, task, config, out=folder) -> Outcome

Read in this order:

    config, schedules    what a run is: method, steps, batch, optimizer, learning rates
    trainer              one step: what happens to a pair of batches
    loop                 one phase: steps, evaluations, checkpoints
    phases               which phases a run has
    fitting              `fit`: all phases of a run, then the results
    run_context          what all phases share;  running_phase  what one phase builds and saves
    criteria             the loss that fits a model's outputs
    evaluation           accuracy and loss of a model;  run_metrics  those of a run
    run_folder, checkpoints    the files
    environment          Accelerate, threads, random numbers, signals, lost processes
    averages, divergence, progress, best_weights    what is observed along the way; early stopping
"""

from ..core import evaluating
from .config import Config, Optimizer
from .criteria import criterion_for
from .evaluation import EVALUATION_BATCH, Judged, Observer, judge
from .fitting import fit
from .phases import Phase, phases
from .progress import Now, Progress, bar
from .run_folder import RunFolder, read_config, read_model
from .run_metrics import Outcome
from .schedules import PAPER, FineTune, PaperSchedule, Schedule

__all__ = [
    "EVALUATION_BATCH", "PAPER", "Config", "FineTune", "Judged", "Now", "Observer", "Optimizer",
    "Outcome", "PaperSchedule", "Phase", "Progress", "RunFolder", "Schedule", "bar",
    "criterion_for", "evaluating", "fit", "judge", "phases", "read_config", "read_model",
]  # fmt: skip
