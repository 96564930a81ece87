"""Copies of checked rows under labels, right and wrong ones: rows whose truth is known.

A checked row of class y under label g stands for the train rows that are y and are called g. With m_y
checked rows of the class and n train rows its weight is n J[y, g] / m_y (joint.py).
"""

from __future__ import annotations

import numpy as np

from ..candidates import Places, Reals

MOST_LABELS = 20
"""A sentinel has its own label, and the likeliest others of its class."""


def evenly(shares: Reals) -> Reals:
    """J with the same classes and as many errors, spread evenly."""
    classes, wrong = len(shares), float(1 - np.trace(shares))
    spread = np.where(np.eye(classes) > 0, 1 - wrong, wrong / max(classes - 1, 1))
    return np.asarray(shares.sum(1, keepdims=True) * spread)


def sentinel_labels(shares: Reals, labels: Places, rows: int) -> tuple[Places, Places, Reals]:
    """Row, label and weight of every sentinel, from J [y, g] and the classes of the checked rows [m]."""
    classes = len(shares)
    kept = np.argsort(-(shares + 2 * np.eye(classes)), axis=1)[:, :MOST_LABELS]
    row = np.repeat(np.arange(len(labels)), kept.shape[1])
    label = kept[labels].ravel()
    counts = np.bincount(labels, minlength=classes)
    weight = shares[labels[row], label] * rows / counts[labels[row]]
    return row, label, weight
