"""Plain training on the clean examples alone: using the doubtful ones too must beat this.

weight_i = 1 / n      over batches of the clean set
"""

from .contract import Method, Problem, Sampling, evenly, plain_method


def clean_only(problem: Problem) -> Method:
    """Plain training on the clean set; the train part is not used."""
    return plain_method(problem, "clean_only", evenly, sample=Sampling(source="clean"))
