"""The kept model for other programs: its weights for plain PyTorch, or all of it as ONNX.

    reweigh export RUN --out model.safetensors    the state dict of a network, and a recipe to load it
    reweigh export RUN --out model.onnx           from encoded rows to probabilities, tried on rows

An ONNX model is run once, beside the module it was made of, before its file gets its name.
"""

from __future__ import annotations

import io
import logging
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ..errors import UnsupportedModelError
from ..files import write_whole
from ..optional import optional
from ..runs import ModelDescription, Network, RunFile, open_run, read
from ..text import first_line
from .image_backbone import BACKBONE, FINE_TUNED
from .output_files import check_output
from .own_model import OWN
from .predict import Predictor

ENDINGS = (".onnx", ".safetensors")
CLOSE = 1e-5


def export_model(run: Path, out: Path, *, force: bool = False) -> str:
    """Write the model of a finished run; what to tell the user."""
    opened = open_run(run, needs=RunFile.SUMMARY)
    check_output(out, opened, endings=ENDINGS, force=force)
    predictor = Predictor(opened)
    described = read(run / RunFile.NETWORK, ModelDescription)
    if out.suffix.lower() == ".safetensors":
        return _write_state(predictor, described, out)
    return _write_onnx(predictor, described.network, out)


def _write_state(predictor: Predictor, described: ModelDescription, out: Path) -> str:
    from safetensors.torch import save

    network = predictor.network()
    if network is None:
        raise UnsupportedModelError(
            "the kept model is no single network, but "
            f"{', '.join(predictor.part_names)}; give --out model.onnx, or train with --method "
            f"reweigh (the reweighed network of this run is in its {RunFile.MODEL})"
        )
    state = {name: t.detach().contiguous().clone() for name, t in network.state_dict().items()}
    write_whole(out, save(state))
    return (
        f"the network is in {out}; load it with\n\n{recipe(described.network, out)}\n\n"
        + inputs_of(described)
    )


def recipe(network: Network, out: Path) -> str:
    """Five lines of plain PyTorch."""
    if network.kind == OWN:
        module, _, factory = network.factory.partition(":")
        made = f"{factory}(shape={tuple(network.shape)}, outputs={network.outputs})"
        source = f"from {module} import {factory}"
    elif network.kind in (BACKBONE, FINE_TUNED):
        made = f"new_backbone({network.factory!r}, {network.outputs})"
        source = "from reweigh.app.image_backbone import new_backbone"
    elif network.kind == "image-cnn":
        made = f"ImageCNN(ImageCNNOptions(channels={network.shape[0]}, classes={network.outputs}))"
        source = "from reweigh.models import ImageCNN, ImageCNNOptions"
    else:
        size, hidden = math.prod(network.shape), tuple(network.hidden)
        made = f"MLP(MLPOptions(inputs={size}, hidden={hidden}, classes={network.outputs}))"
        source = "from reweigh.models import MLP, MLPOptions"
        if network.regression:
            made = f"torch.nn.Sequential({made}, torch.nn.Flatten(0))"
            source = f"import torch; {source}"
    return "\n".join([
        "from safetensors.torch import load_file", source, f"model = {made}",
        f"model.load_state_dict(load_file({str(out)!r}))", "model.eval()",
    ])  # fmt: skip


def inputs_of(described: ModelDescription) -> str:
    """What the inputs and outputs of the network are, in words."""
    shape = ", ".join(map(str, ("n", *described.network.shape)))
    said = f"inputs: float32 [{shape}], the rows of reweigh.load(RUN).encoded(...)"
    if described.peak != 1:
        said += f", as (byte / {described.peak} - mean) / std with mean {described.mean}, std {described.std}"
    if described.network.regression:
        return (
            f"{said}; outputs: [n], as prediction = output * {described.scale} + {described.centre}"
        )
    return f"{said}; outputs: logits [n, {described.network.outputs}]"


def _write_onnx(predictor: Predictor, network: Network, out: Path) -> str:
    for name in ("onnx", "onnxscript"):
        optional(name, package=name, extra="onnx", needed_for="ONNX export")
    module = predictor.module().eval()
    dtype = torch.uint8 if predictor.takes_images else torch.float32
    draw = torch.Generator().manual_seed(0)
    noise = torch.rand(3, *network.shape, generator=draw)
    rows = (255 * noise).to(dtype) if predictor.takes_images else 2 * noise - 1
    result = "probabilities" if predictor.classes else "prediction"
    packed = io.BytesIO()
    with _quiet():
        try:
            program: Any = torch.onnx.export(
                module, (rows,), input_names=["inputs"], output_names=[result], dynamo=True,
                dynamic_shapes=({0: torch.export.Dim("n", min=1)},), verbose=False,
            )  # fmt: skip
        except Exception as error:  # its parts raise errors of every kind
            raise UnsupportedModelError(
                f"PyTorch cannot write this model as ONNX ({first_line(error)[:200]}); a network can be "
                "exported as --out model.safetensors"
            ) from error
    model = program.model_proto
    for key, value in _notes(predictor).items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, value
    packed.write(model.SerializeToString())
    tried = _tried(packed.getvalue(), module, rows)
    write_whole(out, packed.getvalue())
    kind = "uint8" if predictor.takes_images else "float32"
    shape = ", ".join(map(str, ("n", *network.shape)))
    return (
        f"the model is in {out}: inputs {kind} [{shape}], the rows of reweigh.load(RUN).encoded(...); "
        f"outputs {result}{tried}"
    )


def _notes(predictor: Predictor) -> dict[str, str]:
    return {f"class_{k}": name for k, name in enumerate(predictor.classes)}


def _tried(model: bytes, module: nn.Module, rows: torch.Tensor) -> str:
    """Run it beside the module it was made of, if onnxruntime is here; refuse one that differs."""
    try:
        import onnxruntime
    except ImportError:
        return "; not tried, since onnxruntime is not installed"
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"inputs": rows.numpy()})
    with torch.no_grad():
        expected = module(rows).numpy()
    if not np.allclose(found, expected, rtol=CLOSE, atol=CLOSE):
        raise UnsupportedModelError(
            f"onnxruntime's results differ by {np.abs(found - expected).max():.1g} from PyTorch's; "
            "nothing was written: export the network as --out model.safetensors"
        )
    return f"; tried with onnxruntime, equal to {CLOSE:g}"


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the notices of the exporter, which are about other operators than ours."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
