"""Every problem at once, before training: what is wrong, and the fix for each.

Nothing is trained and nothing is left behind. It looks at one process: the batches it is given are
taken as the whole ones.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ..errors import ReweighError, UnsupportedModelError
from .health import EVAL_MODE, likely_left_in_eval
from .model import (
    Batch,
    Direction,
    Loss,
    ModelView,
    Params,
    Watch,
    eager,
    evaluate,
    require_examples,
    require_finite,
    require_gradient,
    require_same_device,
    select,
)
from .processes import inside
from .rule import weights_from_scores
from .session import Session

T = TypeVar("T")


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
    findings: list[Finding] = []
    model = inside(model)
    view = ModelView(model, Watch(loss))
    _collect(findings, "parameters", lambda: select(model, params))
    _collect(findings, "device", lambda: require_same_device(train, clean))
    if likely_left_in_eval(view):
        findings.append(Finding("warning", "mode", *EVAL_MODE))
    findings += _repeated(train, clean)
    for which, batch in (("train", train), ("clean", clean)):
        about = f"{which} loss"
        with view.isolated(own_stream=False), eager(), torch.enable_grad():
            if _collect(findings, about, partial(_filled, batch, which=which)) is None:
                continue
            losses = _collect(findings, about, partial(evaluate, model, loss, batch, which=which))
            if losses is not None:
                _collect(findings, about, partial(require_finite, losses, which=which))
                _collect(findings, about, partial(require_gradient, losses, which=which))
    if not any(finding.level == "error" for finding in findings):
        findings += _backend(view, loss, train, clean, backend, params)
    return findings


def _filled(batch: Batch, *, which: str) -> bool:
    require_examples(batch, which=which)
    return True


def _collect(findings: list[Finding], about: str, check: Callable[[], T]) -> T | None:
    """The result of a check, or None and a finding."""
    try:
        return check()
    except ReweighError as error:
        message, _, fix = str(error).partition("; expected ")
        findings.append(Finding("error", about, message + ".", f"expected {fix}" if fix else ""))
    except Exception as error:
        findings.append(
            Finding("error", about, f"it raised {type(error).__name__}: {error}", "run it by hand")
        )
    return None


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
    view: ModelView, loss: Loss, train: Batch, clean: Batch, backend: str, params: Params
) -> list[Finding]:
    try:
        session = Session(view.model, loss, backend=backend, params=params, group=None)
        with view.isolated(own_stream=False):
            sides = session.both_sides(train, clean, cheapest=False)
    except UnsupportedModelError as error:
        return [Finding("error", "back-end", f"{backend}: {error}.", "use backend='auto'")]
    except ReweighError as error:
        return [Finding("error", "back-end", str(error))]
    choice = sides.settled.choice
    why = choice.reason if backend == "auto" else "asked for, and proven on this batch"
    return [
        Finding("info", "back-end", f"{choice} will run: {why}."),
        *_unhelpful(sides.settled.alignment.scores, sides.clean.direction),
    ]


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
