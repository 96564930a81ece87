"""What is asked of every back-end on every random model.

1. Agree or refuse: scores, weights and the gradient after `backward()` are those of brute force (one
   `autograd.grad` per loss), or an error of `reweigh.errors` says why not.
2. No trace: parameters, buffers, gradients, attributes, hooks, random states, the batches and the
   switches of the process are afterwards as after one plain forward, and after its backward.
3. No other exception, unless plain training raises one as well.

Brute force shares nothing with the library but the documented contract on random numbers: the clean
pass draws from a stream that is seeded by the next 62-bit number.
"""

from __future__ import annotations

import contextlib
import copy
import random
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import reweigh
from reweigh.core import BACKENDS
from reweigh.errors import ReweighError

from .grammar import Spec, Step, batches_of, model_of, seeded
from .layers import Checkpointed

NAMES = ("auto", *BACKENDS)
# Relative to the size of what is compared: the longest gradient of an example, times the clean one's.
TOLERANCE = {"float64": 1e-7, "float32": 5e-3, "bfloat16": 1.5e-1}
# finite_difference: a zero made by dropout may lie on a kink, and in other types the step is longer.
APPROXIMATE = {"float64": 5e-2}


class Failure(AssertionError):
    """A promise that was broken. Each kind has its class, so that hypothesis tells them apart."""


class WrongScores(Failure): ...


class WrongWeights(Failure): ...


class WrongLosses(Failure): ...


class WrongGradient(Failure): ...


class Trace(Failure): ...


class Obscure(Failure): ...


class Meaningless(Exception):
    """A model that plain training cannot run, or whose numbers are not finite."""


@dataclass(frozen=True)
class Outcome:
    """kind: exact, approximate, refused. words: of the refusal, or the back-end that auto took."""

    kind: str
    words: str = ""


# The definition.


@dataclass
class Truth:
    """One step by brute force.

    gradients: per loss, one tensor per trainable parameter. size: the longest of them, times the
    clean gradient. begin: the state that the step starts from. forward, backward: what is left.
    """

    step: Step
    begin: dict[str, Tensor]
    losses: Tensor
    clean_loss: Tensor
    scores: Tensor
    size: float
    gradients: list[list[Tensor]]
    forward: dict[str, Any]
    backward: dict[str, Any]


def truths_of(spec: Spec) -> list[Truth]:
    """Plain training by brute force; `Meaningless` where PyTorch itself raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model, loss = model_of(spec), spec.criterion.make()
            found, own = [], trainable(model)
            for step in spec.steps:
                set_up(model, own, step)
                found.append(_truth(spec, model, loss, step))
                _descend(model)
        except Meaningless:
            raise
        except Exception as error:
            raise Meaningless(f"{type(error).__name__}: {error}") from error
    return found


def _truth(spec: Spec, model: nn.Module, loss: Any, step: Step) -> Truth:
    begin = {k: v.detach().clone() for k, v in model.state_dict().items()}
    clean_loss, direction = _clean_gradient(spec, model, loss, step)
    losses, gradients = _gradients(spec, model, loss, step)
    scores = torch.stack([_dot(g, direction) for g in gradients]).view_as(losses)
    longest = max(_dot(g, g) for g in gradients).sqrt()
    size = float(longest * _dot(direction, direction).sqrt())
    if not (torch.isfinite(losses).all() and torch.isfinite(scores).all() and size < 1e12):
        raise Meaningless("not finite")
    train, clean = prepared(spec, model, step)
    with around(spec):
        values = losses_of(spec, loss, model, train)
    forward = trace(model, loss, (train, clean))
    (rule(scores).to(values) * values).sum().backward()
    backward = trace(model, loss, (train, clean))
    truth = Truth(step, begin, losses, clean_loss, scores, size, gradients, forward, backward)
    try:
        _gradient(spec, model, SimpleNamespace(weights=rule(scores), factor=1.0), truth)
    except WrongGradient as error:
        # A checkpoint around a state that moves on, such as a spectral norm, computes anew with another
        # one: PyTorch's gradient is then that of no function.
        raise Meaningless("plain training has another gradient than its losses") from error
    return truth


def _clean_gradient(
    spec: Spec, model: nn.Module, loss: Any, step: Step
) -> tuple[Tensor, list[Tensor]]:
    twin = copy.deepcopy(model)
    _, clean = prepared(spec, twin, step)
    seed = int(torch.randint(2**62, ()))
    seeded(seed)
    with around(spec):
        mean = copy.deepcopy(loss)(twin, cut(clean, slice(None))).mean()
    return mean.detach(), _grad(mean, trainable(twin), keep=False)


def _gradients(
    spec: Spec, model: nn.Module, loss: Any, step: Step
) -> tuple[Tensor, list[list[Tensor]]]:
    """The losses, and the gradient of each by itself."""
    twin = copy.deepcopy(model)
    train, _ = prepared(spec, twin, step)
    for module in twin.modules():
        if isinstance(
            module, Checkpointed
        ):  # would compute anew, and move state on, for every loss
            module.active = False
    with around(spec):
        losses = losses_of(spec, copy.deepcopy(loss), twin, train)
    flat = losses.flatten().unbind()
    return losses.detach(), [_grad(f, trainable(twin), keep=True) for f in flat]


def _grad(scalar: Tensor, parameters: list[nn.Parameter], *, keep: bool) -> list[Tensor]:
    found = torch.autograd.grad(scalar, parameters, retain_graph=keep, allow_unused=True)
    return [
        torch.zeros_like(p) if g is None else g.to_dense()
        for p, g in zip(parameters, found, strict=True)
    ]


def _dot(a: list[Tensor], b: list[Tensor]) -> Tensor:
    return torch.stack([(x.double() * y.double()).sum() for x, y in zip(a, b, strict=True)]).sum()


def _descend(model: nn.Module) -> None:
    with torch.no_grad():
        for p in trainable(model):
            if p.grad is not None:
                p.sub_(0.05 * p.grad.to_dense() / (1 + p.grad.to_dense().norm()))


def wobble(spec: Spec, truth: Truth) -> float:
    """How far brute force itself moves if the parameters are rounded as coarsely as the pass is."""
    far, size = (
        0.0,
        {"float64": 2.0**-52, "float32": 2.0**-23, "bfloat16": 2.0**-8}[spec.precision()],
    )
    model, loss = model_of(spec), spec.criterion.make()
    set_up(model, trainable(model), truth.step)
    for draw in range(4):
        model.load_state_dict(truth.begin)
        noise = torch.Generator().manual_seed(draw)
        with torch.no_grad():
            for p in trainable(model):
                p.mul_(1 + size * (torch.rand(p.shape, generator=noise, dtype=torch.float64) - 0.5))
        _, direction = _clean_gradient(spec, model, loss, truth.step)
        _, gradients = _gradients(spec, model, loss, truth.step)
        scores = torch.stack([_dot(g, direction) for g in gradients]).view_as(truth.scores)
        far = max(far, float((scores - truth.scores).abs().max()))
    return far


def rule(scores: Tensor) -> Tensor:
    """The paper's, in its own words."""
    kept = scores.clamp(min=0)
    return kept / kept.sum() if kept.sum() > 0 else torch.zeros_like(kept)


# What both sides do alike.


def trainable(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad]


def set_up(model: nn.Module, own: list[nn.Parameter], step: Step) -> None:
    """The mode of a step, and what it trains. own: what the model trains by itself."""
    model.train(step.training)
    for i, p in enumerate(own):
        frozen = step.frozen is not None and len(own) > 1 and i == step.frozen % len(own)
        p.requires_grad_(not frozen)


def prepared(spec: Spec, model: nn.Module, step: Step) -> tuple[Any, Any]:
    """The batches; gradients that were there before; random states at the start of the step."""
    train, clean = batches_of(spec, step)
    for i, p in enumerate(model.parameters()):
        p.grad = torch.full_like(p, 0.25) if p.requires_grad and i % 3 == 0 else None
    seeded(1000 + step.seed)
    return train, clean


@contextlib.contextmanager
def around(spec: Spec) -> Iterator[None]:
    with torch.autocast("cpu", torch.bfloat16) if spec.autocast else contextlib.nullcontext():
        yield


def losses_of(spec: Spec, loss: Any, model: nn.Module, batch: Any) -> Tensor:
    """In chunks, a chunk is a batch of its own."""
    if spec.chunk is None:
        return loss(model, cut(batch, slice(None)))
    n = len(batch[1] if isinstance(batch, list | tuple) else batch.get("y", batch.get("target")))
    starts = range(0, n, spec.chunk)
    return torch.cat([loss(model, cut(batch, slice(i, i + spec.chunk))) for i in starts])


def cut(batch: Any, part: slice) -> Any:
    """Some rows, in new containers: a loss may pop from them."""
    if isinstance(batch, list | tuple):
        return type(batch)([x[part] for x in batch])
    return {
        key: cut(value, part)
        if isinstance(value, dict)
        else value
        if isinstance(value, str)
        else value[part]
        for key, value in batch.items()
    }


SIMPLE = (bool, int, float, str, tuple, type(None))


def trace(model: nn.Module, loss: Any, batches: Any) -> dict[str, Any]:
    """All that a step could leave behind."""
    modules = dict(model.named_modules())
    return {
        "parameters": {k: p.detach().clone() for k, p in model.named_parameters()},
        "buffers": {k: b.clone() for k, b in model.named_buffers()},
        "gradients": {
            k: None if p.grad is None else p.grad.to_dense().clone()
            for k, p in model.named_parameters()
        },
        "trainable": [p.requires_grad for p in model.parameters()],
        "modes": {k: m.training for k, m in modules.items()},
        "hooks": {k: _hooks(m) for k, m in modules.items()},
        "attributes": {
            f"{k}.{name}": _kept(value)
            for k, m in modules.items()
            for name, value in vars(m).items()
        },
        "tensors": [sorted(vars(t)) for t in (*model.parameters(), *model.buffers())],
        "loss": {k: _kept(v) for k, v in (*vars(loss).items(), *_buffers(loss))},
        "batches": [_kept(x) for x in tree_leaves(batches)],
        "random": random_states(),
        "switches": switches(),
    }


def _kept(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    return value if isinstance(value, SIMPLE) else type(value).__name__


def _buffers(loss: Any) -> list[tuple[str, Tensor]]:
    return list(loss.named_buffers()) if isinstance(loss, nn.Module) else []


def random_states() -> tuple[Any, ...]:
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002
    return torch.get_rng_state(), hash(random.getstate()), hash((kind, keys.tobytes(), *rest))


def _hooks(module: nn.Module) -> list[int]:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    own = [len(getattr(module, kind)) for kind in kinds]
    return [
        *own,
        *(len(p._backward_hooks or ()) for p in module._parameters.values() if p is not None),
    ]


def switches() -> dict[str, Any]:
    return {
        "grad": torch.is_grad_enabled(),
        "kernels": (
            torch._C._get_mkldnn_enabled(), torch._C._get_cudnn_enabled(), torch._C._get_flash_sdp_enabled(),
            torch._C._get_mem_efficient_sdp_enabled(), torch._C._get_math_sdp_enabled(),
        ),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        "default": torch.get_default_dtype(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "modes": (torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()),
        "stance": torch._dynamo.eval_frame._stance.stance,
        "threads": torch.get_num_threads(),
        "hooks": len(nn.modules.module._global_forward_hooks),
        "saving": torch._C._autograd._top_saved_tensors_default_hooks(True) is not None,
    }  # fmt: skip


# One back-end on one spec.


def run(spec: Spec, backend: str, truths: list[Truth]) -> Outcome:
    """Every step by one back-end; a `Failure` if it breaks a promise."""
    model, loss = model_of(spec), spec.criterion.make()
    outcome, own = Outcome("exact"), trainable(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weigh = reweigh.Reweighter(
            model, loss, backend=backend, safeguard=spec.safeguard, chunk=spec.chunk, one_pass=spec.one_pass
        )  # fmt: skip
        for number, truth in enumerate(truths):
            set_up(model, own, truth.step)
            model.load_state_dict(truth.begin)
            try:
                outcome = _step(spec, weigh, truth)
            except Failure as failure:
                raise type(failure)(f"step {number + 1}, {_name(weigh)}: {failure}") from failure
            if outcome.kind == "refused":
                break
    return outcome


def _name(weigh: reweigh.Reweighter) -> str:
    return f"{weigh.backend} ({weigh.backend.reason})"


def _step(spec: Spec, weigh: reweigh.Reweighter, truth: Truth) -> Outcome:
    model, loss = weigh.model, weigh.loss
    train, clean = prepared(spec, model, truth.step)
    before = trace(model, loss, (train, clean))
    try:
        with around(spec):
            found = weigh(train, clean)
    except ReweighError as error:
        same(before, trace(model, loss, (train, clean)), spec, "after a refusal")
        return Outcome("refused", reason(error))
    except Exception as error:
        raise Obscure(f"{type(error).__name__}: {error}") from error
    _agrees(spec, weigh, found, truth)
    after = trace(model, loss, (train, clean))
    same(_but(truth.forward, "gradients"), after, spec, "after the step")
    try:
        found.loss.backward()
    except Exception as error:
        raise Obscure(f"in backward(): {type(error).__name__}: {error}") from error
    after = trace(model, loss, (train, clean))
    same(_but(truth.backward, "gradients"), after, spec, "after backward()")
    _gradient(spec, model, found, truth)
    if not weigh.backend.exact:
        return Outcome("approximate", str(weigh.backend))
    return Outcome("exact", engine(weigh))


def engine(weigh: reweigh.Reweighter) -> str:
    """Who ran, and how: ghost says that at the end of its reason."""
    _, by, how = weigh.backend.reason.rpartition("; by ")
    return f"{weigh.backend} by {how}" if by else str(weigh.backend)


def _but(trace_: dict[str, Any], key: str) -> dict[str, Any]:
    return {k: v for k, v in trace_.items() if k != key}


def reason(error: ReweighError) -> str:
    """The words of a refusal, without what differs from model to model."""
    return f"{type(error).__name__}: {plain_words(str(error))[:150]}"


def plain_words(text: str) -> str:
    text = re.sub(r"'[^']*'", "'...'", text)
    return re.sub(r"-?\d+(\.\d+)*(e[-+]?\d+)?", "#", text)


def _agrees(spec: Spec, weigh: reweigh.Reweighter, found: Any, truth: Truth) -> None:
    precision = spec.precision()
    close = TOLERANCE[precision]
    _near(
        WrongLosses,
        "losses",
        found.losses,
        truth.losses,
        close * (1 + float(truth.losses.abs().max())),
    )
    bound = close * (1 + float(truth.clean_loss.abs()))
    _near(WrongLosses, "clean loss", found.clean_loss, truth.clean_loss, bound)
    if weigh.backend.exact:
        bound = close * truth.size + 1e-300
        try:
            _near(WrongScores, "scores", found.scores, truth.scores, bound)
        except WrongScores:
            bound = max(bound, 4 * wobble(spec, truth))
            _near(WrongScores, "scores", found.scores, truth.scores, bound)
    elif precision in APPROXIMATE and not spec.opaque() and not _said_to_be_off(weigh):
        _near(
            WrongScores,
            "scores",
            found.scores,
            truth.scores,
            APPROXIMATE[precision] * truth.size + 1e-6,
        )
    expected = rule(found.scores.double())
    _near(
        WrongWeights, "weights", found.weights, expected, 1e-2 if precision == "bfloat16" else 1e-5
    )


def _said_to_be_off(weigh: reweigh.Reweighter) -> bool:
    """Whether an approximate back-end itself says in numbers that it is far off: the loss jumps."""
    found = re.search(r"off by ([0-9.e+-]+) \(relative", weigh.backend.reason)
    return found is not None and float(found[1]) > APPROXIMATE["float64"]


def _near(kind: type[Failure], what: str, found: Tensor, right: Tensor, bound: float) -> None:
    if found.shape != right.shape:
        raise kind(f"{what} of shape {tuple(found.shape)}; right: {tuple(right.shape)}")
    error = float((found.double() - right.double()).abs().max())
    if not error <= bound:
        raise kind(
            f"{what} {_short(found)}; right: {_short(right)}; off by {error:.2g}, allowed {bound:.2g}"
        )


def _short(x: Tensor) -> str:
    return "[" + ", ".join(f"{v:.4g}" for v in x.flatten()[:6].tolist()) + "]"


def _gradient(spec: Spec, model: nn.Module, found: Any, truth: Truth) -> None:
    """`.grad` holds what was there, plus the weighted sum of the examples' gradients."""
    weights = (found.weights * found.factor).double().flatten().tolist()
    length = sum(
        w * float(_dot(g, g).sqrt()) for w, g in zip(weights, truth.gradients, strict=True)
    )
    bound = TOLERANCE[spec.precision()] * (length + 1e-6)
    named = [(k, p) for k, p in model.named_parameters() if p.requires_grad]
    for i, (name, p) in enumerate(named):
        before, plain = truth.forward["gradients"][name], truth.backward["gradients"][name]
        if p.grad is None or plain is None:
            if (p.grad is None) != (plain is None):
                raise WrongGradient(f"of {name}: {p.grad}; after plain training: {plain}")
            continue
        parts = [w * g[i].double() for w, g in zip(weights, truth.gradients, strict=True)]
        twice = 2 ** len(p._backward_hooks or ())  # each doubles it: grammar.hook
        right = torch.stack(parts).sum(0) * twice + (0 if before is None else before.double())
        _near(WrongGradient, f"gradient of {name}", p.grad.to_dense(), right, bound * twice)


def same(right: dict[str, Any], found: dict[str, Any], spec: Spec, when: str) -> None:
    """Raise if what is found differs from what is right, beyond rounding."""
    for key, value in right.items():
        if (difference := _difference(value, found[key], TOLERANCE[spec.precision()])) is not None:
            raise Trace(f"{when}: {key} {difference}")


def _difference(right: Any, found: Any, close: float) -> str | None:
    if isinstance(right, Tensor) and isinstance(found, Tensor):
        if right.shape != found.shape or right.dtype != found.dtype:
            return f"{tuple(found.shape)} {found.dtype}; right: {tuple(right.shape)} {right.dtype}"
        if right.is_floating_point():
            error = (right - found).abs().max() if right.numel() else 0.0
            size = float(right.abs().max()) if right.numel() else 0.0
            if not error <= close * (1e-3 + size):
                return f"{_short(found)}; right: {_short(right)}"
            return None
        return None if torch.equal(right, found) else f"{_short(found)}; right: {_short(right)}"
    if isinstance(right, dict) and isinstance(found, dict):
        if right.keys() != found.keys():
            return f"has {sorted(map(str, right.keys() ^ found.keys()))} more or less"
        return next(
            (f"{k} {d}" for k in right if (d := _difference(right[k], found[k], close))), None
        )
    if isinstance(right, list | tuple) and isinstance(found, list | tuple):
        if len(right) != len(found):
            return f"of {len(found)} parts; right: {len(right)}"
        pairs = enumerate(zip(right, found, strict=True))
        return next((f"{k} {d}" for k, (a, b) in pairs if (d := _difference(a, b, close))), None)
    return None if right == found else f"is {str(found)[:60]}; right: {str(right)[:60]}"
