"""A back-end equals the definition, or refuses by name; "auto" always answers, and rightly."""

from __future__ import annotations

import copy

import pytest
import torch

import reweigh
from reweigh.core import BACKENDS
from reweigh.errors import UnsupportedModelError
from support import definition
from support.problems import EXACT, PROBLEMS, Problem

CASES = [
    pytest.param(problem, dtype, id=f"{problem}-{str(dtype).removeprefix('torch.')}")
    for problem in PROBLEMS
    for dtype in ([problem.only] if problem.only else [torch.float64, torch.float32])
]
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 5e-2}


def tolerance(problem: Problem, dtype: torch.dtype) -> float:
    return TOLERANCE[problem.autocast or dtype]


def relative(error: torch.Tensor, reference: torch.Tensor) -> float:
    return float(error.double().norm() / reference.double().norm().clamp(min=1e-300))


def measure(problem: Problem, dtype: torch.dtype, backend: str) -> tuple[float, str]:
    """The relative error of a back-end's scores, and the name of the one that ran."""
    model, loss, train, clean = problem.make(dtype)
    twin = copy.deepcopy(model)
    with problem.context():
        torch.manual_seed(11)
        expected = definition.scores(twin, loss, train, clean)
        torch.manual_seed(11)
        if backend == "auto":
            with pytest.MonkeyPatch.context() as patch:  # eval-mode problems are meant so
                patch.setattr("reweigh.core.reweighter.likely_left_in_eval", lambda model: False)
                reweighter = reweigh.Reweighter(model, loss)
                found, ran = reweighter(train, clean).scores, str(reweighter.backend)
        else:
            found = reweigh.example_scores(model, loss, train, clean, backend=backend)
            ran = backend
    assert found.shape == expected.shape
    assert not found.requires_grad
    return relative(found.double() - expected, expected), ran


@pytest.mark.parametrize("backend", EXACT)
@pytest.mark.parametrize(("problem", "dtype"), CASES)
def test_agrees_or_refuses(problem, dtype, backend):
    if backend in problem.refused_by:
        with pytest.raises(UnsupportedModelError, match="use backend="):
            measure(problem, dtype, backend)
    else:
        assert measure(problem, dtype, backend)[0] <= tolerance(problem, dtype)


@pytest.mark.parametrize(("problem", "dtype"), CASES)
def test_auto_takes_the_cheapest_that_is_exact(problem, dtype):
    error, ran = measure(problem, dtype, "auto")
    assert error <= tolerance(problem, dtype)
    first = next(name for name in BACKENDS if name not in problem.refused_by)
    assert ran == (problem.auto or first)


SEES_THROUGH = {
    "stop-gradient",
    "gradient-reversal",
    "custom-running-mean",
    "writes-into-views",
}  # a difference ignores what autograd is told
SMOOTH = [p for p in PROBLEMS if p.only is None and p.name not in SEES_THROUGH]


@pytest.mark.parametrize("problem", SMOOTH, ids=str)
def test_finite_difference_is_close_and_says_it_is_approximate(problem):
    assert not BACKENDS["finite_difference"].exact
    assert measure(problem, torch.float64, "finite_difference")[0] <= 1e-5
    assert measure(problem, torch.float32, "finite_difference")[0] <= 3e-2


@pytest.mark.parametrize("backend", [*BACKENDS, "auto"])
@pytest.mark.parametrize("problem", [p for p in PROBLEMS if p.only is None], ids=str)
def test_backward_leaves_the_gradient_of_the_weighted_loss(problem, backend):
    if backend in problem.refused_by:
        return
    model, loss, train, clean = problem.make(torch.float64)
    twin = copy.deepcopy(model)
    torch.manual_seed(11)
    model.train(model.training)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reweigh.core.reweighter.likely_left_in_eval", lambda model: False)
        step = reweigh.Reweighter(model, loss, backend=backend, safeguard=None)(train, clean)
    step.loss.backward()
    torch.manual_seed(11)
    expected = definition.weighted_gradient(twin, loss, train, step.weights)
    assert torch.allclose(step.loss.detach(), (step.weights * step.losses).sum())
    for (name, p), g in zip(
        ((n, p) for n, p in model.named_parameters() if p.requires_grad), expected, strict=True
    ):
        if g is None:
            assert p.grad is None, name
        else:
            assert p.grad.is_sparse == g.is_sparse, name
            got, want = (t.to_dense() for t in (p.grad, g))
            assert torch.allclose(got, want, rtol=1e-9, atol=1e-12), name


@pytest.mark.parametrize("backend", EXACT)
@pytest.mark.parametrize("problem", [p for p in PROBLEMS if p.autocast], ids=str)
def test_backward_is_right_under_autocast_too(problem, backend):
    if backend in problem.refused_by:
        return
    model, loss, train, clean = problem.make(torch.float32)
    twin = copy.deepcopy(model)
    with problem.context():
        step = reweigh.Reweighter(model, loss, backend=backend, safeguard=None)(train, clean)
        expected = definition.weighted_gradient(twin, loss, train, step.weights)
    step.loss.backward()  # outside of autocast, as is usual
    assert float(step.weights.sum()) > 0
    got = torch.cat([p.grad.flatten() for p in model.parameters()])
    assert relative(got - torch.cat([g.flatten() for g in expected]), got) <= 2e-2


def test_weights_of_all_exact_back_ends_are_the_same():
    problem = PROBLEMS[0]
    model, loss, train, clean = problem.make(torch.float64)
    weights = [
        reweigh.Reweighter(model, loss, backend=backend)(train, clean).weights for backend in EXACT
    ]
    for other in weights[1:]:
        assert torch.allclose(weights[0], other, rtol=1e-9)
