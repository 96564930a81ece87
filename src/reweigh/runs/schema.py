"""What the files of a run folder hold. The fields are the keys of the JSON, in this order."""

import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

from ..errors import DataError, unknown

KINDS = ("table", "images", "text")
TASKS = ("classes", "regression")
FALSE_ALARMS = 0.1
"""The share of right labels expected among flagged ones, where nobody asks for another."""
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,2})?")


@dataclass(frozen=True)
class RunSource:
    """The data a run was trained on.

    kind, task     one of KINDS, one of TASKS
    target         the column of the labels; "folder" for images
    classes        their names, in the order of the model's outputs; empty in a regression
    rows           of `data`, those without a label included
    data           a file; for images a folder
    delimiter      of a text file; None for Parquet, for images, and where nobody noted it
    commas         columns of a text file with decimal commas
    image_column   of a table whose rows are images
    shards         of data in several files: the rows of each, by its name, in order
    """

    kind: str
    task: str
    target: str
    classes: tuple[str, ...]
    rows: int
    data: Path
    clean: Path | None = None
    clean_where: str | None = None
    text_column: str | None = None
    columns: tuple[str, ...] = ()
    encoding: str = "utf-8"
    delimiter: str | None = None
    commas: tuple[str, ...] = ()
    image_column: str | None = None
    shards: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_listing(self) -> bool:
        """Whether the rows are files of images, and no table."""
        return self.kind == "images" and self.image_column is None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown("kind of data", self.kind, KINDS)
        if self.task not in TASKS:
            raise unknown("task", self.task, TASKS)
        if self.task == "classes" and not self.classes:
            raise ValueError("it names no classes; expected at least one for the task 'classes'")

    def label(self, text: str) -> str:
        """`text` as a label of these data: one of the classes, or a finite number."""
        if self.task == "classes":
            if text not in self.classes:
                raise unknown("label", text, self.classes[:20])
            return text
        if not _NUMBER.fullmatch(text.strip()):
            raise DataError(f"label {text[:40]!r} is not a number; expected one, such as 3.5")
        return text.strip()


@dataclass(frozen=True)
class Network:
    """A model's shape: `outputs` classes, or 1 for a regression, whose output is then [n].

    shape     of one input
    hidden    widths of the hidden layers
    factory   of the user's own, as package.module:factory; of the kind "own"
    """

    kind: str
    shape: tuple[int, ...]
    outputs: int
    hidden: tuple[int, ...] = ()
    regression: bool = False
    factory: str = ""


@dataclass(frozen=True)
class ModelDescription:
    """All that is needed to use the saved weights.

    mean, std, peak    inputs that are bytes become (byte / peak - mean) / std
    centre, scale      in a regression, prediction = output * scale + centre
    """

    network: Network
    mean: tuple[float, ...]
    std: tuple[float, ...]
    peak: int
    centre: float
    scale: float


@dataclass(frozen=True)
class EncoderState:
    """A fitted encoder: `state` is what its class makes it from again."""

    kind: str
    state: Mapping[str, Any]


@dataclass(frozen=True)
class MethodComparison:
    """Another method beside ours: `gain` is positive where ours is better.

    figure      the other's
    interval    half a 95% interval of the gain; None where one row says nothing about it
    """

    method: str
    name: str
    figure: float
    gain: float
    interval: float | None


@dataclass(frozen=True)
class WinnerPart:
    """One model of the winner.

    kind        "network", "softmax", "ridge" or "trees"
    features    what it takes: "encoded" rows, "ngrams" of texts, "edges" of images
    weight      in the mean of the parts
    sharpness   its probabilities are taken to this power first
    shift       added to its numbers, in a regression (in scaled units)
    """

    name: str
    kind: str
    features: str
    weight: float = 1.0
    sharpness: float = 1.0
    shift: float = 0.0


@dataclass(frozen=True)
class Winner:
    """The candidate that was kept: the weighted mean of its parts' probabilities, or a single part.

    Of the k-th part, winner.safetensors has the arrays whose names begin with `k/`; those of the
    encoder of n-grams begin with `ngrams/`.
    """

    name: str
    parts: tuple[WinnerPart, ...]


@dataclass(frozen=True)
class CandidateFigures:
    """What the judging rows said of a candidate; None where nothing judged it.

    rows          it was judged on
    interval      half a 95% interval of the accuracy
    per_class     the share of right ones among the rows of each class; None where there are none
    error         in a regression: root mean square, in the units of the target; the interval is its
    """

    name: str
    title: str
    accuracy: float | None
    balanced_accuracy: float | None
    macro_f1: float | None
    interval: float | None
    chosen: bool
    rows: int
    per_class: Mapping[str, float | None]
    error: float | None = None


@dataclass(frozen=True)
class LabelPair:
    """How many rows given one label would rather get another."""

    given: str
    suggested: str
    count: int


@dataclass(frozen=True)
class Advice:
    """What a user should know before trusting a run, and what to do about it."""

    what: str
    do: str


@dataclass(frozen=True)
class UnusedColumn:
    """A column left out of the inputs, and why."""

    name: str
    why: str


@dataclass(frozen=True)
class TrainingPlan:
    """How the model was trained."""

    method: str
    steps: int
    batch: int
    clean_batch: int
    learning_rate: float
    seed: int
    network: Network


@dataclass(frozen=True)
class Estimate:
    """A share, and its 95% interval."""

    share: float
    low: float
    high: float


@dataclass(frozen=True)
class ClassErrors:
    """Of the rows given one label: how many there are, and the share of wrong ones among them."""

    given: str
    rows: int
    wrong: Estimate


@dataclass(frozen=True)
class PairErrors:
    """The share of all rows that are `true` and are called `given`."""

    given: str
    true: str
    share: Estimate


@dataclass(frozen=True)
class SourceErrors:
    """Of the labels from one source: the share of wrong ones, drawn to the others' where rows are few.

    weight    what a row of it counts in plain models, in the mean 1; None without --weigh-sources
    """

    source: str
    rows: int
    wrong: Estimate
    weight: float | None = None


@dataclass(frozen=True)
class CalibrationBin:
    """Checked rows, under right and wrong labels, whose p_wrong lies in one tenth; shares by weight.

    said     the mean of their p_wrong;  wrong  the share that is wrong;  weight  their part of all
    """

    said: float
    wrong: float
    weight: float


@dataclass(frozen=True)
class LabelErrors:
    """How many labels are wrong, and how far that is known.

    checked       rows that judged;  pairs_known  whether the labels they had in the data are known
    pairs_found   checked rows that were found among the data; pairs_needed for these labels to be counted
    wrong         share of wrong labels
    right_share   of right labels, as flags reckon with it (rather too many)
    flagged       rows flagged at FALSE_ALARMS
    per_class, pairs, sources    the largest first; not more than 200 each
    calibration   by tenths of p_wrong that have sentinels
    error         mean over rows of |said - wrong| of their tenth
    """

    checked: int
    pairs_known: bool
    wrong: Estimate
    right_share: float
    flagged: int
    per_class: tuple[ClassErrors, ...]
    pairs: tuple[PairErrors, ...]
    calibration: tuple[CalibrationBin, ...]
    error: float
    sources: tuple[SourceErrors, ...] = ()
    pairs_found: int = 0
    pairs_needed: int = 20

    def pairs_told(self, rows: str = "rows") -> str:
        """One sentence: how the number of wrong labels is known."""
        if self.pairs_known:
            return (
                f"{self.pairs_found:,} checked {rows} are among the data, so the labels they had there "
                "were counted."
            )
        found = f"only {self.pairs_found:,}" if self.pairs_found else "none"
        return (
            f"The labels that checked {rows} were given are not known: {found} of them are among the data, "
            f"and {self.pairs_needed} are needed. So the number supposes that errors depend on the true "
            "class alone. The interval does not, and is as wide as what can be known without them."
        )

    def needed(self, false_alarms: float) -> int:
        """Checked rows it takes to flag all wrong labels at this rate, at least."""
        share = max(self.wrong.share, 1e-9)
        known_right = math.ceil(self.right_share / (false_alarms * share) - 1)
        return math.ceil(known_right / max(1 - share, 0.05)) if self.pairs_known else known_right


@dataclass(frozen=True)
class FixSummary:
    """What `reweigh fix` did (fix.json). Shares with 95% intervals, from the checked rows.

    rows             labels that were judged;  kept + relabelled + set_aside of them
    checked          labels of checked rows that were put into the data
    right_before     share of right labels;  right_after  among those kept and relabelled
    relabelled_right share of right ones among new labels;  false_alarms_seen  of right ones among
                     flagged labels; both as the checked rows have them, None where none was flagged
    model            what was fitted to the data before and after, and judged on checked rows that
                     had no part in either: model_before, model_after (accuracy), model_gain and half its
                     interval; None where it was not asked for
    """

    data: Path
    corrected: str
    false_alarms: float
    rows: int
    kept: int
    relabelled: int
    set_aside: int
    checked: int
    right_before: float
    right_before_interval: tuple[float, float]
    right_after: float
    right_after_interval: tuple[float, float]
    relabelled_right: Estimate | None
    false_alarms_seen: Estimate | None
    model: str | None = None
    model_before: float | None = None
    model_after: float | None = None
    model_gain: float | None = None
    model_gain_interval: float | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class LabelFix:
    """One row that is changed: to which label (None: set aside), and why."""

    index: int
    given: str
    label: str | None
    p_wrong: float | None
    p_suggested: float | None
    why: str


@dataclass(frozen=True)
class CheckedDoubt:
    """A checked row that models of the other checked rows and the data contradict.

    file, row    where it is: "clean" or "data", and its position there, from 0
    p_label      mean probability of its label, by models that have not seen the row
    rival        the likeliest other label; p_rival its mean probability
    """

    file: str
    row: int
    label: str
    p_label: float
    rival: str
    p_rival: float


@dataclass(frozen=True)
class RunSummary:
    """The results of a finished run.

    metric           "accuracy", or "mean absolute error" in a regression
    judged_on        "test", "holdout", "validation", "checked" (cross-validation over them), or ""
                     where nothing judged
    figure           the metric on `judged_rows` rows; `interval` is half its 95% interval
    suggestions      rows whose label looks wrong
    class_weights    the mean weight of the rows given each class; 1 is plain training
    curves           by method: the evaluations on the way, as in metrics.jsonl
    metrics          of the reweighed network, as in the last line of metrics.jsonl
    candidates       all that were tried, the best first
    judged_by        what judged them: "cross-validation", "validation" or "test"
    expected         accuracy of such a choice on rows that had no part in it
    why_chosen       one or two sentences
    notes            what was guessed about the form of the files
    checked_doubts   checked rows that the others contradict
    """

    metric: str
    judged_on: str
    judged_rows: int
    figure: float | None
    interval: float | None
    comparison: tuple[MethodComparison, ...]
    train_rows: int
    clean_rows: int
    suggestions: int
    confusion: tuple[LabelPair, ...]
    class_weights: Mapping[str, float | None]
    warnings: tuple[Advice, ...]
    curves: Mapping[str, tuple[Mapping[str, Any], ...]]
    metrics: Mapping[str, Any]
    plan: TrainingPlan
    left_out: tuple[UnusedColumn, ...]
    candidates: tuple[CandidateFigures, ...] = ()
    judged_by: str = ""
    expected: float | None = None
    why_chosen: str = ""
    labels: LabelErrors | None = None
    notes: tuple[str, ...] = ()
    checked_doubts: tuple[CheckedDoubt, ...] = ()


@dataclass(frozen=True)
class AuditRow:
    """One training row of the ranking.

    index             its position in the data, from 0
    suggested_label   where the model is confident
    suspicion         0 (none) to 1 (certainty)
    mean_weight       1 is what a row counts in plain training
    zero_share        the share of its steps in which it did not help the checked rows
    seen              the steps it was in
    posterior         the probability that the label is right, by the corrected data; None where
                      there are none
    p_wrong           the probability that the label is wrong, calibrated by the checked rows
    suggested         the likeliest other label; p_suggested its probability
    flag              whether it is flagged at the false-alarm rate FALSE_ALARMS
    flagged_from      the smallest false-alarm rate at which it is flagged
    source            where the label comes from: the cell of the column --source
    against_share     the share of its steps in which the model was against the label: it gave the other
                      classes more than half of the probability; None where nobody knows

    All from p_wrong on are None where nothing is known: a regression, very few checked rows, runs of
    earlier versions, rows beyond those that plain models learn.
    """

    index: int
    given_label: str
    suggested_label: str | None
    suspicion: float
    mean_weight: float | None
    zero_share: float | None
    seen: int | None
    posterior: float | None = field(default=None, kw_only=True)  # runs before it have none
    p_wrong: float | None = field(default=None, kw_only=True)
    suggested: str | None = field(default=None, kw_only=True)
    p_suggested: float | None = field(default=None, kw_only=True)
    flag: bool | None = field(default=None, kw_only=True)
    flagged_from: float | None = field(default=None, kw_only=True)
    source: str | None = field(default=None, kw_only=True)
    against_share: float | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Suspect(AuditRow):
    """A row that is worth a look.

    why           one sentence
    example       the row itself: cells as a JSON object, the text, or the image's path
    probability   of the suggested label; where there is none, of the given one
    """

    why: str
    example: str
    probability: float | None


@dataclass(frozen=True)
class Voice:
    """A checked row that speaks against a suspect, or for it.

    index      of the suspect
    product    of the gradients of the two losses: negative where the checked row speaks against it
    file       of the checked row: "clean", or "data" where it is one of the data's own
    row        its position in that file, from 0
    label      its checked label
    example    the row itself, as that of a `Suspect`
    """

    index: int
    product: float
    file: str
    row: int
    label: str
    example: str


VOICE_COLUMNS = tuple(each.name for each in fields(Voice))
AUDIT_COLUMNS = tuple(each.name for each in fields(AuditRow))
SUSPECT_COLUMNS = tuple(each.name for each in fields(Suspect))
NEEDED_COLUMNS = tuple(each.name for each in fields(Suspect) if each.default is MISSING)
"""Those that the file of every version has."""
