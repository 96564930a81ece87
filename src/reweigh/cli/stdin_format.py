"""The option `--format`, which says what comes through standard input."""

from typing import Annotated, TypeAlias

import typer

from ..errors import SettingError

StdinFormat: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="F",
        help="Of standard input: csv, tsv, jsonl, parquet, xlsx or zip.",
        show_default="told from the first bytes",
    ),
]


def check_format(form: str | None, *, piped: bool) -> None:
    """Refuse a format where nothing comes through standard input."""
    if form is not None and not piped:
        raise SettingError("--format is for standard input; give --data - with it")
