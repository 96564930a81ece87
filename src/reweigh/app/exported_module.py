"""The kept model as one `nn.Module`, from encoded rows to what `predict_proba` or `predict` says.

    inputs     float32 [n, width] (tables, texts), or uint8 [n, channels, size, size] (images)
    outputs    probabilities [n, classes] float32; in a regression the numbers [n]

Scaling of images, softmax, and the weights of a blend are inside. A part that takes something else than
the encoded rows (n-grams of texts, histograms of edges) cannot be written so, and is refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..candidates import LEAST, Member, RidgeModel, SoftmaxModel, TreesModel
from ..data import BatchOptions
from ..errors import UnsupportedModelError
from .winner_file import KeptPart

FEATURES = {"ngrams": "n-grams of the texts themselves", "edges": "histograms of edges"}


class ScaledNetwork(nn.Module):
    """A network behind the scaling of its inputs."""

    def __init__(self, network: nn.Module, options: BatchOptions) -> None:
        super().__init__()
        self.network, self.options = network, options

    def forward(self, inputs: Tensor) -> Tensor:
        """What the network gives."""
        outputs: Tensor = self.network(self.options.as_numbers(inputs))
        return outputs


class ClassNetwork(ScaledNetwork):
    """Its probabilities."""

    def forward(self, inputs: Tensor) -> Tensor:
        """[n, classes]."""
        return super().forward(inputs).float().softmax(1)


class NumberNetwork(ScaledNetwork):
    """A regression, in scaled units."""

    def forward(self, inputs: Tensor) -> Tensor:
        """[n, 1]."""
        return super().forward(inputs).float().unsqueeze(1)


class InUnits(nn.Module):
    """A regression, in the units of the target."""

    def __init__(self, model: nn.Module, *, centre: float, scale: float) -> None:
        super().__init__()
        self.model, self.centre, self.scale = model, centre, scale

    def forward(self, inputs: Tensor) -> Tensor:
        """[n]."""
        numbers: Tensor = self.model(inputs)
        return numbers.squeeze(1) * self.scale + self.centre


class LinearModule(nn.Module):
    """A linear regression."""

    coefficients: Tensor
    intercepts: Tensor

    def __init__(self, model: SoftmaxModel | RidgeModel) -> None:
        super().__init__()
        self.register_buffer("coefficients", torch.from_numpy(model.coefficients).float())
        self.register_buffer("intercepts", torch.from_numpy(model.intercepts).float())

    def forward(self, inputs: Tensor) -> Tensor:
        """[n, 1]."""
        return inputs @ self.coefficients + self.intercepts


class SoftmaxModule(LinearModule):
    """A logistic regression."""

    def forward(self, inputs: Tensor) -> Tensor:
        """[n, classes]."""
        return super().forward(inputs).softmax(1)


class TreesModule(nn.Module):
    """A forest or boosted trees: every row takes `depth` steps in all trees at once."""

    roots: Tensor
    feature: Tensor
    threshold: Tensor
    left: Tensor
    right: Tensor
    values: Tensor
    base: Tensor

    def __init__(self, model: TreesModel) -> None:
        super().__init__()
        for name in ("roots", "feature", "threshold", "left", "right", "values", "base"):
            self.register_buffer(name, torch.from_numpy(getattr(model, name)))
        self.depth, self.boosted = model.depth, model.boosted

    def forward(self, inputs: Tensor) -> Tensor:
        """[n, classes], or numbers [n, 1]. Thresholds keep their 64 bits: a row may lie right on one."""
        rows = inputs.double()
        place = self.roots.expand(rows.shape[0], -1)
        for _ in range(self.depth):
            low = rows.gather(1, self.feature[place]) <= self.threshold[place]
            place = torch.where(low, self.left[place], self.right[place])
        total = self.values[place].sum(1)
        if len(self.base) == 1:
            return (total + self.base if self.boosted else total / len(self.roots)).float()
        if self.boosted:
            return (total + self.base).softmax(1).float()
        positive = (total / len(self.roots)).clamp(min=0) + 1e-9
        return (positive / positive.sum(1, keepdim=True)).float()


class BlendModule(nn.Module):
    """The mean of several, by their weights, each sharpened: see candidates/blend.py."""

    def __init__(self, parts: Sequence[nn.Module], members: Sequence[Member]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        total = math.fsum(member.weight for member in members)
        self.weights = [member.weight / total for member in members]
        self.sharpness = [member.sharpness for member in members]
        self.shift = math.fsum(w * m.shift for w, m in zip(self.weights, members, strict=True))

    def forward(self, inputs: Tensor) -> Tensor:
        """[n, classes]."""
        mixed: Tensor | None = None
        for part, weight, sharpness in zip(self.parts, self.weights, self.sharpness, strict=True):
            p: Tensor = part(inputs)
            if sharpness != 1:
                powers = p.clamp(min=LEAST) ** sharpness
                p = powers / powers.sum(1, keepdim=True)
            mixed = weight * p if mixed is None else mixed + weight * p
        assert mixed is not None, "a winner has a part"
        return mixed + self.shift if self.shift else mixed


def exported_parts(
    parts: Sequence[KeptPart], options: BatchOptions, *, numbers: bool = False
) -> nn.Module:
    """The winner of a run as a module; `numbers`: of a regression, in scaled units."""
    modules = [_module(part, options, numbers=numbers) for part in parts]
    members = [part.member for part in parts]
    alone = len(parts) == 1 and members[0].sharpness == 1 and not members[0].shift
    return modules[0] if alone else BlendModule(modules, members)


def _module(part: KeptPart, options: BatchOptions, *, numbers: bool) -> nn.Module:
    if isinstance(part.model, nn.Module):
        return (NumberNetwork if numbers else ClassNetwork)(part.model, options)
    if part.features in FEATURES:
        raise UnsupportedModelError(
            f"the kept model has a part, {part.member.name!r}, that learns from "
            f"{FEATURES[part.features]}, which are no inputs of ONNX; exported can be networks and, for "
            "tables, regressions and trees: train with --method reweigh, or predict with `reweigh predict`"
        )
    if isinstance(part.model, SoftmaxModel):
        return SoftmaxModule(part.model)
    if isinstance(part.model, RidgeModel):
        return LinearModule(part.model)
    assert isinstance(part.model, TreesModel), "there are four kinds"
    return TreesModule(part.model)
