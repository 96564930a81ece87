"""Every problem at once, before training: what is wrong, and the fix for each.

Nothing is trained and nothing is left behind. It looks at one process: the batches it is given are
taken as the whole ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ..errors import ReweighError, UnsupportedModelError
from .backends.aligning import align
from .backends.base import Memory
from .backends.table import require_known
from .clean.gradient import clean_gradient
from .model.loss import (
    Batch,
    Loss,
    evaluate,
    require_examples,
    require_finite,
    require_gradient,
    require_same_device,
)
from .model.parameters import Direction, Params, select
from .model.snapshot import eager, isolated
from .processes.ddp import inside
from .processes.group import ALONE
from .rule import weights_from_scores

T = TypeVar("T")

_MODAL = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)


@dataclass(frozen=True)
class Finding:
    """One thing `validate` found. `level` is "error", "warning" or "info"."""

    level: str
    about: str
    message: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.level}: {self.message}" + (f" Fix: {self.fix}" if self.fix else "")


def validate(
    model: nn.Module,
    loss: Loss,
    train: Batch,
    clean: Batch,
    *,
    backend: str = "auto",
    params: Params = None,
) -> list[Finding]:
    """Explain a set-up before training: all problems, and which back-end would run and why.

    >>> from torch.nn.functional import cross_entropy
    >>> from reweigh import per_example
    >>> batch = (torch.randn(4, 2), torch.tensor([0, 1, 0, 1]))
    >>> other = (torch.randn(4, 2), torch.tensor([0, 1, 0, 1]))
    >>> [f.level for f in validate(nn.Linear(2, 2), per_example(cross_entropy), batch, other)]
    ['info']
    """
    found: list[Finding] = []
    model = inside(model)
    parameters = _collect(found, "parameters", lambda: select(model, params))
    _collect(found, "device", lambda: require_same_device(train, clean))
    if likely_left_in_eval(model):
        found.append(EVAL_MODE)
    found += _repeated(train, clean)
    for which, batch in (("train", train), ("clean", clean)):
        about = f"{which} loss"
        with isolated(model, own_stream=False), eager(), torch.enable_grad():
            if _collect(found, about, partial(_filled, batch, which=which)) is None:
                continue
            losses = _collect(found, about, partial(evaluate, model, loss, batch, which=which))
            if losses is not None:
                _collect(found, about, partial(require_finite, losses, which=which))
                _collect(found, about, partial(require_gradient, losses, which=which))
    if parameters and not any(f.level == "error" for f in found):
        found += _backend(model, loss, train, clean, backend, parameters)
    return found


def _filled(batch: Batch, *, which: str) -> bool:
    require_examples(batch, which=which)
    return True


def _collect(found: list[Finding], about: str, check: Callable[[], T]) -> T | None:
    """The result of a check, or None and a finding."""
    try:
        return check()
    except ReweighError as error:
        message, _, fix = str(error).partition("; expected ")
        found.append(Finding("error", about, message + ".", f"expected {fix}" if fix else ""))
    except Exception as error:
        found.append(
            Finding("error", about, f"it raised {type(error).__name__}: {error}", "run it by hand")
        )
    return None


EVAL_MODE = Finding(
    "warning",
    "mode",
    "the model is in eval mode, so dropout is off and BatchNorm does not learn its statistics.",
    "call model.train() before training, unless that is meant",
)


def likely_left_in_eval(model: nn.Module) -> bool:
    """Whether the model as a whole is in eval mode and has parts to which that matters."""
    return not model.training and any(
        isinstance(m, _MODAL) and (getattr(m, "p", 1) > 0) for m in model.modules()
    )


def _repeated(train: Batch, clean: Batch) -> list[Finding]:
    """Clean examples that also stand in the train batch."""
    pair = [
        [t for t in tree_leaves(b) if isinstance(t, Tensor) and t.ndim > 0] for b in (train, clean)
    ]
    if len(pair[0]) != len(pair[1]) or not pair[0]:
        return []
    # Labels differ when they are wrong, so the inputs decide: the largest tensor of the batch.
    place = max(range(len(pair[0])), key=lambda i: pair[0][i].numel())
    left, right = (group[place].flatten(1) if group[place].ndim > 1 else group[place][:, None]
                   for group in pair)  # fmt: skip
    if left.shape[1:] != right.shape[1:] or left.shape[1] < 2:
        return []
    known = set(_fingerprints(right))
    count = sum(row in known for row in _fingerprints(left))
    if not count:
        return []
    return [
        Finding(
            "warning",
            "overlap",
            f"{count} of {len(left)} train examples have the same inputs as a clean one.",
            "the method allows clean examples in the train set, but accuracy on them says nothing; "
            "keep them out of any test set",
        )
    ]


def _fingerprints(rows: Tensor) -> list[bytes]:
    return [row.tobytes() for row in rows.detach().cpu().contiguous().view(torch.uint8).numpy()]


def _backend(
    model: nn.Module,
    loss: Loss,
    train: Batch,
    clean: Batch,
    backend: str,
    parameters: dict[str, nn.Parameter],
) -> list[Finding]:
    memory: Memory = {}
    try:
        require_known(backend)
        with isolated(model, own_stream=False), eager():
            direction = clean_gradient(model, loss, clean, parameters=parameters).direction
            settled = align(
                model, loss, train, direction, memory, asked=backend, known=None, chunk=None,
                group=ALONE,
            )  # fmt: skip
            alignment, name, why = settled.alignment, str(settled.choice), settled.choice.reason
            if backend != "auto":
                why = "asked for, and proven on this batch"
    except UnsupportedModelError as error:
        return [Finding("error", "back-end", f"{backend}: {error}.", "use backend='auto'")]
    except ReweighError as error:
        return [Finding("error", "back-end", str(error))]
    found = [Finding("info", "back-end", f"{name} will run: {why}.")]
    found += _unhelpful(alignment.scores, direction)
    return found


def _unhelpful(scores: Tensor, direction: Direction) -> list[Finding]:
    if float(direction.norm_squared()) == 0:
        return [
            Finding(
                "warning", "clean gradient", "the clean batch has no gradient: every score is zero.",
                "use clean examples the model does not fit perfectly yet, or a smoother loss",
            )
        ]  # fmt: skip
    if float(weights_from_scores(scores).sum()) == 0:
        return [
            Finding(
                "warning", "scores", "no example of this train batch helps the clean batch.",
                "that can happen to one batch; if it lasts, check that labels mean the same in both",
            )
        ]  # fmt: skip
    return []
