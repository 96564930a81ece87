"""Plain training, the baseline.

weight_i = 1 / n
"""

from .contract import Method, Problem, evenly, plain_method


def uniform(problem: Problem) -> Method:
    """Every example counts the same."""
    return plain_method(problem, "uniform", evenly)
