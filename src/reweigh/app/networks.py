"""Which network, how large, how long to train: defaults by the size of the data, which are printed.

tables, texts   a multi-layer perceptron, two hidden layers
images          a plain convolutional network, see models/image_cnn.py
--model         the user's own, see own_model.py
"""

import math
import os
from dataclasses import replace

import torch
from torch import nn

from ..data import BatchOptions, Examples, Scaling
from ..errors import SettingError
from ..models import MLP, ImageCNN, ImageCNNOptions, MLPOptions
from ..runs import Network
from ..training import Config, Optimizer, Outcome
from .image_backbone import BACKBONE, FINE_TUNED, backbone_pixels, make_backbone
from .options import Options
from .own_model import OWN, make_own, own_network
from .preparation import Prepared

EPOCHS = 40
FEWEST, MOST = 600, 6000
"""Steps, unless two passes over the data take more."""
EVALUATIONS = 20
PATIENCE = 5
"""Evaluations in vain before --early-stop ends a training."""
EVERY_STEP = 400
"""Up to so many clean rows are all in every step."""


def make_model(network: Network) -> nn.Module:
    """A new model of that shape."""
    if network.kind == OWN:
        return make_own(network)
    if network.kind in (BACKBONE, FINE_TUNED):
        return make_backbone(network)
    if network.kind == "image-cnn":
        return ImageCNN(ImageCNNOptions(channels=network.shape[0], classes=network.outputs))
    size = math.prod(network.shape)
    mlp = MLP(MLPOptions(inputs=size, hidden=network.hidden, classes=network.outputs))
    return nn.Sequential(mlp, nn.Flatten(0)) if network.regression else mlp


def choose_network(prepared: Prepared, options: Options) -> Network:
    """The default network for the data."""
    rows = len(prepared.task.train)
    shape = tuple(prepared.inspected.encoder.shape)
    outputs = len(prepared.classes) or 1
    if options.model is not None:
        return own_network(options.model, shape, outputs, regression=not prepared.classes)
    if prepared.inspected.kind == "images":
        if options.encoder is not None:
            kind = FINE_TUNED if options.fine_tune else BACKBONE
            return Network(kind, shape, outputs, factory=str(options.encoder.resolve()))
        return Network("image-cnn", shape, outputs)
    _check_size(options.hidden, math.prod(shape))
    width = options.hidden or (64 if rows < 2_000 else 128 if rows < 20_000 else 256)
    return Network("mlp", shape, outputs, (width, width), regression=not prepared.classes)


def _check_size(hidden: int | None, inputs: int) -> None:
    """Refuse a width whose parameters, gradients and momentum do not fit into half of the memory."""
    if hidden is None or not hasattr(os, "sysconf"):
        return
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    needed = 3 * 4 * hidden * (inputs + hidden)
    if needed > memory / 2:
        raise SettingError(
            f"--hidden is {hidden:,}; a network of that width takes {needed / 1e9:,.0f} GB, and this "
            f"machine has {memory / 1e9:,.0f}; expected a few hundred"
        )


def choose_config(prepared: Prepared, options: Options) -> Config:
    """How to train it: `reweigh`, safeguarded, with the learning rate cut at four fifths."""
    rows, clean = len(prepared.task.train), len(prepared.task.clean)
    batch = options.batch or (min(100, max(10, rows // 4)) if rows < 200_000 else 1000)
    batch = min(batch, rows)
    once = -(-rows // batch)
    steps = options.steps or max(FEWEST, min(EPOCHS * once, MOST), 2 * once)
    return Config(
        method="reweigh",
        steps=steps,
        seed=options.seed,
        batch=BatchOptions(
            size=batch,
            clean_size=clean_batch(clean, batch),
            scaling=_scaling(prepared, options),
            peak=prepared.task.peak,
        ),
        optimizer=Optimizer(
            learning_rate=options.learning_rate or (0.002 if options.fine_tune else 0.02),
            momentum=0.9,
        ),
        drops=((steps * 4 // 5, 0.1),),
        clip=10.0,
        evaluate_every=max(1, steps // EVALUATIONS),
        patience=PATIENCE if options.early_stop else None,
        checkpoint_every=max(1, min(1000, steps // 5)),
        threads=options.threads,
    )


def stopped_plan(plan: Config, outcome: Outcome) -> Config:
    """The plan for as many steps as early stopping found best in `outcome`; without early stopping."""
    if plan.patience is None:
        return plan
    known = [p for p in outcome.curve if p["phase"] == "main" and p["step"] > 0]
    step = int(min(known, key=lambda p: p["hyper_loss"])["step"])
    drops = tuple(drop for drop in plan.drops if drop[0] < step)
    return replace(plan, steps=step, drops=drops, patience=None)


def clean_batch(clean: int, batch: int) -> int:
    """Clean rows in a step: all of them up to some hundreds, then a share that grows with them.

    With a part of them at a time the clean loss jumps from step to step, and the safeguard takes
    the jumps for harm.
    """
    return min(clean, max(EVERY_STEP, batch // 5, clean // 10))


def _scaling(prepared: Prepared, options: Options) -> Scaling:
    """Of up to 2,000 images spread over the train part; tables are scaled already."""
    train, peak = prepared.task.train, prepared.task.peak
    if train.inputs.dtype != torch.uint8:
        return Scaling()
    if options.encoder is not None:
        return backbone_pixels(options.encoder).scaling
    ids = train.ids[:: max(1, len(train) // 2000)]
    scaling = Scaling.of(Examples(train.inputs[ids], ids), peak)
    # A channel that never varies must not be divided by zero.
    return Scaling(scaling.mean, tuple(max(s, 1e-3) for s in scaling.std))
