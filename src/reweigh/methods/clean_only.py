"""Plain training on the clean examples alone: using the doubtful ones too must beat this.

weight_i = 1 / n      over batches of the clean set
"""

from __future__ import annotations

from .contract import Method, Problem, Sampling, evenly, plain_losses, weighed_by


def clean_only(problem: Problem) -> Method:
    """Plain training on the clean set; the train part is not used."""
    return Method(
        "clean_only",
        losses=plain_losses(problem),
        weigh=weighed_by(evenly),
        sample=Sampling(source="clean"),
    )
