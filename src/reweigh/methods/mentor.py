"""The mentor: from an example's recent losses to how far its label is to be trusted.

per visit     (loss, loss - moving percentile of the losses), oldest first
memory        last states of a bidirectional LSTM over the visits       2 * 10
label         an embedding of the label as given                        2
progress      an embedding of the percentage of training done           5
v             sigmoid(linear(tanh(linear(all of it))))                  in (0, 1)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

STATES, LABEL, PROGRESS, HIDDEN = 10, 2, 5, 20
LEVELS = 100  # percent


class Mentor(nn.Module):
    """g(history, label, progress): the logit of v."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(2, STATES, batch_first=True, bidirectional=True)
        self.label = nn.Embedding(classes, LABEL)
        self.progress = nn.Embedding(LEVELS, PROGRESS)
        self.head = nn.Sequential(
            nn.Linear(2 * STATES + LABEL + PROGRESS, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1)
        )

    def forward(self, history: Tensor, labels: Tensor, progress: float) -> Tensor:
        """[n] from history [n, window, 2], labels [n] and the share of training done."""
        _, (last, _) = self.lstm(history)
        level = torch.full_like(labels, min(int(LEVELS * progress), LEVELS - 1))
        parts = [last.transpose(0, 1).flatten(1), self.label(labels), self.progress(level)]
        logit: Tensor = self.head(torch.cat(parts, dim=1)).squeeze(1)
        return logit


def remembered(history: Tensor, visit: Tensor) -> Tensor:
    """History [n, window, 2] with a visit [n, 2] added and the oldest dropped.

    An example seen for the first time (its history is not a number) has been so for ever.
    """
    visit = visit.unsqueeze(1)
    shifted = torch.cat([history[:, 1:], visit], dim=1)
    return torch.where(history.isnan(), visit, shifted)
