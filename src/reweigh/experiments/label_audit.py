"""How well a trained cell tells the wrong labels of its train part from the right ones.

    audit_auroc   of the suspicion that `reweigh audit` ranks labels by (audit/ranking.py)
    loss_auroc    of the mean loss of each label over the run; without one in a run on clean images alone
    given         [true class][given class]: what those who gave the labels took for what

AUROC: the probability that a wrong label is ranked above a right one; 0.5 is guessing.
"""

import numpy as np
import torch

from ..audit import Ledger, rank_classes
from ..data import BatchOptions, Part, in_order
from ..optional import optional
from ..results import Json
from ..training import EVALUATION_BATCH, evaluating


def audit_labels(
    model: torch.nn.Module, ledger: Ledger, train: Part, classes: int, options: BatchOptions
) -> tuple[Json, Json]:
    """Numbers for the table, and `{"given": matrix}` for the figure.

    ledger: of the run on the train part, whichever part the model was trained on after that.
    """
    table = ledger.table()
    given = train.targets.numpy()
    p_given, rival, p_rival = _probabilities(model, train, options)
    ranking = rank_classes(
        given,
        mean_loss=table["mean_loss"],
        zero_share=table["zero_share"],
        p_given=p_given,
        rival=rival,
        p_rival=p_rival,
    )
    suspicion = np.empty(len(given))
    suspicion[ranking.order] = ranking.suspicion
    wrong = train.changed.numpy()
    numbers = {"audit_auroc": _auroc(wrong, suspicion)}
    if not np.isnan(table["mean_loss"]).any():
        numbers["loss_auroc"] = _auroc(wrong, table["mean_loss"])
    places = train.truth * classes + train.targets
    matrix = torch.bincount(places, minlength=classes**2).view(classes, classes)
    return numbers, {"given": matrix.tolist()}


def _probabilities(
    model: torch.nn.Module, train: Part, options: BatchOptions
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of the given label [n], the most probable other class [n], and of that class [n]."""
    rows = []
    with evaluating(model), torch.no_grad():
        for batch in in_order(train, size=EVALUATION_BATCH, options=options):
            p = model(batch.inputs).double().softmax(1)
            label = batch.targets[:, None]
            p_rival, rival = p.scatter(1, label, -1.0).max(1)
            rows.append((p.gather(1, label)[:, 0], rival, p_rival))
    p_given, rival, p_rival = (torch.cat(part).numpy() for part in zip(*rows, strict=True))
    return p_given, rival, p_rival


def _auroc(wrong: np.ndarray, suspicion: np.ndarray) -> float:
    metrics = optional("sklearn.metrics", package="scikit-learn", needed_for="the audit of a cell")
    return float(metrics.roc_auc_score(wrong, suspicion))
