"""What `reweigh train` was asked to do; everything has a default but the data.

The options of a run are kept in its folder (`options.json`): the same command goes on with it, and
`--resume-with` begins a new run with the same options and more checked rows.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ..errors import DataError, SettingError

PATHS = ("data", "clean", "test", "encoder")
LISTS = ("also_clean", "leave_out")


@dataclass(frozen=True)
class Options:
    """The data, and how to train on it.

    data, clean, test    files or folders; clean may be rows of `data` instead, see `clean_where`
    target               the column of the labels (tables)
    text, encoder        the column of the texts; a local transformers encoder for them
    clean_where          "checked == 1": rows of `data` whose labels are trusted
    also_clean           CSVs `index,label` of rows of `data` that were looked at and confirmed; of a
                         row in several, the last counts
    leave_out            CSVs `index` of rows of `data` not to be trained on
    task                 "auto", "classes" or "regression"
    ignore               columns to leave out
    only_clean_classes   leave out rows of classes that no clean row has
    compare              train plain and random weighting, too
    holdout              share of the clean rows kept for judging; None: 0.3 with `compare` and no
                         `test`, else 0
    steps, batch, learning_rate, hidden     None: chosen by the size of the data
    """

    data: Path
    clean: Path | None = None
    target: str | None = None
    test: Path | None = None
    text: str | None = None
    encoder: Path | None = None
    clean_where: str | None = None
    also_clean: tuple[Path, ...] = ()
    leave_out: tuple[Path, ...] = ()
    task: str = "auto"
    ignore: tuple[str, ...] = ()
    encoding: str = "utf-8"
    image_size: int | None = None
    only_clean_classes: bool = False
    compare: bool = False
    holdout: float | None = None
    steps: int | None = None
    batch: int | None = None
    learning_rate: float | None = None
    hidden: int | None = None
    seed: int = 0
    threads: int | None = None

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
        least = {"steps": 1, "batch": 2, "hidden": 1, "image_size": 8, "threads": 1}
        for name, smallest in least.items():
            value = getattr(self, name)
            if value is not None and value < smallest:
                raise SettingError(
                    f"--{name.replace('_', '-')} is {value}; expected {smallest} or more"
                )

    @property
    def held_out(self) -> float:
        """Share of the clean rows kept for judging."""
        if self.holdout is not None:
            return self.holdout
        return 0.3 if self.compare and self.test is None else 0.0

    def json(self) -> str:
        """As text; paths made absolute."""
        values = asdict(self)
        for name in PATHS:
            if values[name] is not None:
                values[name] = str(values[name].resolve())
        for name in LISTS:
            values[name] = [str(path.resolve()) for path in values[name]]
        return json.dumps(values, indent=2) + "\n"

    @classmethod
    def of(cls, text: str, **changes: Any) -> Options:
        """Back from text, with some options changed."""
        try:
            values = json.loads(text)
            unknown = set(values) - {field.name for field in fields(cls)}
            if unknown:
                raise ValueError(f"unknown option {sorted(unknown)[0]}")
            for name in PATHS:
                values[name] = None if values[name] is None else Path(values[name])
            for name in LISTS:
                values[name] = tuple(map(Path, values[name]))
            return cls(**{**values, "ignore": tuple(values["ignore"]), **changes})
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            if isinstance(error, SettingError):
                raise
            raise DataError(f"options.json cannot be read ({error}); train again") from error
