"""From evidence to probabilities: one regression, learnt from sentinels, with little freedom.

    p_wrong      sigmoid(b + sum_w beta_w e_w),   beta_w >= 0
    beta, b      fitted to sentinels by weight, with a penalty sum_w pull_w / 2 (beta_w - usual_w)^2
    usual        POSTERIOR for e_0 and the rest of 1 shared evenly by the others
    pull         PENALTY; for e_0 HELD^(1 - counted): copies of checked rows whose labels were drawn from T
                 cannot say whether T, and so e_0, is right; counted pairs of labels can (evidence.py)
    p_suggested  p_wrong sigmoid(a + d l), a and d fitted to the sentinels that are wrong

No evidence speaks for a label by speaking against it, so beta is not negative. With few sentinels and
witnesses that agree for the most part, a free fit weighs one witness against another, and what it
learns is chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..candidates import Places, Reals
from .evidence import LabelEvidence

PENALTY, POSTERIOR, HELD = 1.0, 0.2, 30.0
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
        usual = usual_coefficients(evidence.shape[1])
        pull = np.full(len(usual), PENALTY)
        pull[0] = HELD ** (1 - counted)
        return cls(
            fit_logistic(evidence, wrong, weight, usual, pull),
            fit_logistic(logits[:, None], hit, weight * wrong, np.ones(1), np.array([PENALTY])),
        )

    def judge(self, evidence: LabelEvidence, rows: Flags) -> Reals:
        """[k, 2] p_wrong and p_suggested."""
        p_wrong = _probability(evidence.values[rows], self.wrong)
        part = _probability(evidence.logits[rows, None], self.suggestion)
        return np.stack([p_wrong, p_wrong * part], axis=1)


def usual_coefficients(count: int) -> Reals:
    """[count] where the fit starts from: what is believed without checked rows."""
    rest = np.full(count - 1, (1 - POSTERIOR) / max(count - 1, 1))
    return np.concatenate([[POSTERIOR], rest])


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
