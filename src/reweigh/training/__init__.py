"""Training: one step, the loop, evaluation, checkpoints, the run folder.

    fit(make_model, task, config, out=folder) -> Outcome

Read in this order: `step` (what happens to a batch), `loop` (a phase), `fitting` (a run), `config`.
"""

from .config import Config, Optimizer
from .evaluation import Judged, evaluating, judge
from .fitting import fit
from .folder import RunFolder, read_config, read_model
from .outcome import Outcome
from .phases import Phase, phases
from .progress import Now, Progress, bar
from .schedules import PAPER, FineTune, PaperSchedule, Schedule

__all__ = [
    "PAPER",
    "Config",
    "FineTune",
    "Judged",
    "Now",
    "Optimizer",
    "Outcome",
    "PaperSchedule",
    "Phase",
    "Progress",
    "RunFolder",
    "Schedule",
    "bar",
    "evaluating",
    "fit",
    "judge",
    "phases",
    "read_config",
    "read_model",
]
