"""The mentor's lessons: clean examples with labels known to be right, and known to be wrong."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from ..core import batch_size, isolated, rows
from .contract import Problem


def labelled_twice(problem: Problem) -> Tensor:
    """The clean targets and, below them, as many wrong ones: [2, M], as the criterion takes them."""
    _, targets = problem.clean
    away = torch.randint(
        1, problem.classes, targets.shape, generator=problem.generator("mentor labels")
    )
    wrong = (targets.long() + away.to(targets.device)) % problem.classes
    return torch.stack([targets, wrong.to(targets.dtype)])


def losses_of_both(problem: Problem, model: nn.Module, lessons: Tensor, *, size: int) -> Tensor:
    """The losses of the clean set, rightly then wrongly labelled: [2 M]; leaves no trace."""
    inputs, _ = problem.clean
    m = batch_size(inputs, which="clean")
    pieces = -(-m // size)  # of nearly equal size: a batch norm dislikes a batch of one
    edges = [m * i // pieces for i in range(pieces + 1)]
    found = []
    with torch.no_grad(), isolated(model, own_stream=True):
        for start, stop in pairwise(edges):
            outputs = model(rows(inputs, start, stop))
            found.append([problem.criterion(outputs, y[start:stop]) for y in lessons])
    return torch.cat([torch.cat(losses) for losses in zip(*found, strict=True)]).float()
