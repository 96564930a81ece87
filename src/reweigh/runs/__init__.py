"""The run folder: what its files are called and hold, and how they are read. Needs no torch.

Read in this order:
    file_names     every name in a run folder, and who writes it
    schema         the JSON files and the rows of the tables, as dataclasses
    json_values    dataclasses as JSON and back, by the types of their fields
    reading        folders opened and checked; the one check of the version
"""

# isort: off
from .file_names import FINAL, RunFile
from .json_values import Json, as_json, differences, of_json
from .reading import TrainedRun, open_run, open_suspects, read, reading_parquet, versioned, write
from .schema import (
    AUDIT_COLUMNS, FALSE_ALARMS, SUSPECT_COLUMNS, VOICE_COLUMNS, Advice, CalibrationBin,
    CandidateFigures, CheckedDoubt,
    ClassErrors, EncoderState, Estimate, FixSummary, LabelErrors, LabelFix, LabelPair,
    MethodComparison, ModelDescription, Network, PairErrors, RunSource, RunSummary, SourceErrors,
    Suspect, TrainingPlan, UnusedColumn, Voice, Winner, WinnerPart,
)  # fmt: skip
