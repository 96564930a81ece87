"""Bring the README's picture and numbers in line with what lies under results/.

    python docs/refresh.py           # rewrite docs/demo.svg and the marked blocks of the pages
    python docs/refresh.py --check   # only say whether the pages are up to date

`results/demo/results.json` is what `reweigh demo` writes; `results/*/table.md` are what the
benchmarks of the same names write.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import evidence_page

ROOT = Path(__file__).parents[1]
TITLES = {"uniform": "flipped to any other class", "background": "flipped to one class"}
NAMES = {"uniform": "plain", "reweigh": "reweighed"}
COLOURS = {"uniform": "#d1632f", "reweigh": "#2f7fd1"}  # readable on white and on black
GREY = "#808080"
# pages that show a benchmark's entire table, and the mark where they do
TABLES = {"docs/clean-set.md": "clean-set", "docs/recipes.md": "geometry"}


def demo_block(results: dict[str, Any]) -> str:
    """The demo's table."""
    lines = [
        "| 40% of the labels | training | test accuracy | finds the wrong labels (AUROC) |",
        "|---|---|---|---|",
    ]
    for line in results["summary"]:
        best = line["method"] == "reweigh"
        accuracy = f"{line['test_accuracy']:.3f} ± {line['test_accuracy_interval']:.3f}"
        lines.append(
            f"| {TITLES[line['noise']]} | {NAMES[line['method']]} "
            f"| {f'**{accuracy}**' if best else accuracy} | {line['noise_auroc']:.3f} |"
        )
    alone = results["clean_only"]
    lines.append(
        f"| the 50 clean images alone | plain | {alone['test_accuracy']:.3f} ± "
        f"{alone['test_accuracy_interval']:.3f} | |"
    )
    seeds = len(results["settings"]["seeds"])
    lines += [
        "",
        f"Digits, {seeds} seeds, 95% intervals, from `{results['command']}`; everything is in "
        "[results/demo](results/demo/results.json). Errors with a pattern are learnt by plain "
        "training as if they were true, and its own loss cannot tell them from the truth: that is "
        "what the few checked examples are for.",
    ]
    return "\n".join(lines)


STABILITY = {
    "digits, mlp": "Digits, an MLP", "digits, cnn": "Digits, a CNN with BatchNorm",
    "sampled, mlp": "Digits, clean batches that are samples", "texts, mlp": "Titles, an MLP",
    "texts, transformer": "Titles, a transformer", "mnist49, lenet": "MNIST, 99.5% nines",
    "cifar10, resnet8": "CIFAR-10, 40% flipped to one class",
}  # fmt: skip


def stability_block(table: str) -> str:
    """A line for each part of the stability grid: what is reached, and how many runs miss a goal."""
    parts = re.findall(r"## (.+): (\d+ of \d+) settings\n\n((?:\|.*\n)+)", table)
    lines = [
        "| | settings run | plain | literal | safeguarded | over 3 points under own best "
        "| over 1 point under plain | over 1 point under stable literal |",
        "|---" * 8 + "|",
    ]
    for part, count, summary in parts:
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in summary.splitlines()]
        reached = {row[0]: row[1:] for row in rows[2:]}
        means = [f"{reached[m][0]} ({reached[m][1]})" for m in ("plain", "literal", "safeguarded")]
        misses = [cell.split(" (")[0] for cell in reached["safeguarded"][2:5]]
        lines.append(f"| {STABILITY[part]} | {count} | " + " | ".join([*means, *misses]) + " |")
    return "\n".join(lines)


def misses_block(table: str) -> str:
    """Every safeguarded run of the stability grid that misses a goal, and what has been run at all."""
    lines = ["| part | settings run | run | misses by, points |", "|---|---|---|---|"]
    for part, count, body in re.findall(
        r"## ([^\n]+): (\d+ of \d+) settings\n(.*?)(?=\n## |\Z)", table, re.DOTALL
    ):
        missed = re.findall(r"- ([\d.]+) points under (\w+): (.+)", body)
        none = "none misses a goal" if not count.startswith("0 ") else "not run yet"
        rows = [(run, f"{gap} under {rival}") for gap, rival, run in missed] or [(none, "")]
        lines += [f"| {STABILITY[part]} | {count} | {run} | {gap} |" for run, gap in rows]
    return "\n".join(lines)


def hedge_block(table: str) -> str:
    """The first table, of the seeds that judge."""
    found = re.search(r"(?:\|.*\n)+", table)
    return found[0].strip() if found else ""


def performance_block() -> str:
    """The fastest of each method's steps beside a plain one, where `make bench` has measured it."""
    path = ROOT / "results/performance/steps.json"
    if not path.exists():
        return "No figures are kept in this copy; `make bench` measures them on yours."
    measured = json.loads(path.read_text())
    rows = [row for row in measured["rows"] if row["method"] != "plain"]
    methods = list(dict.fromkeys(row["method"] for row in rows))
    settings = dict.fromkeys((r["model"], r["n"], r["m"], r["threads"]) for r in rows)
    lines = [
        "| model | n | m | threads | " + " | ".join(methods) + " |",
        "|---" * (4 + len(methods)) + "|",
    ]
    for setting in settings:
        ratios = {r["method"]: f"{r['minimum']:.2f}" for r in rows
                  if (r["model"], r["n"], r["m"], r["threads"]) == setting}  # fmt: skip
        cells = [*map(str, setting), *(ratios.get(method, "") for method in methods)]
        lines.append("| " + " | ".join(cells) + " |")
    machine = measured["machine"]
    lines += ["", f"Time of a step in plain steps, the fastest of each, from `reweigh bench`: {machine['processor']}, "
              f"{machine['cores']} cores, torch {machine['torch']}; operations and memory are in "
              "[results/performance](../results/performance/steps.json). An empty cell: that back-end "
              "refuses the model."]  # fmt: skip
    return "\n".join(lines)


def compiled_block() -> str:
    """Compiled steps beside the compiled plain one, as `reweigh bench --compile` has measured them."""
    measured = json.loads((ROOT / "results/compiled/steps.json").read_text())
    rows = {(r["model"], r["n"], r["m"], r["method"]): r for r in measured["rows"]}
    lines = [
        "| network | n | m | plain, eager | plain, compiled | ours, eager | ours, compiled | way | weights of zero | "
        "seconds to compile, plain and ours |",
        "|---" * 10 + "|",
    ]
    for (model, n, m, method), ours in rows.items():
        if method != "auto, compiled":
            continue
        columns = ("plain", "plain, compiled", "auto", method)
        ratios = " | ".join(f"{rows[model, n, m, name]['to_compiled']:.2f}" for name in columns)
        plain = rows[model, n, m, "plain, compiled"]
        lines.append(
            f"| {model} | {n} | {m} | {ratios} | {ours['runs']} | {ours['zero_share']:.0%} | "
            f"{plain['compile_seconds']:.0f}, {ours['compile_seconds']:.0f} |"
        )
    machine = measured["machine"]
    lines += [
        "",
        f"Time of a step in compiled plain steps, the fastest of each, one thread: {machine['processor']}, "
        f"{machine['cores']} cores, torch {machine['torch']}. From `reweigh bench --compile --methods auto --threads 1`; "
        "[all rows](../results/compiled/steps.json).",
    ]
    return "\n".join(lines)


PEERS = {
    "auto": "ours",
    "by hand": "by hand",
    "torchopt": "TorchOpt",
    "betty": "Betty",
    "higher": "higher",
}


def peers_block() -> str:
    """Other libraries, eager and compiled, as `reweigh bench --peers --compile` has measured them."""
    measured = json.loads((ROOT / "results/compiled/peers.json").read_text())
    rows = {(r["model"], r["m"], r["method"]): r["to_compiled"] for r in measured["rows"]}
    lines = [
        "| network | m | | " + " | ".join(PEERS.values()) + " |",
        "|---" * (3 + len(PEERS)) + "|",
    ]
    for model, m in dict.fromkeys((model, m) for model, m, _ in rows):
        for how, suffix in (("eager", ""), ("compiled", ", compiled")):
            found = [rows.get((model, m, name + suffix)) for name in PEERS]
            shown = " | ".join("-" if ratio is None else f"{ratio:.2f}" for ratio in found)
            lines.append(f"| {model} | {m} | {how} | {shown} |")
    lines += [
        "",
        "In compiled plain steps, as above. From `reweigh bench --peers --compile --methods auto --threads 1 --model mlp,lenet`; "
        "[all rows](../results/compiled/peers.json).",
    ]
    return "\n".join(lines)


def reproduced(name: str) -> tuple[dict[str, Any], dict[tuple[str, str], list[float]]]:
    """What an experiment of the paper is, and its test accuracies by method and setting, in percent."""
    from reweigh.results import read_results

    results = read_results(ROOT / "results" / name)
    accuracies: dict[tuple[str, str], list[float]] = {}
    for line in results.lines:
        key = line["method"], " ".join(f"{v}" for v in line["setting"].values())
        accuracies.setdefault(key, []).append(100 * line["metrics"]["test_accuracy"])
    return results.about, accuracies


def imbalance_block() -> str:
    """Figure 2 in numbers."""
    about, accuracies = reproduced("mnist-imbalance")
    shares = sorted({share for _, share in accuracies}, key=float)
    heads = [f"{float(share):.1%}".replace(".0%", "%") for share in shares]
    lines = ["| error in %, share of nines | " + " | ".join(heads) + " |"]
    lines.append("|---" * (1 + len(shares)) + "|")
    for row in about["rows"]:
        cells = [shown([100 - v for v in accuracies[row["method"], share]]) for share in shares]
        lines.append(f"| {row['name']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cifar_block(name: str) -> str:
    """A table of the paper beside ours, in the paper's order."""
    about, accuracies = reproduced(name)
    paper = {target["method"]: target for target in about["targets"]}
    lines = ["| accuracy in % | paper | here, small |", "|---|---|---|"]
    known = {row["method"] for row in about["rows"]}
    more = [{"method": m, "name": f"`{m}`"} for m, _ in accuracies if m not in known]
    for row in [*about["rows"], *more]:
        values = [
            v for (method, _), own in accuracies.items() if method == row["method"] for v in own
        ]
        if not values and row["method"] not in paper:
            continue  # a row of our own that has not been run
        theirs = paper.get(row["method"])
        cell = f"{theirs['mean']:.1f}" if theirs else ""
        cell += f" ± {theirs['interval']:.1f}" if theirs and theirs["interval"] else ""
        lines.append(f"| {row['name']} | {cell} | {shown(values)} |")
    return "\n".join(lines)


def shown(values: list[float]) -> str:
    """The mean and, of several seeds, its 95% interval."""
    from reweigh.intervals import summarise

    summary = summarise(values)
    if summary.interval is None:
        return f"{summary.mean:.1f}"
    return f"{summary.mean:.1f} ± {summary.interval:.1f}"


def picture(results: dict[str, Any], path: Path) -> None:
    """Test accuracy during training, both kinds of noise side by side."""
    import matplotlib
    from matplotlib.figure import Figure

    style = {
        "svg.hashsalt": "demo", "font.size": 10, "text.color": GREY, "axes.labelcolor": GREY,
        "axes.edgecolor": GREY, "xtick.color": GREY, "ytick.color": GREY, "axes.titlecolor": GREY,
        "axes.spines.top": False, "axes.spines.right": False,
    }  # fmt: skip
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(9, 3.2), layout="constrained")
        for axes, (noise, title) in zip(
            figure.subplots(1, 2, sharey=True), TITLES.items(), strict=True
        ):
            for method, name in NAMES.items():
                runs = [c["points"] for c in results["curves"]
                        if (c["noise"], c["method"]) == (noise, method)]  # fmt: skip
                steps = [step for step, _ in runs[0]]
                values = [[value for _, value in run] for run in runs]
                mean = [sum(column) / len(column) for column in zip(*values, strict=True)]
                low, high = ([f(c) for c in zip(*values, strict=True)] for f in (min, max))
                axes.plot(steps, mean, color=COLOURS[method], linewidth=2)
                axes.fill_between(steps, low, high, color=COLOURS[method], alpha=0.2, linewidth=0)
                # labels stand clear of the lines: ours above, plain below its lowest seed
                x, y = (steps[-1] * 0.98, max(mean) + 0.02) if method == "reweigh" else (
                    steps[-1] * 0.98, min(low[len(low) // 2 :]) - 0.09)  # fmt: skip
                axes.text(x, y, name, ha="right", color=COLOURS[method], fontweight="bold")
            axes.set(title=f"40% of the labels {title}", xlabel="training step", ylim=(0, 1.05))
            axes.set_xlim(0, steps[-1])
            axes.locator_params(axis="x", nbins=4)
            axes.grid(color=GREY, alpha=0.25, linewidth=0.6)
        figure.axes[0].set_ylabel("test accuracy")
        figure.savefig(path, transparent=True, metadata={"Date": None})


def replaced(text: str, name: str, block: str) -> str:
    """`text` with the part between the marks of `name` replaced."""
    pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
    return re.sub(pattern, lambda m: f"{m[1]}{block}\n{m[2]}", text, flags=re.DOTALL)


def main() -> int:
    """Rewrite, or check; 1 if a page is behind the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    check = parser.parse_args().check
    results = json.loads((ROOT / "results/demo/results.json").read_text())
    readme = ROOT / "README.md"
    before = readme.read_text()
    text = replaced(before, "results:demo", demo_block(results))
    text = replaced(text, "results:evidence", evidence_page.readme_block())
    table = ROOT / "results/stability/table.md"
    if table.exists():
        text = replaced(text, "stability", stability_block(table.read_text()))
    pages = {readme: (before, text)}
    for name, mark in TABLES.items():
        old = (ROOT / name).read_text()
        _, _, body = (ROOT / f"results/{mark}/table.md").read_text().partition("\n\n")
        pages[ROOT / name] = (old, replaced(old, mark, body.strip()))
    rule = ROOT / "docs/rule.md"
    hedge = hedge_block((ROOT / "results/hedge/table.md").read_text())
    text = replaced(rule.read_text(), "hedge", hedge)
    if table.exists():
        text = replaced(text, "misses", misses_block(table.read_text()))
        judges = ROOT / "results/stability/judges.md"
        text = replaced(text, "judges", judges.read_text().strip())
    pages[rule] = (rule.read_text(), text)
    first, speed = ROOT / "docs/index.md", ROOT / "docs/speed.md"
    demo = demo_block(results).replace("](results/", "](../results/")
    pages[first] = (first.read_text(), replaced(first.read_text(), "results:demo", demo))
    measured = replaced(speed.read_text(), "performance", performance_block())
    for name in ("growth", "end_to_end"):
        path = ROOT / f"results/performance/{name}.md"
        if path.exists():
            measured = replaced(measured, name, path.read_text().strip())
    pages[speed] = (speed.read_text(), measured)
    compiled = ROOT / "docs/compile.md"
    text = replaced(compiled.read_text(), "compiled", compiled_block())
    text = replaced(text, "peers", peers_block())
    pages[compiled] = (compiled.read_text(), text)
    paper = ROOT / "docs/reproduce.md"
    text = replaced(paper.read_text(), "mnist-imbalance", imbalance_block())
    for name in ("cifar10-background", "cifar10-uniform"):
        text = replaced(text, name, cifar_block(name))
    pages[paper] = (paper.read_text(), text)
    evidence = ROOT / "docs/evidence.md"
    text = evidence.read_text()
    special = {
        "scale": evidence_page.scale_block,
        "ran": evidence_page.overview,
        "audit": evidence_page.audit_block,
    }
    for name in re.findall(r"<!-- /([a-z0-9-]+) -->", text):
        made = special[name]() if name in special else evidence_page.block(name)
        text = replaced(text, name, made)
    pages[evidence] = (evidence.read_text(), text)
    if check:
        return int(any(old != new for old, new in pages.values()))
    for page, (_, new) in pages.items():
        page.write_text(new)
    picture(results, ROOT / "docs/demo.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
