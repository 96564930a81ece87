"""What `reweigh train` can be asked to do. Each option is written here, and nowhere else.

The fields are the options of the command (cli/train.py makes them from the fields), the arguments of
`Options(...)`, and the keys of `options.json` in the run folder: the same command goes on with a run,
and `--resume-with` begins a new one with the same options and more checked rows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ..errors import DataError, SettingError
from ..runs import as_json, of_json

DATA, TRAINING = "Your data", "Training (defaults fit the size of the data)"


def _shown(
    help_: str | None = None,
    *,
    metavar: str | None = None,
    panel: str | None = DATA,
    least: int | None = None,
    default: str | None = None,
) -> dict[str, Any]:
    """What the command line shows of an option, and checks.

    panel      the group it is listed in; None: the general one
    least      the smallest value that is allowed
    default    the default in words, where it is not a value
    """
    words = {"help": help_, "metavar": metavar, "panel": panel, "least": least}
    return {**words, "default": default}


@dataclass(frozen=True)
class Options:
    """The data, and how to train on it; everything has a default but the data.

    The checked rows come from `clean`, `clean_where` or `also_clean`; one of them has to be given.
    Of a row that is in several `also_clean` files, the last counts. `steps`, `batch`, `learning_rate`
    and `hidden` are chosen by the size of the data where they are None.
    """

    data: Path = field(
        metadata=_shown(
            "Rows with doubtful labels: CSV, Parquet, or a folder with one folder of images a class.",
            metavar="D",
        )
    )
    clean: Path | None = field(
        default=None,
        metadata=_shown(
            "A few rows with checked labels, five or more a class; same form.", metavar="C"
        ),
    )
    target: str | None = field(
        default=None, metadata=_shown("The column of the labels (tables).", metavar="COL")
    )
    test: Path | None = field(
        default=None, metadata=_shown("More checked rows, kept for judging only.", metavar="T")
    )
    text: str | None = field(
        default=None,
        metadata=_shown("Learn from the texts in this column, in any language.", metavar="COL"),
    )
    encoder: Path | None = field(
        default=None, metadata=_shown("A local transformers encoder for the texts.", metavar="DIR")
    )
    clean_where: str | None = field(
        default=None,
        metadata=_shown(
            "Instead of --clean: the checked rows are those of --data that meet this "
            "(==, !=, <, <=, >, >=).",
            metavar="'COL == VALUE'",
        ),
    )
    also_clean: tuple[Path, ...] = field(
        default=(),
        metadata=_shown(
            "Rows of --data that were looked at, as `index,label`: they count as clean.",
            metavar="FILE",
        ),
    )
    leave_out: tuple[Path, ...] = field(
        default=(),
        metadata=_shown("Rows of --data not to train on, as `index`.", metavar="FILE"),
    )
    task: str = field(default="auto", metadata=_shown("auto, classes or regression."))
    ignore: tuple[str, ...] = field(
        default=(), metadata=_shown("Leave this column out; may be repeated.", metavar="COL")
    )
    encoding: str = field(default="utf-8", metadata=_shown("Of CSV files."))
    image_size: int | None = field(
        default=None, metadata=_shown("Images are resized to this.", metavar="PIXELS", least=8)
    )
    only_clean_classes: bool = field(
        default=False, metadata=_shown("Leave out rows of classes that have no clean row.")
    )
    compare: bool = field(
        default=False,
        metadata=_shown(
            "Train plainly and with random weights, too; report the gain, and rank suspects with "
            "the plain model's doubts as well.",
            panel=None,
        ),
    )
    holdout: float | None = field(
        default=None,
        metadata=_shown(
            "Clean rows kept for judging.",
            metavar="SHARE",
            panel=None,
            default="0.3 with --compare and no --test",
        ),
    )
    steps: int | None = field(default=None, metadata=_shown(metavar="N", panel=TRAINING, least=1))
    batch: int | None = field(default=None, metadata=_shown(metavar="N", panel=TRAINING, least=2))
    learning_rate: float | None = field(default=None, metadata=_shown(metavar="X", panel=TRAINING))
    hidden: int | None = field(
        default=None,
        metadata=_shown("Width of the two hidden layers.", metavar="N", panel=TRAINING, least=1),
    )
    seed: int = field(default=0, metadata=_shown(metavar="N", panel=TRAINING))
    threads: int | None = field(
        default=None, metadata=_shown("Of the CPU.", metavar="N", panel=TRAINING, least=1)
    )

    def __post_init__(self) -> None:
        if self.clean is None and self.clean_where is None and not self.also_clean:
            raise SettingError(
                "nothing says which rows are checked; give --clean FILE, or --clean-where "
                '"COLUMN == VALUE", or --also-clean confirmed.csv'
            )
        if self.encoder is not None and self.text is None:
            raise SettingError("--encoder is for texts; give their column too: --text COLUMN")
        if self.holdout is not None and not 0 <= self.holdout < 1:
            raise SettingError(f"--holdout is {self.holdout:g}; expected a share from 0 to under 1")
        for known in fields(self):
            value, least = getattr(self, known.name), known.metadata["least"]
            if least is not None and value is not None and value < least:
                raise SettingError(f"{flag(known.name)} is {value}; expected {least} or more")

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
