"""Plain training, the baseline.

weight_i = 1 / n
"""

from __future__ import annotations

from .contract import Method, Problem, evenly, plain_losses, weighed_by


def uniform(problem: Problem) -> Method:
    """Every example counts the same."""
    return Method("uniform", losses=plain_losses(problem), weigh=weighed_by(evenly))
