"""From the demonstration's single runs to what `results.json` holds."""

from __future__ import annotations

import platform
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from .. import __version__
from .contest import METHODS, Settings
from .digits import BACKGROUND, CLASSES, NOISES

Json = dict[str, Any]


def assemble(runs: list[Json], settings: Settings, seeds: int, command: str) -> Json:
    """What `results.json` holds, but for the clean images alone and the time."""
    shown = next(
        r for r in runs if r["row"]["noise"] == "background" and r["row"]["method"] == "reweigh"
    )
    return {
        "rows": [run["row"] for run in runs],
        "summary": summarise([run["row"] for run in runs]),
        "settings": {
            **asdict(settings),
            "seeds": list(range(seeds)),
            "classes": CLASSES,
            "background": BACKGROUND,
        },
        "sizes": {noise: _of(runs, noise, "reweigh")[0]["sizes"] for noise in NOISES},
        "curves": [
            {key: run["row"][key] for key in ("noise", "method", "seed")} | {"points": run["curve"]}
            for run in runs
        ],
        "used": {
            noise: {
                side: np.sum(
                    [r["used"][side] for r in _of(runs, noise, "reweigh")], axis=0
                ).tolist()
                for side in ("right", "wrong")
            }
            for noise in NOISES
        },
        "suspects": {
            "noise": "background",
            "seed": shown["row"]["seed"],
            "examples": shown["suspects"],
        },
        "command": command,
        "versions": versions(),
    }


def _of(runs: list[Json], noise: str, method: str) -> list[Json]:
    return [r for r in runs if (r["row"]["noise"], r["row"]["method"]) == (noise, method)]


def summarise(rows: list[Json]) -> list[Json]:
    """One line per noise and method: means over the seeds, and half the width of 95% t-intervals."""
    lines = []
    for noise in NOISES:
        for method in METHODS:
            mine = [r for r in rows if (r["noise"], r["method"]) == (noise, method)]
            line: Json = {"noise": noise, "method": method, "seeds": len(mine)}
            for key in ("test_accuracy", "noise_auroc", "noise_precision"):
                values = [r[key] for r in mine]
                line[key] = float(np.mean(values))
                line[f"{key}_interval"] = _interval(values)
            lines.append(line)
    return lines


def clean_only_summary(rows: list[Json]) -> Json:
    """What the clean images are worth alone: one value per seed, their mean and interval."""
    values = [row["test_accuracy"] for row in rows]
    return {
        "rows": rows,
        "test_accuracy": float(np.mean(values)),
        "test_accuracy_interval": _interval(values),
    }


def _interval(values: list[float]) -> float | None:
    """Student's t with n - 1 degrees of freedom; None for one seed, which has no spread."""
    from scipy.special import stdtrit

    n = len(values)
    if n < 2:
        return None
    return float(stdtrit(n - 1, 0.975) * np.std(values, ddof=1) / n**0.5)


def versions() -> dict[str, str]:
    """What the numbers were made with."""
    import sklearn

    return {
        "reweigh": __version__,
        "torch": torch.__version__,
        "scikit-learn": sklearn.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
