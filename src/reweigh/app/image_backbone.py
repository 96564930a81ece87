"""A local transformers image model as the body of the network: `--encoder DIR` for images.

    features   the mean of the model's last hidden states over its patches or positions. Not its pooled
               output: many saved models have none, and would get a random one
    outputs    a linear layer on them, [n, outputs]

The body is frozen, and only the layer on it learns; with --fine-tune all of it does. Size, mean and spread
of the pixels are those the model was made with. Nothing is downloaded, no code of the folder runs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..data import Scaling
from ..errors import DataError
from ..optional import optional
from ..runs import Network
from ..text import first_line

BACKBONE = "backbone"
FINE_TUNED = "fine-tuned-backbone"


@dataclass(frozen=True)
class BackbonePixels:
    """What a model takes: colour images of `size` pixels a side, scaled."""

    size: int
    scaling: Scaling


class BackboneNetwork(nn.Module):
    """The body and a linear layer; a frozen body stays in eval mode."""

    def __init__(self, body: nn.Module, width: int, outputs: int, *, frozen: bool) -> None:
        super().__init__()
        self.frozen = frozen
        self.body = body.requires_grad_(not frozen)
        if isinstance(pooler := getattr(body, "pooler", None), nn.Module):
            pooler.requires_grad_(False)  # it has no part in the outputs
        self.head = nn.Linear(width, outputs)

    def train(self, mode: bool = True) -> BackboneNetwork:
        """As usual, but for a frozen body."""
        super().train(mode)
        if self.frozen:
            self.body.eval()
        return self

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            features = _features(self.body(pixel_values=images))
        logits: Tensor = self.head(features)
        return logits


def make_backbone(network: Network) -> nn.Module:
    """A new network; its body has the weights in the folder."""
    return new_backbone(network.factory, network.outputs, frozen=network.kind == BACKBONE)


def new_backbone(path: str, outputs: int, *, frozen: bool = True) -> BackboneNetwork:
    """The same, by the folder of the body."""
    body = _loaded(path)
    pixels = backbone_pixels(Path(path))
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        width = _features(
            body.eval()(pixel_values=torch.zeros(1, 3, pixels.size, pixels.size))
        ).shape[1]
    return BackboneNetwork(body, width, outputs, frozen=frozen)


def backbone_pixels(path: Path) -> BackbonePixels:
    """Read how a model wants its images: preprocessor_config.json, or else config.json."""
    config, wants = _json(path / "config.json"), {}
    if "architecture" in config and "model_type" not in config:
        raise DataError(
            f"{path} is a timm model ({config['architecture']}), and timm needs torchvision, which does not "
            "load beside a CPU build of PyTorch; expected an image model of transformers, or give a "
            "network of your own: --model PACKAGE.MODULE:FACTORY"
        )
    if (path / "preprocessor_config.json").is_file():
        wants = _json(path / "preprocessor_config.json")
    size: Any = wants.get("size") or config.get("image_size")
    if isinstance(size, dict):
        size = size.get("height") or size.get("shortest_edge")
    if isinstance(size, list):
        size = size[0]
    if not isinstance(size, int) or config.get("num_channels", 3) != 3:
        raise DataError(
            f"{path} does not say what images its model takes; expected image_size in config.json, and "
            "colour images: --encoder is for an image model of transformers"
        )
    mean, std = (wants.get(name) or (0.5,) * 3 for name in ("image_mean", "image_std"))
    return BackbonePixels(size, Scaling(tuple(map(float, mean)), tuple(map(float, std))))


def _features(output: Any) -> Tensor:
    last: Tensor = output.last_hidden_state
    return last.mean(1) if last.ndim == 3 else last.flatten(2).mean(2)


def _loaded(path: str) -> nn.Module:
    transformers = optional(
        "transformers", package="transformers", extra="transformers", needed_for="--encoder"
    )
    try:
        body: nn.Module = transformers.AutoModel.from_pretrained(
            path, local_files_only=True, attn_implementation="eager"
        )
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path} is no model that transformers can load ({first_line(error)[:160]})"
        ) from error
    return body


@cache
def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path} cannot be read ({first_line(error)[:160]}); expected a folder with a saved "
            "transformers image model"
        ) from None
    return content if isinstance(content, dict) else {}
