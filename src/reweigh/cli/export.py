"""`reweigh export`: the model of a run, for other programs."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder of `reweigh train`.")],
    out: Annotated[Path, typer.Option(metavar="F", help="Where to: .onnx or .safetensors.")],
    force: Annotated[
        bool, typer.Option("--force", help="Replace the file F, if it is none of the run's.")
    ] = False,
) -> None:
    """Write the model of a run as ONNX, or a network's weights for plain PyTorch.

    reweigh export reweigh-run --out model.onnx

    takes encoded rows (`reweigh.load(RUN).encoded(rows)`) and gives the probabilities that
    `predict` gives; networks, and for tables regressions, trees and blends of them. Needs the extra `onnx`.

    reweigh export reweigh-run --out model.safetensors

    is the state dict of a network (--model, or --method reweigh); five lines that load it are printed.
    """
    from ..app import export_model

    typer.echo(export_model(run, out, force=force))
