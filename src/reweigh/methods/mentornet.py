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

import torch
from torch import Tensor
from torch.nn import functional

from ..core import Loss
from ..errors import SettingError
from .contract import Method, Problem, Stateful, View, Weighed, plain_losses
from .mentor import Mentor, labelled_twice, losses_of_both, remembered
from .method_state import MethodState, MovingPercentile


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
    device = problem.train_labels.device
    moving = MovingPercentile(device, percentile=percentile, decay=decay, burn_in=burn_in)
    if window < 1:
        raise SettingError(f"window is {window}; expected one visit at least")
    mentor = problem.network("mentor", lambda: Mentor(problem.classes))
    adam = torch.optim.Adam(mentor.parameters(), lr=learning_rate)
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
        level = moving.update(seen)
        if known is not None:
            history["clean"] = remembered(history["clean"], visit(known, level))
            for _ in range(rounds):
                study(mentor, adam, history["clean"], clean_labels, progress)
        history["train"][ids] = remembered(history["train"][ids], visit(seen, level))
        with torch.no_grad():
            v = mentor(history["train"][ids], problem.given(ids), progress).sigmoid()
        if view.step < burn_in * problem.steps:
            v = torch.ones_like(v)
        weights = v.to(losses) / n
        return Weighed((weights * losses).sum(), weights, losses.detach())

    state: dict[str, Stateful] = {"mentor": mentor, "adam": adam, "percentile": moving}
    state["history"] = history
    return Method("mentornet", losses=plain_losses(problem), weigh=weigh, state=state)


def study(
    mentor: Mentor, adam: torch.optim.Adam, history: Tensor, labels: Tensor, progress: float
) -> None:
    """One step on histories and labels whose first half is right and whose second half is wrong."""
    right = (torch.arange(len(labels), device=labels.device) < len(labels) // 2).float()
    adam.zero_grad()
    with torch.enable_grad():
        v = mentor(history, labels, progress)
        functional.binary_cross_entropy_with_logits(v, right).backward()
    adam.step()


def visit(losses: Tensor, level: Tensor) -> Tensor:
    """What the mentor sees of one visit, [n, 2]."""
    return torch.stack([losses, losses - level], dim=1)
