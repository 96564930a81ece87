"""A call leaves what one plain training forward on the train batch leaves, and nothing else."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import pytest
import torch
from torch import nn

import reweigh
from reweigh.core import BACKENDS
from support.problems import PROBLEMS, Residual, cross_entropy, images

CASES = [p for p in PROBLEMS if p.only is None or p.autocast]


def state(model: nn.Module) -> dict[str, Any]:
    return {
        "parameters": {k: p.detach().clone() for k, p in model.named_parameters()},
        "buffers": {k: b.clone() for k, b in model.named_buffers()},
        "grads": {
            k: None if p.grad is None else p.grad.clone() for k, p in model.named_parameters()
        },
        "identities": [id(t) for t in (*model.parameters(), *model.buffers())],
        "modes": [m.training for m in model.modules()],
        "trainable": [p.requires_grad for p in model.parameters()],
        "hooks": [
            (len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks))
            for m in model.modules()
        ],
        "attributes": [sorted(vars(t)) for t in (*model.parameters(), *model.buffers())],
        "grad_mode": torch.is_grad_enabled(),
        "kernels": (torch._C._get_mkldnn_enabled(), torch._C._get_flash_sdp_enabled()),
    }


def same(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, torch.Tensor):
        return isinstance(right, torch.Tensor) and torch.equal(left, right)
    return left == right


def fill_gradients(model: nn.Module) -> None:
    for p in model.parameters():
        if p.requires_grad:
            p.grad = torch.ones_like(p)


@pytest.mark.parametrize("backend", [*BACKENDS, "auto"])
@pytest.mark.parametrize("problem", CASES, ids=str)
@pytest.mark.filterwarnings("ignore:the model is in eval mode")
def test_leaves_what_a_plain_forward_leaves(problem, backend):
    model, loss, train, clean = problem.make(problem.only or torch.float64)
    twin = copy.deepcopy(model)
    fill_gradients(model)
    before = state(model)
    torch.manual_seed(7)
    with problem.context():
        loss(twin, train)
    random_state, buffers = torch.get_rng_state(), dict(twin.named_buffers())
    torch.manual_seed(7)
    reweighter = reweigh.Reweighter(model, loss, backend=backend)
    with problem.context():
        try:
            step = reweighter(train, clean)
        except reweigh.errors.UnsupportedModelError:
            assert backend in problem.refused_by
            return
    after = state(model)
    assert torch.equal(torch.get_rng_state(), random_state)
    for name, buffer in model.named_buffers():
        assert torch.allclose(buffer, buffers[name], rtol=1e-6), name
    for key in before.keys() - {"buffers"}:
        assert same(before[key], after[key]), key
    for leaf in torch.utils._pytree.tree_leaves((train, clean)):
        assert not isinstance(leaf, torch.Tensor) or not vars(leaf)
    step.loss.backward()
    assert same(before["parameters"], state(model)["parameters"])


def test_the_clean_batch_moves_no_running_average():
    model = Residual()
    train, clean = images(8, 3), (images(4, 3)[0] + 100, torch.zeros(4, dtype=torch.long))
    reweigh.Reweighter(model, cross_entropy)(train, clean)
    assert float(model.norm1.running_mean.abs().max()) < 5
    assert int(model.norm1.num_batches_tracked) == 1


def test_a_failed_attempt_leaves_nothing_for_the_next():
    """Auto tries ghost first on a BatchNorm net; its aborted forward must not count."""
    model, loss, train, clean = next(
        p for p in PROBLEMS if p.name == "batchnorm-without-scale"
    ).make(torch.float64)
    reweighter = reweigh.Reweighter(model, loss)
    reweighter(train, clean)
    assert reweighter.backend == "forward_mode"
    assert int(model.norm1.num_batches_tracked) == 1


def test_an_error_in_the_loss_leaves_nothing_behind():
    model = Residual()
    before = copy.deepcopy(model.state_dict())

    def broken(model: nn.Module, batch: Any) -> torch.Tensor:
        model(batch[0])
        raise KeyError("the user's own bug")

    with pytest.raises(KeyError, match="own bug"):
        reweigh.Reweighter(model, broken)(images(4, 3), images(4, 3))
    assert same(dict(before), dict(model.state_dict()))


@pytest.mark.parametrize("safeguard", [None, "auto"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["mlp", "causal-lm", "embedding-lstm", "resnet-eval"])
@pytest.mark.filterwarnings("ignore:the model is in eval mode")
def test_nothing_of_a_step_outlives_it(name, backend, safeguard):
    """Every activation is freed once backward has run: a cycle through C++ would never be."""
    model, loss, train, clean = next(p for p in PROBLEMS if p.name == name).make(torch.float32)
    alive: list[weakref.ref[torch.Tensor]] = []

    def watch(module: nn.Module, inputs: Any, output: Any) -> None:
        alive.extend(
            weakref.ref(t)
            for t in torch.utils._pytree.tree_leaves(output)
            if isinstance(t, torch.Tensor) and t.requires_grad
        )

    for module in model.modules():
        module.register_forward_hook(watch)
    reweighter = reweigh.Reweighter(model, loss, backend=backend, safeguard=safeguard)
    for _ in range(3):
        step = reweighter(train, clean)
        step.loss.backward()
        del step
    gc.collect()
    assert alive
    assert not any(reference() is not None for reference in alive)
