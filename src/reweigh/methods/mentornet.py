"""MentorNet: a second network, the mentor, learns from losses over time which labels to trust.

    v_i        mentor(recent losses of i, its label, epoch)      mentor.py
    weight_i   v_i / n;   1/n during the first fifth of the run (burn-in)

The mentor learns from the clean set, where right and wrong are known. Every clean example is used
twice: with its own label, and with another one drawn at random. Once per epoch the losses of both
are added to their histories, computed by the network as it is, in training mode. Then the mentor
takes `rounds` Adam steps on

    mean  BCE(v, v*)      v* = 1 for the right label, 0 for the drawn one

The network is never trained on the drawn labels, and the mentor never sees whether a train label is
right. Cost per epoch: one forward on the clean set and `rounds` steps of a tiny LSTM. Memory:
2 * window numbers per train example.

Jiang, Zhou, Leung, Li, Fei-Fei: MentorNet: Learning Data-Driven Curriculum for Very Deep Neural
Networks on Corrupted Labels, 2018. In the paper the mentor learns from a data set of its own before
the network is trained. Here there is only the clean set, so it learns during the run.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from ..core import Loss
from ..errors import SettingError
from .contract import Method, Problem, Stateful, View, Weighed, plain_losses
from .mentor import Mentor, remembered
from .mentor_examples import labelled_twice, losses_of_both
from .method_state import MethodState
from .percentile import check_shares, moving_percentile, update_percentile
from .seeding import seeded


def mentornet(
    problem: Problem,
    *,
    window: int = 5,
    percentile: float = 0.7,
    decay: float = 0.9,
    burn_in: float = 0.2,
    rounds: int = 20,
    learning_rate: float = 0.01,
) -> Method:
    """Weights from a mentor that reads each example's loss history."""
    check_shares(percentile, decay, burn_in)
    if window < 1:
        raise SettingError(f"window is {window}; expected one visit at least")
    device = problem.train_labels.device
    mentor = seeded(lambda: Mentor(problem.classes), problem.generator("mentor")).to(device)
    adam = torch.optim.Adam(mentor.parameters(), lr=learning_rate)
    threshold = moving_percentile(device)
    targets = labelled_twice(problem)
    clean_labels = targets.flatten().long().to(device)
    history = MethodState(
        train=torch.full((len(problem.train_labels), window, 2), torch.nan, device=device),
        clean=torch.full((2 * len(problem.clean_labels), window, 2), torch.nan, device=device),
    )

    def weigh(view: View, loss: Loss) -> Weighed:
        n, ids = len(view.ids), view.ids.to(device)
        every = max(1, len(problem.train_labels) // n)
        progress = view.step // every * every / problem.steps
        due = view.step % every == 0
        # Before the train pass, because its graph needs the running averages as it left them.
        known = losses_of_both(problem, view.model, targets, size=n).to(device) if due else None
        losses = loss(view.model, view.train)
        seen = losses.detach().float().to(device)
        level = update_percentile(threshold, seen, percentile=percentile, decay=decay)
        if known is not None:
            history["clean"] = remembered(history["clean"], visit(known, level))
            study(mentor, adam, history["clean"], clean_labels, progress, rounds=rounds)
        history["train"][ids] = remembered(history["train"][ids], visit(seen, level))
        with torch.no_grad():
            v = mentor(history["train"][ids], problem.given(ids), progress).sigmoid()
        if view.step < burn_in * problem.steps:
            v = torch.ones_like(v)
        weights = v.to(losses) / n
        return Weighed((weights * losses).sum(), weights, losses.detach())

    state: dict[str, Stateful] = {
        "mentor": mentor,
        "adam": adam,
        "percentile": threshold,
        "history": history,
    }
    return Method("mentornet", losses=plain_losses(problem), weigh=weigh, state=state)


def study(
    mentor: Mentor,
    adam: torch.optim.Adam,
    history: Tensor,
    labels: Tensor,
    progress: float,
    *,
    rounds: int,
) -> None:
    """Train the mentor on histories and labels whose first half is right and second half wrong."""
    right = (torch.arange(len(labels), device=labels.device) < len(labels) // 2).float()
    with torch.enable_grad():
        for _ in range(rounds):
            adam.zero_grad()
            v = mentor(history, labels, progress)
            functional.binary_cross_entropy_with_logits(v, right).backward()
            adam.step()


def visit(losses: Tensor, level: Tensor) -> Tensor:
    """What the mentor sees of one visit, [n, 2]."""
    return torch.stack([losses, losses - level], dim=1)
