"""Settling on a back-end, by all processes that share a batch together.

Each tries the same one; a few numbers then go round, once a step: whether it could, how far its
scores miss a plain backward where that was looked at, and the sums that the weights are normalised
with. One refusal anywhere sends all to the next back-end, so that none waits for another.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from ...errors import ReweighError, ReweighWarning, UnsupportedModelError
from ..model.parameters import Direction
from ..model.snapshot import Snapshot
from ..processes.group import Group
from ..sums import Sums, combined, sums_of
from .base import Alignment, Proof
from .table import BACKENDS, require_proven

Attempt = Callable[[str], Alignment]


class Choice(str):
    """The name of a back-end, with the reason it was chosen."""

    __slots__ = ("exact", "reason")
    exact: bool
    reason: str

    def __new__(cls, name: str, reason: str) -> Choice:
        """Attach a reason to a name from the table, or to "auto" before the first batch."""
        self = super().__new__(cls, name)
        self.reason = reason
        self.exact = name not in BACKENDS or BACKENDS[name].exact
        return self

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return str(self), self.reason


class _Failed(UnsupportedModelError):
    """A back-end that met an error of somebody else's."""


@dataclass(frozen=True)
class Settled:
    """An alignment that all agree on; `whole`: the sums over the joined batch, None where alone."""

    choice: Choice
    alignment: Alignment
    whole: Sums | None


def settle(
    asked: str,
    known: Choice | None,
    attempt: Attempt,
    model: nn.Module,
    direction: Direction,
    *,
    group: Group,
    barred: Mapping[str, str],
) -> Settled:
    """Align with what was asked for; "auto": with what is known to do, else with the cheapest exact
    back-end that can, and say why that one.

    attempt: aligns with the back-end of a name, or raises. barred: those that need not be tried.
    """
    if asked != "auto":
        if asked in barred:
            raise UnsupportedModelError(
                f"{asked} {barred[asked]}; expected a back-end that does without: use backend='auto'"
            )
        return _tried(Choice(asked, "asked for"), attempt, model, direction, group)
    if known is not None:
        before = Snapshot(model)
        try:
            return _tried(known, attempt, model, direction, group)
        except UnsupportedModelError:  # the model has taken a path it had not taken before
            before.restore()
    return _cheapest(attempt, model, direction, group, barred)


def _cheapest(
    attempt: Attempt,
    model: nn.Module,
    direction: Direction,
    group: Group,
    barred: Mapping[str, str],
) -> Settled:
    refused = [f"{name} {why}" for name, why in barred.items()]
    open_to = [name for name in BACKENDS if name not in barred]
    for name in open_to:
        before = Snapshot(model)
        why = f"the cheapest exact back-end for {type(model).__name__}, proven on the first batch"
        if not BACKENDS[name].exact:
            why = "nothing exact can run; scores are approximate (relative error about 1e-2)"
        choice = Choice(name, "; ".join([why, *refused]))
        try:
            settled = _tried(choice, attempt, model, direction, group, last=name == open_to[-1])
        except UnsupportedModelError as error:
            before.restore()
            verb = "failed" if isinstance(error, _Failed) else "refused"
            refused.append(f"{name} {verb}: {error}")
            continue
        if not BACKENDS[name].exact:
            warnings.warn(f"{why}. {'; '.join(refused)}", ReweighWarning, stacklevel=8)
        return settled
    raise UnsupportedModelError("no back-end can run this model. " + "; ".join(refused))


def _tried(
    choice: Choice,
    attempt: Attempt,
    model: nn.Module,
    direction: Direction,
    group: Group,
    *,
    last: bool = True,
) -> Settled:
    """One back-end, by all processes; a refusal if any of them refuses."""
    alignment: Alignment | None = None
    refusal: UnsupportedModelError | None = None
    try:
        alignment = attempt(choice)
    except UnsupportedModelError as error:
        refusal = error
    except ReweighError:
        raise  # the user's input is wrong, whatever the back-end
    except Exception as error:
        # Unknown territory for this back-end. If it is the user's own bug, the last one shows it.
        if last:
            raise
        refusal = _Failed(f"{type(error).__name__}: {error}")
    whole, proof = None, None if alignment is None else alignment.proof
    if group.size > 1:
        whole, proof, refusing = _consulted(alignment, direction, group)
        if refusing and refusal is None:
            refusal = UnsupportedModelError(
                f"process {refusing[0]} cannot run {choice}; its own log says why"
            )
    if refusal is not None:
        raise refusal
    assert alignment is not None
    if proof is not None:
        require_proven(choice, model, proof, alignment.losses, direction)
    return Settled(choice, alignment, whole)


def _consulted(
    alignment: Alignment | None, direction: Direction, group: Group
) -> tuple[Sums, Proof | None, Sequence[int]]:
    """The sums over all processes, their proof if any had one, and who refuses."""
    like = direction.parameters[0]
    scores = torch.zeros(0, device=like.device) if alignment is None else alignment.scores
    verdict = torch.zeros(4, dtype=torch.float64, device=scores.device)  # refuses, proof, gap, size
    if alignment is None:
        verdict[0] = 1
    elif alignment.proof is not None:
        verdict[1] = 1
        verdict[2:] = torch.stack([alignment.proof.gap, alignment.proof.size])
    # Read once, here: all that follows depends on it, on every process alike.
    rows = group.gathered(torch.cat([verdict, sums_of(scores).row()])).cpu()
    proof = Proof(rows[:, 2].sum(), rows[:, 3].sum()) if rows[:, 1].any() else None
    return combined(rows[:, 4:]), proof, rows[:, 0].nonzero().flatten().tolist()
