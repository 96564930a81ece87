"""The mentor: a small network from an example's recent losses to the trust in its label.

visit         (loss, loss - moving percentile of the losses)
history       last states of a bidirectional LSTM over the visits, oldest first    2 * 10 numbers
label         an embedding of the label as given                                   2
progress      an embedding of the percentage of training done                      5
v             sigmoid(linear(tanh(linear(all of these))))                          in (0, 1)
learns from   clean examples with their right label, and again with a wrong one
"""

from itertools import pairwise

import torch
from torch import Tensor, nn

from ..core import ModelView, batch_size, rows
from .contract import Problem

STATES, LABEL, PROGRESS, HIDDEN = 10, 2, 5, 20
LEVELS = 100  # one embedding per percent of progress


class Mentor(nn.Module):
    """The network; its output is the logit of v."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(2, STATES, batch_first=True, bidirectional=True)
        self.label = nn.Embedding(classes, LABEL)
        self.progress = nn.Embedding(LEVELS, PROGRESS)
        self.head = nn.Sequential(
            nn.Linear(2 * STATES + LABEL + PROGRESS, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1)
        )

    def forward(self, history: Tensor, labels: Tensor, progress: float) -> Tensor:
        """Logits [n] from history [n, window, 2], labels [n] and the share of training done."""
        _, (last, _) = self.lstm(history)
        level = torch.full_like(labels, min(int(LEVELS * progress), LEVELS - 1))
        parts = [last.transpose(0, 1).flatten(1), self.label(labels), self.progress(level)]
        logit: Tensor = self.head(torch.cat(parts, dim=1)).squeeze(1)
        return logit


def remembered(history: Tensor, visit: Tensor) -> Tensor:
    """History [n, window, 2] with a visit [n, 2] added and the oldest visit dropped.

    For an example without a history (it is NaN), the visit fills the whole window.
    """
    visit = visit.unsqueeze(1)
    shifted = torch.cat([history[:, 1:], visit], dim=1)
    return torch.where(history.isnan(), visit, shifted)


def labelled_twice(problem: Problem) -> Tensor:
    """[2, M] the clean targets, and below them wrong ones, in the dtype that the criterion takes."""
    _, targets = problem.clean
    away = torch.randint(
        1, problem.classes, targets.shape, generator=problem.generator("mentor labels")
    )
    wrong = (targets.long() + away.to(targets.device)) % problem.classes
    return torch.stack([targets, wrong.to(targets.dtype)])


def losses_of_both(problem: Problem, model: nn.Module, targets: Tensor, *, size: int) -> Tensor:
    """[2 M] the losses of the clean set under the right, then under the wrong `targets` [2, M].

    Computed in pieces of at most `size` examples. The model and the generators stay as they were.
    """
    inputs, _ = problem.clean
    m = batch_size(inputs, which="clean")
    pieces = -(-m // size)  # of nearly equal size: batch norm fails on a batch of one
    edges = [m * i // pieces for i in range(pieces + 1)]
    losses = []
    with torch.no_grad(), ModelView(model).isolated(own_stream=True):
        for start, stop in pairwise(edges):
            outputs = model(rows(inputs, start, stop))
            losses.append([problem.criterion(outputs, y[start:stop]) for y in targets])
    return torch.cat([torch.cat(parts) for parts in zip(*losses, strict=True)]).float()
