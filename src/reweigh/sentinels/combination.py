"""From evidence to probabilities: one regression, learnt from sentinels, with little freedom.

    p_wrong      sigmoid(b + sum_w beta_w e_w),   beta_w >= 0,   e_w in units of its spread over the sentinels
    alone_w      the coefficient that e_w has in a fit of its own
    usual_w      share_w alone_w; share POSTERIOR for e_0, and the rest of 1 shared by the others as alone^POWER is
    beta, b      fitted to sentinels by weight, with a penalty sum_w pull_w / 2 (beta_w - usual_w)^2
    pull         PENALTY; for e_0 HELD^(1 - counted): copies of checked rows whose labels were drawn from T
                 cannot say whether T, and so e_0, is right; counted pairs of labels can (evidence.py)
    p_suggested  p_wrong sigmoid(a + d l), a and d fitted to the sentinels that are wrong

No evidence speaks for a label by speaking against it, so beta is not negative. With few sentinels and
witnesses that agree for the most part, a free fit weighs one witness against another, and what it
learns is chance. Pieces of evidence are much alike, so what is usual is a mean of what each would say alone, and
one that tells right from wrong better counts for more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..candidates import Places, Reals
from .evidence import LabelEvidence

PENALTY, POSTERIOR, HELD = 1.0, 0.2, 30.0
POWER = 4
ALONE, WEAK = 0.5, 0.1
"""Where a fit of one piece starts from, and the pull towards it."""
NARROW = 0.05
"""Added to a spread: what does not vary says nothing."""
LOOSE = 0.1
"""The pull of an intercept."""
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Known:
    """Sentinels to learn from, [s] each: rows of the checked ones under labels, with weights."""

    evidence: LabelEvidence
    row: Places
    label: Places
    weight: Reals


@dataclass(frozen=True, eq=False)
class Combination:
    """Coefficients of p_wrong, and of the suggestion's part of it."""

    wrong: Reals
    suggestion: Reals

    @classmethod
    def of(
        cls, learnt: Sequence[Known], labels: Places, seen: Flags, *, counted: float
    ) -> Combination:
        """Fitted to the sentinels of checked rows that are `seen`, whose labels are [m]."""
        evidence = np.concatenate([each.evidence.values[seen[each.row]] for each in learnt])
        logits = np.concatenate([each.evidence.logits[seen[each.row]] for each in learnt])
        top = np.concatenate([each.evidence.suggested[seen[each.row]] for each in learnt])
        truth = np.concatenate([labels[each.row][seen[each.row]] for each in learnt])
        label = np.concatenate([each.label[seen[each.row]] for each in learnt])
        weight = np.concatenate([each.weight[seen[each.row]] for each in learnt])
        wrong = (label != truth).astype(np.float64)
        hit = (top == truth).astype(np.float64)
        middle = np.average(evidence, axis=0, weights=weight)
        spread = np.sqrt(np.average((evidence - middle) ** 2, axis=0, weights=weight)) + NARROW
        scaled = (evidence - middle) / spread
        usual = usual_coefficients(scaled, wrong, weight)
        pull = np.full(len(usual), PENALTY)
        pull[0] = HELD ** (1 - counted)
        beta = fit_logistic(scaled, wrong, weight, usual, pull)
        beta[1:] /= spread
        beta[0] -= middle @ beta[1:]
        part = fit_logistic(logits[:, None], hit, weight * wrong, np.ones(1), np.array([PENALTY]))
        return cls(beta, part)

    def judge(self, evidence: LabelEvidence, rows: Flags) -> Reals:
        """[k, 2] p_wrong and p_suggested."""
        p_wrong = _probability(evidence.values[rows], self.wrong)
        part = _probability(evidence.logits[rows, None], self.suggestion)
        return np.stack([p_wrong, p_wrong * part], axis=1)


def usual_coefficients(evidence: Reals, wrong: Reals, weights: Reals) -> Reals:
    """[k] where the fit starts from: a mean of what each piece of evidence says alone."""
    start, pull = np.array([ALONE]), np.array([WEAK])
    alone = np.array(
        [fit_logistic(each[:, None], wrong, weights, start, pull)[1] for each in evidence.T]
    )
    strong = alone[1:] ** POWER
    shares = (1 - POSTERIOR) * strong / max(float(strong.sum()), 1e-9)
    return np.asarray(np.concatenate([[POSTERIOR], shares]) * alone)


def fit_logistic(evidence: Reals, wrong: Reals, weights: Reals, usual: Reals, pull: Reals) -> Reals:
    """[1 + k] intercept and coefficients >= 0; `usual` and `pull` [k] as at the head of this file."""
    from scipy.optimize import minimize

    rows = np.concatenate([np.ones((len(evidence), 1)), evidence], axis=1)
    usual, pull = np.concatenate([[0.0], usual]), np.concatenate([[LOOSE], pull])

    def objective(beta: Reals) -> tuple[float, Reals]:
        z = rows @ beta
        away = beta - usual
        losses = np.logaddexp(0, z) - wrong * z
        p = 1 / (1 + np.exp(-np.clip(z, -30, 30)))
        value = float(weights @ losses + (pull * away) @ away / 2)
        return value, rows.T @ (weights * (p - wrong)) + pull * away

    bounds = [(None, None)] + [(0.0, None)] * (len(usual) - 1)
    options = {"maxiter": 300, "ftol": 1e-12, "gtol": 1e-7}
    found = minimize(
        objective, usual, jac=True, method="L-BFGS-B", bounds=bounds, options=options
    ).x
    return np.asarray(found)


def _probability(evidence: Reals, beta: Reals) -> Reals:
    return np.asarray(1 / (1 + np.exp(-np.clip(beta[0] + evidence @ beta[1:], -30, 30))))
