"""The same step as users of general meta-learning libraries write it: Algorithm 1, literally.

Look ahead with eps-weighted losses, take the clean loss there, differentiate it with respect to eps,
rectify, normalise, and train on the weighted loss. Each returns the weights of its step and leaves the
gradient of the weighted loss in `.grad`. Fused attention cannot be differentiated twice, so all of them
run with PyTorch's plain one, as their users have to.
"""

import copy
import importlib.util
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ...core import weights_from_scores

RATE = 1e-3  # of the look-ahead; it cancels
Weigh = Callable[[nn.Module, Any, Any, Any], Tensor]


def _train(model: nn.Module, loss: Any, train: Any, slope: Tensor) -> Tensor:
    weights = weights_from_scores(-slope / RATE)
    (weights * loss(model, train)).sum().backward()
    return weights


def by_hand(model: nn.Module, loss: Any, train: Any, clean: Any) -> Tensor:
    """torch.func.functional_call and torch.autograd.grad."""
    theta = dict(model.named_parameters())
    losses = loss(model, train)
    eps = torch.zeros_like(losses, requires_grad=True)
    gradient = torch.autograd.grad((eps * losses).sum(), list(theta.values()), create_graph=True)
    moved = {name: p - RATE * g for (name, p), g in zip(theta.items(), gradient, strict=True)}
    ahead = loss(lambda x: torch.func.functional_call(model, moved, (x,)), clean).mean()
    (slope,) = torch.autograd.grad(ahead, eps)
    return _train(model, loss, train, slope)


def with_higher() -> Weigh:
    """higher.innerloop_ctx."""
    higher = import_module("higher")

    def weigh(model: nn.Module, loss: Any, train: Any, clean: Any) -> Tensor:
        inner = torch.optim.SGD(model.parameters(), lr=RATE)
        with higher.innerloop_ctx(model, inner) as (copy, step):
            losses = loss(copy, train)
            eps = torch.zeros_like(losses, requires_grad=True)
            step.step((eps * losses).sum())
            (slope,) = torch.autograd.grad(loss(copy, clean).mean(), eps)
        return _train(model, loss, train, slope)

    return weigh


def with_torchopt() -> Weigh:
    """torchopt.MetaSGD."""
    torchopt = import_module("torchopt")

    def weigh(model: nn.Module, loss: Any, train: Any, clean: Any) -> Tensor:
        inner = torchopt.MetaSGD(model, lr=RATE)
        before = torchopt.extract_state_dict(model, by="reference")
        losses = loss(model, train)
        eps = torch.zeros_like(losses, requires_grad=True)
        inner.step((eps * losses).sum())
        (slope,) = torch.autograd.grad(loss(model, clean).mean(), eps)
        torchopt.recover_state_dict(model, before)
        return _train(model, loss, train, slope)

    return weigh


class WithBetty:
    """betty.Engine with its own default, a difference quotient in place of the second derivative.

    Two problems: the model on the weighted batch, rolled back after the look-ahead, and the weights
    above it. The step is Betty's to take, so the model is a copy; the engine is built once.
    """

    _built: tuple[nn.Module, Any, nn.Parameter] | None = None

    def __call__(self, model: nn.Module, loss: Any, train: Any, clean: Any) -> Tensor:
        """One step of the engine; the weights it was taken with."""
        if self._built is None or self._built[0] is not model:
            self._built = model, *_betty_engine(copy.deepcopy(model), loss, train, clean)
        _, engine, weights = self._built
        with torch.no_grad():
            weights.zero_()
        engine.train_step()
        return weights.detach().clone()


def _betty_engine(model: nn.Module, loss: Any, train: Any, clean: Any) -> tuple[Any, nn.Parameter]:
    configs = import_module("betty.configs")
    problem = import_module("betty.problems").ImplicitProblem

    class Weights(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.values = nn.Parameter(torch.zeros(len(train[0])))

    class Upper(problem):  # type: ignore[misc,valid-type]
        def training_step(self, batch: Any) -> Tensor:
            mean: Tensor = loss(self.lower.module, batch).mean()
            return mean

        def custom_optimizer_step(self) -> None:
            values = self.module.values
            values.data.copy_(weights_from_scores(-values.grad))

        def configure_train_data_loader(self) -> list[Any]:
            return [clean]

    class Lower(problem):  # type: ignore[misc,valid-type]
        def training_step(self, batch: Any) -> Tensor:
            total: Tensor = (self.upper.module.values * loss(self.module, batch)).sum()
            return total

        def configure_train_data_loader(self) -> list[Any]:
            return [train]

    upper = Upper(name="upper", module=Weights(), config=configs.Config(retain_graph=True))
    lower = Lower(
        name="lower",
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=RATE),
        config=configs.Config(type="darts", unroll_steps=1),
    )
    above, below = {upper: [lower]}, {lower: [upper]}
    import_module("betty.logging.logger_base").get_logger().setLevel("WARNING")
    engine = import_module("betty.engine").Engine(
        config=configs.EngineConfig(roll_back=True),
        problems=[upper, lower],
        dependencies={"u2l": above, "l2u": below},
    )
    engine.train()
    return engine, upper.module.values


def peers() -> dict[str, Weigh]:
    """Those that can run here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        packages: dict[str, Callable[[], Weigh]] = {
            "higher": with_higher,
            "torchopt": with_torchopt,
            "betty": WithBetty,
        }
        installed = {k: f() for k, f in packages.items() if importlib.util.find_spec(k) is not None}
    by_name: dict[str, Weigh] = {"by hand": by_hand, **installed}
    return {name: sdpa_kernel(SDPBackend.MATH)(weigh) for name, weigh in by_name.items()}
