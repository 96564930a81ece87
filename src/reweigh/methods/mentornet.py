"""MentorNet: a second network learns, from loss curves, which labels to trust.

    v_i        mentor(recent losses of i, its label, epoch)      mentor.py
    weight_i   v_i / n;   1/n during the first fifth of the run (burn-in)

The mentor learns where right and wrong are known: every clean example is taken twice, once with its
label and once with another, drawn at random. Once an epoch the losses of both are added to their
histories, under the network as it is and in the mode it is trained in, and the mentor takes
`rounds` Adam steps on

    mean  BCE(v, v*)      v* = 1 for the right label, 0 for the drawn one

The network is never trained on the drawn labels; the mentor never sees whether a train label is
right. Cost: one forward on the clean set and `rounds` steps of a tiny LSTM an epoch; memory for
2 * window numbers per train example.

Jiang, Zhou, Leung, Li, Fei-Fei: MentorNet: Learning Data-Driven Curriculum for Very Deep Neural
Networks on Corrupted Labels, 2018. There the mentor learns from a data set of its own before the
network is trained; here there is only the clean set, so it learns alongside.
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
from .percentile import check, moving_percentile, update
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
    """Examples count by what a mentor makes of their loss history."""
    check(percentile, decay, burn_in)
    if window < 1:
        raise SettingError(f"window is {window}; expected one visit at least")
    device = problem.train_labels.device
    mentor = seeded(lambda: Mentor(problem.classes), problem.generator("mentor")).to(device)
    adam = torch.optim.Adam(mentor.parameters(), lr=learning_rate)
    threshold = moving_percentile(device)
    lessons = labelled_twice(problem)
    history = MethodState(
        train=torch.full((len(problem.train_labels), window, 2), torch.nan, device=device),
        clean=torch.full((2 * len(problem.clean_labels), window, 2), torch.nan, device=device),
    )

    def study(losses: Tensor, level: Tensor, progress: float) -> None:
        history["clean"] = remembered(history["clean"], visit(losses, level))
        labels = lessons.flatten().long().to(device)
        right = (torch.arange(len(losses), device=device) < len(losses) // 2).float()
        with torch.enable_grad():
            for _ in range(rounds):
                adam.zero_grad()
                v = mentor(history["clean"], labels, progress)
                functional.binary_cross_entropy_with_logits(v, right).backward()
                adam.step()

    def weigh(view: View, loss: Loss) -> Weighed:
        n, ids = len(view.ids), view.ids.to(device)
        every = max(1, len(problem.train_labels) // n)
        progress = view.step // every * every / problem.steps
        due = view.step % every == 0
        # Before the train pass, whose graph needs the running averages as that pass left them.
        known = losses_of_both(problem, view.model, lessons, size=n).to(device) if due else None
        losses = loss(view.model, view.train)
        seen = losses.detach().float().to(device)
        level = update(threshold, seen, percentile=percentile, decay=decay)
        if known is not None:
            study(known, level, progress)
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


def visit(losses: Tensor, level: Tensor) -> Tensor:
    """What the mentor sees of one visit, [n, 2]."""
    return torch.stack([losses, losses - level], dim=1)
