"""Random models as data: what is drawn, how it is drawn, and the model, loss and batches made of it.

A `Spec` is a value whose printed form makes it again, so a failure is one line to keep, and can be made
smaller by leaving parts out.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from .layers import AROUND, BLOCKS, FORMS, RANKS, VOCABULARY, Pick
from .losses import CRITERIA, Criterion

SHAPES = {
    "tokens": (5,),
    "vector": (6,),
    "sequence": (4, 6),
    "image": (4, 5, 6),
    "volume": (2, 3, 4, 3),
}
BATCHES = ("tuple", "list", "dict", "nested", "popped", "listed")
MOST_FEATURES = 400  # in front of the last layer
HOOKS = (
    "forward",
    "forward_pre",
    "scaling",
    "backward",
    "backward_pre",
    "parameter",
    "accumulated",
)


class _Short:
    """A printed form that leaves out what is as usual."""

    def __repr__(self) -> str:
        shown = [
            f"{f.name}={getattr(self, f.name)!r}"
            for f in fields(self)  # type: ignore[arg-type]
            if getattr(self, f.name) != f.default
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclass(frozen=True, repr=False)
class Layer(_Short):
    """kind: of BLOCKS, or of AROUND with the layers inside. numbers: choose its options."""

    kind: str
    numbers: tuple[int, ...] = ()
    inside: tuple[Layer, ...] = ()


@dataclass(frozen=True, repr=False)
class Step(_Short):
    """One step of training. same: the clean batch is the train batch, the very tensors. frozen: the
    number of a parameter that is not trained in this step."""

    n: int = 4
    m: int = 3
    training: bool = True
    same: bool = False
    frozen: int | None = None
    seed: int = 0


@dataclass(frozen=True, repr=False)
class Spec(_Short):
    """A model, a loss, batches, and how they are run.

    batch:    what batches are made of. strided: whether their tensors are contiguous.
    autocast: bfloat16 around the loss. hooks: a kind each, on the module of that number.
    """

    form: str = "vector"
    layers: tuple[Layer, ...] = ()
    loss: str = "cross_entropy"
    batch: str = "tuple"
    strided: bool = False
    dtype: str = "float64"
    autocast: bool = False
    hooks: tuple[tuple[str, int], ...] = ()
    chunk: int | None = None
    one_pass: bool | None = None
    safeguard: str | None = None
    seed: int = 0
    steps: tuple[Step, ...] = (Step(),)

    @property
    def criterion(self) -> Criterion:
        return CRITERIA[self.loss]

    def kinds(self) -> Iterator[str]:
        """Every layer's kind, those inside of others too."""
        waiting = list(self.layers)
        while waiting:
            layer = waiting.pop()
            yield layer.kind
            waiting.extend(layer.inside)

    def couples(self) -> bool:
        """Whether examples of a batch may touch each other."""
        own = any(kind in BLOCKS and BLOCKS[kind].couples for kind in self.kinds())
        return own or self.criterion.couples

    def opaque(self) -> bool:
        """Whether a difference quotient may differ from the gradient."""
        own = any(kind in BLOCKS and BLOCKS[kind].opaque for kind in self.kinds())
        return own or self.criterion.opaque or "without_gradient" in self.kinds()

    def precision(self) -> str:
        """The coarsest type that takes part."""
        if self.dtype == "float32" and (self.autocast or "in_bfloat16" in self.kinds()):
            return "bfloat16"
        if "in_single_precision" in self.kinds():
            return "float32"
        return self.dtype


# Drawing.


def given_form(layer: Layer, form: str) -> str:
    """The form of a layer's result."""
    if layer.kind in BLOCKS:
        return BLOCKS[layer.kind].gives or form
    if layer.kind == "residual":
        return form
    if layer.kind == "branches":
        return "vector"
    for inner in layer.inside:
        form = given_form(inner, form)
    return form


FITTING = {form: [k for k, b in BLOCKS.items() if form in b.takes] for form in FORMS}
WITH_PARAMETERS = ["linear", "convolution", "embedding", "recurrent", "layer_norm"]
NUMBERS = st.lists(st.integers(0, 6), max_size=7).map(tuple)


@st.composite
def chains(draw: Any, form: str, most: int, depth: int) -> tuple[Layer, ...]:
    """Layers that fit one after the other."""
    found: list[Layer] = []
    for _ in range(draw(st.integers(0 if depth else 1, most))):
        around = [] if depth > 1 else [k for k in AROUND if form != "tokens"] or [
            "frozen", "checkpointed", "in_eval",
        ]  # fmt: skip
        if around and draw(st.integers(0, 4)) == 4:
            kind = draw(st.sampled_from(around))
            layer = Layer(kind, (), draw(chains(form, 2, depth + 1)))
        else:
            common = [k for k in WITH_PARAMETERS if k in FITTING[form]]
            often = draw(st.integers(0, 2)) == 0 and common
            layer = Layer(draw(st.sampled_from(common if often else FITTING[form])), draw(NUMBERS))
        found.append(layer)
        form = given_form(layer, form)
    return tuple(found)


@st.composite
def steps(draw: Any) -> tuple[Step, ...]:
    first = Step(
        draw(st.integers(1, 6)),
        draw(st.integers(1, 5)),
        draw(st.booleans()),
        draw(st.integers(0, 5)) == 5,
    )
    found = [first]
    # Back-ends look at what they remember at the first, second and fourth use: more steps than that.
    for i in range(draw(st.sampled_from([0, 0, 1, 2, 2, 5]))):
        changed = draw(st.integers(0, 6))
        found.append(
            replace(
                found[-1],
                seed=i + 1,
                n=draw(st.integers(1, 6)) if changed == 1 else found[-1].n,
                m=draw(st.integers(1, 5)) if changed == 2 else found[-1].m,
                training=not found[-1].training if changed == 3 else found[-1].training,
                frozen=draw(st.integers(0, 5)) if changed == 4 else None,
            )
        )
    return tuple(found)


@st.composite
def specs(draw: Any) -> Spec:
    """Everything there is, the usual more often."""
    if draw(st.integers(0, 5)) == 5:
        return draw(wide_networks())
    form = draw(st.sampled_from(FORMS))
    layers = draw(chains(form, 5, 0))
    loss = draw(st.sampled_from(sorted(CRITERIA, key=list(CRITERIA).index)))
    dtype = draw(st.sampled_from(["float64"] * 4 + ["float32"]))
    spec = Spec(
        form=form,
        layers=layers,
        loss=loss,
        batch=draw(st.sampled_from(BATCHES)),
        strided=draw(st.integers(0, 4)) == 4,
        dtype=dtype,
        autocast=dtype == "float32" and draw(st.booleans()),
        hooks=tuple(
            draw(st.lists(st.tuples(st.sampled_from(HOOKS), st.integers(0, 5)), max_size=2))
            if draw(st.integers(0, 3)) == 3 else ()
        ),
        chunk=draw(st.sampled_from([None, None, None, 2, 3])),
        one_pass=draw(st.sampled_from([None, None, True, False])),
        safeguard=draw(st.sampled_from([None, None, "auto"])),
        seed=draw(st.integers(0, 3)),
        steps=draw(steps()),
    )  # fmt: skip
    return settled(spec)


# Networks that one pass for both batches is for: wide layers, few clean rows, nothing of the user's own.
PLAIN = (
    "relu",
    "relu_",
    "tanh",
    "gelu",
    "layer_norm",
    "group_norm",
    "rms_norm",
    "softplus",
    "leaky_relu_",
    "prelu",
)
STOCK = [name for name, criterion in CRITERIA.items() if hasattr(criterion.make(), "judge")]


@st.composite
def wide_networks(draw: Any) -> Spec:
    """Linear layers and what usually stands between them, under a stock loss."""
    form = draw(st.sampled_from(["vector", "vector", "image", "tokens"]))
    layers = {
        "vector": (),
        "image": (Layer("convolution", draw(NUMBERS)), Layer("flatten")),
        "tokens": (Layer("embedding", (draw(st.integers(0, 1)),)), Layer("flatten")),
    }[form]
    for _ in range(draw(st.integers(1, 3))):
        between = (
            [Layer(draw(st.sampled_from(PLAIN)), draw(NUMBERS))] if draw(st.booleans()) else []
        )
        layers = (*layers, Layer("linear", (3, draw(st.integers(0, 1)))), *between)
    spec = Spec(
        form=form,
        layers=layers,
        loss=draw(st.sampled_from(STOCK)),
        batch=draw(st.sampled_from(["tuple", "list"])),
        dtype=draw(st.sampled_from(["float64", "float64", "float64", "float32"])),
        one_pass=draw(st.sampled_from([None, None, True])),
        safeguard=draw(st.sampled_from([None, "auto"])),
        seed=draw(st.integers(0, 3)),
        steps=tuple(replace(step, m=1 + step.m % 2) for step in draw(steps())),
    )
    return settled(spec)


def settled(spec: Spec) -> Spec:
    """Without contradictions: what the user may not promise, and pairs for `per_example`."""
    if spec.one_pass and spec.couples():
        spec = replace(spec, one_pass=None)
    if spec.batch not in ("tuple", "list") and hasattr(spec.criterion.make(), "judge"):
        spec = replace(spec, batch="tuple")
    return spec


# Making.


def made(layers: tuple[Layer, ...], x: Tensor) -> tuple[list[nn.Module], Tensor]:
    """The modules for inputs like `x`, and what they make of it."""
    modules: list[nn.Module] = []
    for layer in layers:
        if layer.kind in AROUND:
            body, _ = made(layer.inside, x)
            module = AROUND[layer.kind](nn.Sequential(*body))
        else:
            module = BLOCKS[layer.kind].build(tuple(x.shape[1:]), Pick(layer.numbers))
        with torch.no_grad():
            x = module.eval()(x)
        modules.append(module.train())
    return modules, x


def model_of(spec: Spec) -> nn.Module:
    """The model, with its hooks; the same for the same spec."""
    seeded(spec.seed)
    modules, x = made(spec.layers, inputs_of(spec.form, 3))
    if x.ndim != RANKS["vector"]:
        modules.append(nn.Flatten())
        x = x.flatten(1)
    if x.shape[1] > MOST_FEATURES:
        modules.append(nn.AdaptiveAvgPool1d(MOST_FEATURES))
        x = x[:, :MOST_FEATURES]
    modules.append(nn.Linear(x.shape[1], spec.criterion.outputs))
    model = nn.Sequential(*modules).to(getattr(torch, spec.dtype))
    for kind, number in spec.hooks:
        hook(model, kind, number)
    return model


def hook(model: nn.Module, kind: str, number: int) -> None:
    modules = list(model.modules())
    module = modules[number % len(modules)]
    parameters = [p for p in module.parameters() if p.requires_grad]
    if kind == "forward":
        module.register_forward_hook(lambda m, x, y: None)
    elif kind == "forward_pre":
        module.register_forward_pre_hook(lambda m, x: None)
    elif kind == "scaling":
        module.register_forward_hook(lambda m, x, y: y * 0.5 if isinstance(y, Tensor) else None)
    elif kind == "backward":
        module.register_full_backward_hook(lambda m, x, y: None)
    elif kind == "backward_pre":
        module.register_full_backward_pre_hook(lambda m, y: None)
    elif kind == "parameter" and parameters:
        parameters[0].register_hook(lambda g: 2 * g)
    elif kind == "accumulated" and parameters:
        parameters[0].register_post_accumulate_grad_hook(lambda p: None)


def inputs_of(form: str, n: int) -> Tensor:
    if form == "tokens":
        return torch.randint(VOCABULARY, (n, *SHAPES[form]))
    return torch.randn(n, *SHAPES[form])


def batches_of(spec: Spec, step: Step) -> tuple[Any, Any]:
    """The train and the clean batch of a step."""
    seeded(100 + step.seed + 10 * spec.seed)
    train = batch_of(spec, step.n)
    return train, train if step.same else batch_of(spec, step.m)


def batch_of(spec: Spec, n: int) -> Any:
    parts = [inputs_of(spec.form, n), spec.criterion.targets(n)]
    parts = [p.to(getattr(torch, spec.dtype)) if p.is_floating_point() else p for p in parts]
    if spec.strided:
        parts = [torch.stack([p, p], -1)[..., 0] for p in parts]
    x, y = parts
    return {
        "tuple": (x, y),
        "list": [x, y],
        "dict": {"x": x, "y": y},
        "nested": {"in": {"x": x, "name": "a batch"}, "y": y},
        "popped": {"x": x, "target": y},  # the loss pops it
        "listed": {"x": list(x.unbind()), "y": y, "sizes": [1] * n},
    }[spec.batch]


def seeded(seed: int) -> None:
    """All generators of the process."""
    torch.default_generator.manual_seed(
        seed
    )  # not torch.manual_seed: it remembers every call for CUDA
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
