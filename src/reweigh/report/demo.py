"""The demonstration's page: `results.json` in, one self-contained `report.html` out."""

import base64
import io
import json
from pathlib import Path

import numpy as np

from ..errors import DataError
from ..files import write_whole
from ..results import Json
from .figures import MUTED, OURS, PLAIN, panel
from .page import render as render_page

NOISES = {"uniform": "Flipped to any other class", "background": "Flipped to one class"}
METHODS = {"uniform": "plain", "reweigh": "reweighed"}
COLOURS = {"uniform": PLAIN, "reweigh": OURS}
LINES = {"uniform": (0, (4, 2)), "reweigh": "solid"}  # told apart without colour, too


def write_report(folder: Path) -> Path:
    """Write `report.html` from the `results.json` in `folder`; its path."""
    page = folder / "report.html"
    write_whole(page, render(read_results(folder / "results.json")))
    return page


def read_results(path: Path) -> Json:
    """What `reweigh demo` wrote, or an error that says what is the matter with it."""
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"there is no {path}; run: reweigh demo --out {path.parent}") from None
    except ValueError as error:
        raise DataError(f"{path} is not JSON ({error}); run the demo again") from None
    wanted = {"rows", "summary", "clean_only", "settings", "sizes", "curves", "used", "suspects"}
    lacking = wanted - results.keys() if isinstance(results, dict) else wanted
    if lacking:
        raise DataError(
            f"{path} lacks {', '.join(sorted(lacking))}; expected the results of `reweigh demo`"
        )
    return dict(results)


def render(results: Json) -> str:
    """The page as text."""
    suspects = results["suspects"]["examples"]
    drawn = {
        "noises": NOISES,
        "methods": METHODS,
        "lines": {(line["noise"], line["method"]): line for line in results["summary"]},
        "curves": {noise: _curves(results, noise) for noise in NOISES},
        "histograms": {noise: _histogram(results, noise) for noise in NOISES},
        "strip": [{**suspect, "picture": _picture(suspect["pixels"])} for suspect in suspects],
        "caught": sum(suspect["given"] != suspect["true"] for suspect in suspects),
    }
    return render_page("demo.html", **(results | drawn))


def _curves(results: Json, noise: str) -> str:
    """Test accuracy during training: the mean over seeds, and from the lowest to the highest seed."""
    with panel(f"curves-{noise}") as drawn:
        axes = drawn.axes
        for method, name in METHODS.items():
            runs = [c for c in results["curves"] if (c["noise"], c["method"]) == (noise, method)]
            steps = [step for step, _ in runs[0]["points"]]
            values = np.array([[value for _, value in run["points"]] for run in runs])
            mean, colour = values.mean(0), COLOURS[method]
            axes.plot(steps, mean, color=colour, linestyle=LINES[method], linewidth=1.8, label=name)
            axes.fill_between(steps, values.min(0), values.max(0), color=colour, alpha=0.18, lw=0)
        alone = results["clean_only"]["test_accuracy"]
        axes.axhline(alone, color=MUTED, linestyle="dotted", linewidth=1.2, label="clean alone")
        axes.set(xlabel="training step", ylabel="test accuracy", ylim=(0, 1))
        axes.set_xlim(0, steps[-1])
        axes.locator_params(axis="x", nbins=5)
        axes.legend(loc="lower right", frameon=False)
    return drawn.svg


def _histogram(results: Json, noise: str) -> str:
    """How often right and wrong labels were used, as shares of either kind."""
    used = results["used"][noise]
    with panel(f"used-{noise}") as drawn:
        axes = drawn.axes
        for side, colour, filled in (("right", OURS, True), ("wrong", PLAIN, False)):
            counts = np.array(used[side])
            edges = np.linspace(0, 1, len(counts) + 1)
            axes.stairs(
                counts / max(counts.sum(), 1),
                edges,
                fill=filled,
                color=colour,
                alpha=0.55 if filled else 1,
                linewidth=1.8,
                linestyle="solid" if filled else LINES["uniform"],
                label=f"{side} label",
            )
        axes.set(
            xlabel="share of its steps with a positive weight",
            ylabel="share of examples",
            xlim=(0, 1),
        )
        axes.legend(loc="upper center", frameon=False)
    return drawn.svg


def _picture(pixels: list[int]) -> str:
    """An 8x8 image, 0 ... 16, as a data address: dark ink on a light ground."""
    from PIL import Image

    grey = np.clip(255 - np.array(pixels) * 255 / 16, 0, 255).astype(np.uint8).reshape(8, 8)
    stream = io.BytesIO()
    Image.fromarray(grey).save(stream, format="PNG")
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()
