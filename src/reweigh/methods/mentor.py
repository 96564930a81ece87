"""The mentor: a small network from an example's recent losses to the trust in its label.

visit         (loss, loss - moving percentile of the losses)
history       last states of a bidirectional LSTM over the visits, oldest first    2 * 10 numbers
label         an embedding of the label as given                                   2
progress      an embedding of the percentage of training done                      5
v             sigmoid(linear(tanh(linear(all of these))))                          in (0, 1)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

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
