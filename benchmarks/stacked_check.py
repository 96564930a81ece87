"""Are the stacked runs those of the library? The same batches through both, and how far weights are apart."""

from __future__ import annotations

import torch
from stacked_runs import BATCH, CLIP, WIDTH, Draws, Rows, first_layers, train
from stacked_tasks import rows_of
from torch.nn import functional

METHODS = (
    "uniform", "uniform+clean", "random", "reweigh_literal", "reweigh", "reweigh+clean", "reweigh_bootstrap",
    "reweigh_bootstrap+clean", "reweigh_hedged",
)  # fmt: skip


def check(lr: float = 0.05, steps: int = 60) -> None:
    for name, off in differences(lr, steps).items():
        print(f"{name}: after {steps} steps the weights differ by at most {off:.1e}")


def differences(lr: float, steps: int) -> dict[str, float]:
    """The largest difference of a weight after some steps in float64, by method."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        found = rows_of(("digits", "background_flip", 0.4, 5), 1)
        first, clean, test = ((x.double(), y) for x, y in (found.train, found.clean, found.test))
        data = Rows(first, clean, test, found.classes)
        ends = train([data], [1], METHODS, lr, steps).layers
        return {
            name: max(
                float((w - x[k, :, :-1]).abs().max())
                for w, x in zip(_library(name, data, lr, steps), ends, strict=True)
            )
            for k, name in enumerate(METHODS)
        }
    finally:
        torch.set_default_dtype(usual)


def _library(name: str, data: Rows, lr: float, steps: int) -> list[torch.Tensor]:
    from reweigh.methods import Problem, View, make, with_clean
    from reweigh.models import MLP, MLPOptions

    problem = Problem(
        lambda o, y: functional.cross_entropy(o, y, reduction="none"), data.classes, data.train[1],
        data.clean[1], data.clean, steps=steps, seed=1,
    )  # fmt: skip
    shape = MLPOptions(inputs=data.train[0].shape[1], hidden=(WIDTH, WIDTH), classes=data.classes)
    model = MLP(shape)
    linear = [m for m in model.modules() if isinstance(m, torch.nn.Linear)]
    with torch.no_grad():
        for module, layer in zip(linear, first_layers(data, 1), strict=True):
            module.weight.copy_(layer[0, :, :-1])
            module.bias.copy_(layer[0, :, -1])
    method, draws = make(name.removesuffix("+clean"), problem), Draws([1])
    method = with_clean(method) if name.endswith("+clean") else method
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = lr * (0.1 if step >= steps * 4 // 5 else 1.0)
        inputs, given = (x[0] for x in draws([data]))
        view = View(model, (inputs, given), data.clean, torch.arange(BATCH), step, lr)
        optimizer.zero_grad()
        method.weigh(view, method.losses).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
    return [module.weight.detach() for module in linear]
