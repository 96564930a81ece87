"""A stand-in for training a cell: results of the right shape, made up from the cell alone."""

from __future__ import annotations

import hashlib
import math

from reweigh.experiments.cell_training import cell_steps

CLASSES = ("plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
GAINS = {"uniform": 0.0, "random": 0.02, "reweigh_literal": 0.2, "reweigh": 0.19}


def chance(*what):
    """A number in [0, 1) that depends on `what` alone."""
    digest = hashlib.sha256(repr(what).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def accuracy(cell):
    setting = dict(cell.setting)
    gain = GAINS.get(cell.method, 0.1 * chance(cell.method))
    hardship = 0.8 * setting.get("rate", 0) + 8 * max(0, setting.get("share", 0) - 0.9) * (
        1 - 3 * gain
    )
    help_ = (
        0.03 * math.log10(setting.get("clean", 100) / 100) * (3 if "+ft" in cell.method else 0.5)
    )
    noise = 0.03 * (chance(cell.key) - 0.5)
    return min(0.99, max(0.1, 0.88 - hardship + gain + help_ + noise))


def run(cell, *, work, threads, tick):
    """As `cell_training.run_cell`, at once."""
    tick(cell_steps(cell))
    value = round(accuracy(cell), 6)
    metrics = {"test_accuracy": value, "train_accuracy": 0.99}
    details = {
        "curve": curve(cell, value),
        "confusion": confusion(cell, value),
        "class_accuracy": [value] * 10,
        "classes": list(CLASSES),
        "sizes": {
            "train": 4000,
            "wrong": 1600,
            "clean": 100,
            "hyper_validation": 500,
            "test": 10000,
        },
    }
    if cell.setup.measure == "weights":
        details["weights"] = {
            "random": [weights("random")],
            "classes": [weights(k) for k in range(9)],
        }
        metrics |= {
            f"{kind}_{name}": share
            for kind in ("random", "classes")
            for name, share in (("wrong_zero", 0.9), ("right_zero", 0.3), ("wrong_weight", 0.05),
                                ("wrong_labels", 0.4))
        }  # fmt: skip
    if cell.setup.measure == "audit":
        details["given"] = confusion(cell, 0.6)
        metrics["audit_auroc"] = 0.5 + 0.4 * value
        if cell.method != "clean_only":
            metrics["loss_auroc"] = 0.5 + 0.3 * value
    return {"metrics": metrics, "seconds": 1.5, "details": details}


def curve(cell, value):
    ours = cell.method.startswith("reweigh")
    points = []
    for k in range(41):
        rate = 0.1 if k <= 20 else 0.01 if k <= 30 else 0.001
        grown = value * (1 - math.exp(-k / 6)) + 0.1 * math.exp(-k / 6)
        late = max(0.0, (k - 20) / 20)
        points.append(
            {
                "phase": "main",
                "step": 40 * k,
                "learning_rate": rate,
                "hyper_true_accuracy": grown if ours else grown * (1 - 0.3 * min(1.0, 4 * late)),
                "hyper_accuracy": 0.6 * grown,
                "test_accuracy": grown,
                "train_accuracy": 0.6 * grown + (0.05 if ours else 0.4) * min(1.0, 4 * late),
            }
        )
    return points


def confusion(cell, value):
    rows = []
    for true in range(10):
        off = 1000 - round(1000 * value)
        row = [off // 18] * 10
        if dict(cell.setting).get("noise") == "background":
            row[3] += off // 2
        row[true] += 1000 - sum(row)
        rows.append(row)
    return rows


def weights(what):
    right = [max(0.0, chance(what, "right", k) - 0.3) for k in range(60)]
    wrong = [max(0.0, chance(what, "wrong", k) - 0.9) for k in range(40)]
    total = sum(right) + sum(wrong)
    return {"right": [w / total for w in right], "wrong": [w / total for w in wrong]}
