"""What `reweigh train` can be asked to do. Each option is written here, and nowhere else.

The fields are the options of the command (cli/train.py makes them from the fields), the arguments of
`Options(...)`, and the keys of `options.json` in the run folder: the same command goes on with a run,
and `--resume-with` begins a new one with the same options and more checked rows.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

from ..errors import DataError, SettingError
from ..runs import as_json, of_json

DATA, TRAINING = "Your data", "Training (defaults fit the size of the data)"


@dataclass(frozen=True)
class Help:
    """What the command line shows of an option, and checks.

    panel      the group it is listed in; None: the general one
    least      the smallest value that is allowed
    default    the default in words, where it is not a value
    """

    help: str | None
    metavar: str | None = None
    panel: str | None = DATA
    least: int | None = None
    default: str | None = None


@dataclass(frozen=True)
class Options:
    """The data, and how to train on it; everything has a default but the data.

    The checked rows come from `clean`, `clean_where` or `also_clean`; one of them has to be given.
    A row may be in several `also_clean` files, with the same label. `steps`, `batch`, `learning_rate`
    and `hidden` are chosen by the size of the data where they are None.
    """

    data: Annotated[
        Path,
        Help(
            "Rows with doubtful labels: CSV, JSON Lines, Parquet, Excel, a folder of shards of one of the first "
            "three or a pattern of files in quotes, a data set of Hugging Face, a folder or zip archive with one "
            "folder of images a class; - is standard input.",
            "D",
        ),
    ]
    clean: Annotated[
        Path | None, Help("A few rows with checked labels, five or more a class; same form.", "C")
    ] = None
    target: Annotated[str | None, Help("The column of the labels (tables).", "COL")] = None
    test: Annotated[Path | None, Help("More checked rows, kept for judging only.", "T")] = None
    validation: Annotated[
        Path | None,
        Help("More checked rows, which choose the candidate and (--early-stop) end training.", "V"),
    ] = None
    text: Annotated[
        str | None, Help("Learn from the texts in this column, in any language.", "COL")
    ] = None
    image: Annotated[
        str | None,
        Help(
            "Learn from the images in this column (Parquet, Hugging Face); found if there is one.",
            "COL",
        ),
    ] = None
    encoder: Annotated[
        Path | None, Help("A local transformers model for the texts, or for the images.", "DIR")
    ] = None
    fine_tune: Annotated[
        bool, Help("Train the image model of --encoder, too; else only a layer on its features.")
    ] = False
    clean_where: Annotated[
        str | None,
        Help(
            "Instead of --clean: the checked rows are those of --data that meet this "
            "(==, !=, <, <=, >, >=).",
            "'COL == VALUE'",
        ),
    ] = None
    also_clean: Annotated[
        tuple[Path, ...],
        Help("Rows of --data that were looked at, as `index,label`: they count as clean.", "FILE"),
    ] = ()
    leave_out: Annotated[
        tuple[Path, ...], Help("Rows of --data not to train on, as `index`.", "FILE")
    ] = ()
    task: Annotated[str, Help("auto, classes or regression.")] = "auto"
    source: Annotated[
        str | None,
        Help(
            "The column that says where a label comes from (annotator, rule, batch): it is no input, and "
            "every source gets an error rate.",
            "COL",
        ),
    ] = None
    weigh_sources: Annotated[
        bool,
        Help("Rows of sources that are often wrong count less in the plain models (--source)."),
    ] = False
    ignore: Annotated[tuple[str, ...], Help("Leave this column out; may be repeated.", "COL")] = ()
    encoding: Annotated[str, Help("Of CSV files.")] = "utf-8"
    image_size: Annotated[int | None, Help("Images are resized to this.", "PIXELS", least=8)] = None
    only_clean_classes: Annotated[
        bool, Help("Leave out rows of classes that have no clean row.")
    ] = False
    compare: Annotated[
        bool,
        Help(
            "Train plainly and with random weights, too; report the gain, and rank suspects with "
            "the plain model's doubts as well.",
            panel=None,
        ),
    ] = False
    holdout: Annotated[
        float | None,
        Help(
            "Clean rows kept for judging.",
            "SHARE",
            panel=None,
            default="0.3 with --compare and no --test",
        ),
    ] = None
    early_stop: Annotated[
        bool,
        Help(
            "End the network's training when it gets no better on the rows of --validation, or, without "
            "it, on a fifth of the clean rows, which then guide nothing; its best weights are kept.",
            panel=None,
        ),
    ] = False
    quick: Annotated[
        bool,
        Help(
            "Try few candidates: the reweighed network, and a logistic regression on the checked rows "
            "and on all rows.",
            panel=None,
        ),
    ] = False
    method: Annotated[
        str | None,
        Help(
            "Try and keep this candidate only: reweigh, fine_tuned, plain, "
            "linear_checked, linear_all, linear_weighted, linear_corrected; for tables also "
            "forest_checked, forest_corrected, boosting_checked, boosting_all, "
            "boosting_corrected.",
            "NAME",
            panel=None,
            default="the best, judged by the checked rows",
        ),
    ] = None
    model: Annotated[
        str | None,
        Help(
            "A network of your own, made by factory(shape=..., outputs=...); it is kept whatever else "
            "could be tried.",
            "PACKAGE.MODULE:FACTORY",
            panel=None,
        ),
    ] = None
    trees: Annotated[
        str,
        Help(
            "Whose gradient boosting is tried on tables: scikit-learn, or lightgbm "
            "(pip install 'reweigh[trees]').",
            "LIBRARY",
            panel=None,
        ),
    ] = "scikit-learn"
    steps: Annotated[int | None, Help(None, "N", TRAINING, least=1)] = None
    batch: Annotated[int | None, Help(None, "N", TRAINING, least=2)] = None
    learning_rate: Annotated[float | None, Help(None, "X", TRAINING)] = None
    hidden: Annotated[
        int | None, Help("Width of the two hidden layers.", "N", TRAINING, least=1)
    ] = None
    seed: Annotated[int, Help(None, "N", TRAINING)] = 0
    threads: Annotated[int | None, Help("Of the CPU.", "N", TRAINING, least=1)] = None

    def __post_init__(self) -> None:
        self._make_paths()
        if self.clean is None and self.clean_where is None and not self.also_clean:
            raise SettingError(
                "nothing says which rows are checked; give --clean FILE, or --clean-where "
                '"COLUMN == VALUE", or --also-clean confirmed.csv'
            )
        if self.clean is not None and self.clean_where is not None:
            raise SettingError(
                "--clean and --clean-where both say which rows are checked; give one of them (rows "
                "from elsewhere: --clean; rows of the data: --clean-where or --also-clean)"
            )
        rate = self.learning_rate
        if rate is not None and not (math.isfinite(rate) and rate > 0):
            raise SettingError(f"--learning-rate is {rate:g}; expected a number above 0")
        if self.fine_tune and (self.encoder is None or self.text is not None):
            raise SettingError("--fine-tune is for an image model; give its folder: --encoder DIR")
        if self.encoder is not None and self.model is not None and self.text is None:
            raise SettingError("--encoder and --model both give the network; expected one of them")
        if self.holdout is not None and not 0 <= self.holdout < 1:
            raise SettingError(f"--holdout is {self.holdout:g}; expected a share from 0 to under 1")
        if self.quick and self.method is not None:
            raise SettingError("--quick tries several and --method one; expected one of the two")
        if self.model is not None and self.hidden is not None:
            raise SettingError("--hidden is for the usual network, and --model gives another one")
        for name, (_, shown) in shown_options().items():
            value = getattr(self, name)
            if shown.least is not None and value is not None and value < shown.least:
                raise SettingError(f"{flag(name)} is {value}; expected {shown.least} or more")

    def _make_paths(self) -> None:
        """Names of files may be strings."""
        for name, (kind, _) in shown_options().items():
            value = getattr(self, name)
            if kind in (Path, Path | None) and isinstance(value, str):
                object.__setattr__(self, name, Path(value))
            elif kind == tuple[Path, ...]:
                object.__setattr__(self, name, tuple(map(Path, value)))

    @property
    def held_out(self) -> float:
        """Share of the clean rows kept for judging."""
        if self.holdout is not None:
            return self.holdout
        return 0.3 if self.compare and self.test is None else 0.0

    def json(self) -> str:
        """As text; paths made absolute."""
        return json.dumps(as_json(self), indent=2) + "\n"

    @classmethod
    def of(cls, text: str, **changes: Any) -> Options:
        """Back from text, with some options changed."""
        try:
            return replace(of_json(cls, json.loads(text)), **changes)
        except (ValueError, TypeError) as error:
            if isinstance(error, SettingError):
                raise
            raise DataError(f"options.json cannot be read ({error}); train again") from error


def flag(name: str) -> str:
    """The option on the command line."""
    return f"--{name.replace('_', '-')}"


@cache
def shown_options() -> dict[str, tuple[Any, Help]]:
    """By name: the type of an option, and what is shown of it."""
    hints = get_type_hints(Options, include_extras=True)
    return {name: (get_args(hint)[0], get_args(hint)[1]) for name, hint in hints.items()}
