"""Class-balanced batches.

P(example i is drawn) = 1 / (classes * N_c(i))      weight_i = 1 / n

N_c is the number of train examples given label c. The loop draws the batches: `Sampling.balanced`.
"""

from .contract import Method, Problem, Sampling, evenly, plain_method


def resample(problem: Problem) -> Method:
    """Every class is drawn equally often."""
    return plain_method(problem, "resample", evenly, sample=Sampling(balanced=True))
