"""From the demonstration's single runs to what `results.json` holds."""

from dataclasses import asdict

import numpy as np

from ..intervals import summarise
from ..optional import optional
from ..results import Json
from .catalog.demo import BACKGROUND, CLASSES, CLEAN_ONLY, METHODS, NOISES, DemoSettings
from .provenance import versions


def assemble(runs: list[Json], settings: DemoSettings, seeds: int, command: str) -> Json:
    """What `results.json` holds, but for the time."""
    noisy = [run for run in runs if run["row"]["method"] != CLEAN_ONLY]
    alone = [run["row"] for run in runs if run["row"]["method"] == CLEAN_ONLY]
    reweighed = {
        noise: [r for r in runs if (r["row"]["noise"], r["row"]["method"]) == (noise, "reweigh")]
        for noise in NOISES
    }
    shown = reweighed["background"][0]
    return {
        "rows": [run["row"] for run in noisy],
        "summary": summary_lines([run["row"] for run in noisy]),
        "settings": {
            **asdict(settings),
            "seeds": list(range(seeds)),
            "classes": CLASSES,
            "background": BACKGROUND,
        },
        "sizes": {
            noise: {name: mine[0]["sizes"][name] for name in ("train", "wrong", "clean", "test")}
            for noise, mine in reweighed.items()
        },
        "curves": [
            {key: run["row"][key] for key in ("noise", "method", "seed")} | {"points": run["curve"]}
            for run in noisy
        ],
        "used": {
            noise: {
                side: np.sum([run["used"][side] for run in mine], axis=0).tolist()
                for side in ("right", "wrong")
            }
            for noise, mine in reweighed.items()
        },
        "suspects": {
            "noise": "background",
            "seed": shown["row"]["seed"],
            "examples": shown["suspects"],
        },
        "command": command,
        "versions": versions_used(),
        CLEAN_ONLY: {  # what the clean images are worth alone
            "rows": [{key: row[key] for key in ("seed", "test_accuracy")} for row in alone],
            **_summarised("test_accuracy", alone),
        },
    }


def summary_lines(rows: list[Json]) -> list[Json]:
    """One line per noise and method: means over the seeds, and half the width of 95% t-intervals."""
    lines = []
    for noise in NOISES:
        for method in METHODS:
            mine = [r for r in rows if (r["noise"], r["method"]) == (noise, method)]
            line: Json = {"noise": noise, "method": method, "seeds": len(mine)}
            for key in ("test_accuracy", "noise_auroc", "noise_precision"):
                line |= _summarised(key, mine)
            lines.append(line)
    return lines


def _summarised(key: str, rows: list[Json]) -> Json:
    summary = summarise([row[key] for row in rows])
    return {key: summary.mean, f"{key}_interval": summary.interval}


def versions_used() -> dict[str, str]:
    """What the numbers were made with."""
    sklearn = optional("sklearn", package="scikit-learn", needed_for="the demo")
    named = {name: versions()[name] for name in ("reweigh", "torch")}
    return {**named, "scikit-learn": sklearn.__version__, **versions()}
