"""The paper's networks, and small ones for small data.

    build("resnet32", classes=100)              by name, from the table below
    build("wrn28-10", as_published=True)        as in the paper's public code, not as in its text
    ResNet(ResNetOptions(depth=32, ...))        or with options of your own

Read in this order: `resnet` and `wide_resnet` (with `residual_parts`), `lenet`, `fast_cnn`,
`image_cnn`, `small_networks`; `initialisation` is how their weights start.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from torch import nn

from ..errors import SettingError, unknown
from . import resnet as _resnet
from . import wide_resnet as _wide
from .fast_cnn import FastCNN, FastCNNOptions
from .image_cnn import ImageCNN, ImageCNNOptions
from .lenet import LeNet, LeNetOptions
from .residual_parts import Norm
from .resnet import ResNet, ResNetOptions
from .small_networks import MLP, DigitsCNN, MLPOptions
from .wide_resnet import WideResNet, WideResNetOptions

__all__ = [
    "MLP", "MODELS", "DigitsCNN", "FastCNN", "FastCNNOptions", "ImageCNN", "ImageCNNOptions", "LeNet", "LeNetOptions",
    "MLPOptions", "Norm", "ResNet", "ResNetOptions", "WideResNet", "WideResNetOptions", "build",
]  # fmt: skip


def _residual(kind: Any, published: Any, **options: int) -> Callable[[int, bool], nn.Module]:
    """Makes networks of a kind; `published` are the options of the paper's public code."""

    def make(classes: int, as_published: bool) -> nn.Module:
        base = published if as_published else type(published)()
        network: nn.Module = kind(replace(base, classes=classes, **options))
        return network

    return make


MODELS: Mapping[str, Callable[[int, bool], nn.Module]] = MappingProxyType(
    {
        "lenet": lambda classes, _: LeNet(LeNetOptions(outputs=1 if classes == 2 else classes)),
        "resnet8-half": _residual(ResNet, _resnet.AS_PUBLISHED, depth=8, stem_stride=2),
        "resnet20": _residual(ResNet, _resnet.AS_PUBLISHED, depth=20),
        "resnet32": _residual(ResNet, _resnet.AS_PUBLISHED, depth=32),
        "resnet56": _residual(ResNet, _resnet.AS_PUBLISHED, depth=56),
        "wrn16-4": _residual(WideResNet, _wide.AS_PUBLISHED, depth=16, width=4),
        "wrn28-10": _residual(WideResNet, _wide.AS_PUBLISHED, depth=28, width=10),
        "mlp": lambda classes, _: MLP(MLPOptions(classes=classes)),
        "fast-cnn": lambda classes, _: FastCNN(FastCNNOptions(classes=classes)),
        "image-cnn": lambda classes, _: ImageCNN(ImageCNNOptions(classes=classes)),
        "digits-cnn": lambda classes, _: DigitsCNN(classes),
    }
)
"""Every model by its name: `MODELS[name](classes, as_published)` makes it; see `build`."""


def build(name: str, *, classes: int = 10, as_published: bool = False) -> nn.Module:
    """A new model called `name`; `lenet` for two classes has one output, for a binary loss."""
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    if classes < 2:
        raise SettingError(f"{name} was asked for {classes} classes; expected two or more")
    return MODELS[name](classes, as_published)
