"""Thousands of random models: `python -m fuzz.run --models 5000`, or one of them: `--spec "Spec(...)"`, `--spec 1234`.

Model i of a seed is the same whoever draws it, so workers share the numbers and a failure is found again
by its number or by its spec. Every failure is made smaller before it is shown: parts are left out while
the same promise stays broken.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import platform
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from hypothesis import HealthCheck, Phase, given, seed, settings

from . import grammar
from .checks import NAMES, Failure, Meaningless, plain_words, run, truths_of
from .grammar import Layer, Spec, Step, settled, specs

TRIES = 150  # to make a failure smaller


def spec_number(number: int) -> Spec:
    """The random model of that number."""
    found: list[Spec] = []

    # Of two examples the first is always the smallest there is.
    @seed(number)
    @settings(
        max_examples=2, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(specs())
    def keep(spec: Spec) -> None:
        found.append(spec)

    keep()
    return found[-1]


def tried(spec: Spec, names: tuple[str, ...] = NAMES) -> dict[str, tuple[str, str]]:
    """Per back-end what came out, in a word, and more words; {"": ...} where PyTorch fails."""
    try:
        truths = truths_of(spec)
    except Meaningless as error:
        return {"": ("not applicable", str(error))}
    found = {}
    for name in names:
        try:
            outcome = run(spec, name, truths)
            found[name] = (outcome.kind, outcome.words)
        except Failure as failure:
            found[name] = (type(failure).__name__, str(failure))
    return found


BROKEN = {kind.__name__ for kind in Failure.__subclasses__()}


# Smaller failures.


def smaller(spec: Spec) -> Iterator[Spec]:
    """Specs with a part less; most is taken first."""
    for i in range(len(spec.steps) - 1, -1, -1):
        if len(spec.steps) > 1:
            yield replace(spec, steps=spec.steps[:i] + spec.steps[i + 1 :])
    for layers in _fewer(spec.layers):
        yield replace(spec, layers=layers)
    usual = Spec()
    for field in fields(Spec):
        if field.name not in ("form", "layers", "steps", "dtype"):
            yield replace(spec, **{field.name: getattr(usual, field.name)})
    for i in range(len(spec.hooks)):
        yield replace(spec, hooks=spec.hooks[:i] + spec.hooks[i + 1 :])
    for i, step in enumerate(spec.steps):
        for field in fields(Step):
            other = replace(step, **{field.name: getattr(Step(), field.name)})
            yield replace(spec, steps=(*spec.steps[:i], other, *spec.steps[i + 1 :]))


def _fewer(layers: tuple[Layer, ...]) -> Iterator[tuple[Layer, ...]]:
    for i, layer in enumerate(layers):
        before, after = layers[:i], layers[i + 1 :]
        yield before + after
        if layer.inside:
            yield before + layer.inside + after
            for inside in _fewer(layer.inside):
                yield (*before, replace(layer, inside=inside), *after)
        if layer.numbers:
            yield (*before, replace(layer, numbers=layer.numbers[:-1]), *after)
            yield (*before, replace(layer, numbers=(*layer.numbers[:-1], 0)), *after)


def shrunk(spec: Spec, backend: str, kind: str) -> Spec:
    """The smallest spec that can be found near by, on which the same promise is broken."""
    seen, tries = {spec}, 0
    progress = True
    while progress and tries < TRIES:
        progress = False
        for other in map(settled, smaller(spec)):
            if other in seen or tries >= TRIES:
                continue
            seen.add(other)
            tries += 1
            if tried(other, (backend,)).get(backend, ("", ""))[0] == kind:
                spec, progress = other, True
                break
    return spec


# Many of them.


def work(following: Any, end: int, queue: Any) -> None:
    """Take the next number until `end`."""
    torch.set_num_threads(1)
    shown: Counter[str] = Counter()
    parent = os.getppid()
    while os.getppid() == parent:  # else it was ended
        with following.get_lock():
            number, following.value = following.value, following.value + 1
        if number >= end:
            break
        spec = spec_number(number)
        found = tried(spec)
        for name, (kind, words) in found.items():
            if kind in BROKEN:
                what = kind + plain_words(words.partition("): ")[2])[:60]
                shown[what] += 1
                small = shrunk(spec, name, kind) if shown[what] == 1 else None
                queue.put(
                    ("failure", number, name, kind, words, repr(spec), repr(small) if small else "")
                )
        queue.put(("model", number, found))
    queue.put(("done",))


class Tally:
    """What came out of all models."""

    def __init__(self) -> None:
        self.models = 0
        self.outcomes: dict[str, Counter[str]] = defaultdict(Counter)
        self.reasons: dict[str, Counter[str]] = defaultdict(Counter)
        self.first: dict[str, int] = {}  # the model that a reason was first given for
        self.choices: Counter[str] = Counter()
        self.plain: Counter[str] = Counter()
        self.failures: list[dict[str, Any]] = []

    def add(self, number: int, found: dict[str, tuple[str, str]]) -> None:
        self.models += 1
        for name, (kind, words) in found.items():
            if name == "":
                self.plain[words[:80]] += 1
                continue
            self.outcomes[name][kind] += 1
            if kind == "refused":
                self.reasons[name][words] += 1
                self.first.setdefault(words, number)
            elif name == "auto" and kind not in BROKEN:
                self.choices[words] += 1

    def as_json(self) -> dict[str, Any]:
        return {
            "models": self.models,
            "plain_training_fails": sum(self.plain.values()),
            "plain_training_says": dict(self.plain.most_common()),
            "outcomes": {name: dict(self.outcomes[name].most_common()) for name in NAMES},
            "auto_takes": dict(self.choices.most_common()),
            "refusals": {name: dict(self.reasons[name].most_common()) for name in NAMES},
            "first_refused": self.first,
            "failures": self.failures,
        }


def summary(result: dict[str, Any]) -> str:
    """The result as a page."""
    kinds = sorted({kind for row in result["outcomes"].values() for kind in row})
    lines = [
        "# Random models against brute force", "",
        f"`{result['command']}`: {result['models']} models, seed {result['seed']}; "
        f"torch {result['versions']['torch']}, Python {result['versions']['python']}. "
        f"On {result['plain_training_fails']} of them plain training itself raises or overflows.", "",
        f"**Promises broken: {len(result['failures'])}.**", "",
        "| back-end | " + " | ".join(kinds) + " |", "|---|" + "---:|" * len(kinds),
    ]  # fmt: skip
    for name, row in result["outcomes"].items():
        lines.append(f"| {name} | " + " | ".join(str(row.get(kind, 0)) for kind in kinds) + " |")
    taken = ", ".join(f"{name} {count}" for name, count in result["auto_takes"].items())
    lines += ["", f'"auto" took: {taken}.', "", "## Why a back-end refused", ""]
    lines += ["| back-end | share of its models | a model | words |", "|---|---:|---:|---|"]
    for name, reasons in result["refusals"].items():
        total = sum(result["outcomes"][name].values())
        for words, count in reasons.items():
            cell = " ".join(words.replace("|", "/").split())
            lines.append(
                f"| {name} | {count / total:.2%} | {result['first_refused'][words]} | {cell} |"
            )
    for failure in result["failures"]:
        lines += ["", f"- {failure['backend']}: {failure['kind']}: {failure['words'][:300]}",
                  f"  `{failure['smaller'] or failure['spec']}`"]  # fmt: skip
    return "\n".join(lines) + "\n"


def collect(queue: Any, tally: Tally, workers: int, models: int) -> None:
    """Take what the workers send until all are done, and say how far they are."""
    began = last = time.monotonic()
    while workers:
        kind, *rest = queue.get()
        if kind == "done":
            workers -= 1
        elif kind == "failure":
            number, name, broken, words, spec, small = rest
            tally.failures.append(
                {"number": number, "backend": name, "kind": broken, "words": words, "spec": spec, "smaller": small}
            )  # fmt: skip
            print(
                f"BROKEN {name} {broken} (model {number}): {words[:500]}\n    {small or spec}",
                flush=True,
            )
        else:
            tally.add(rest[0], rest[1])
        if time.monotonic() - last > 20 or not workers:
            last = time.monotonic()
            done = f"{tally.models}/{models} models, {len(tally.failures)} promises broken"
            print(f"{done}, {last - began:.0f} s", flush=True)


def many(models: int, first: int, workers: int, out: Path | None) -> int:
    """Try `models` models from number `first` on; the number of broken promises."""
    context = multiprocessing.get_context("spawn")
    queue, tally = context.Queue(), Tally()
    following = context.Value("q", first)
    running = [
        context.Process(target=work, args=(following, first + models, queue), daemon=True)
        for _ in range(workers)
    ]
    for process in running:
        process.start()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):  # then what was found so far is the result
        collect(queue, tally, workers, models)
    result = {
        "command": f"make fuzz MODELS={models} SEED={first}",
        "seed": first,
        "versions": {"torch": torch.__version__, "python": platform.python_version()},
        **tally.as_json(),
    }
    print(summary(result))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "counts.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        (out / "summary.md").write_text(summary(result), encoding="utf-8")
    return len(tally.failures)


def one(spec: Spec) -> int:
    """Show one model and what every back-end makes of it."""
    print(grammar.model_of(spec))
    found = tried(spec)
    for name, (kind, words) in found.items():
        print(f"{name or 'plain training'}: {kind}. {words}")
    return sum(kind in BROKEN for kind, _ in found.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0, help="the number of the first model")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, help="a folder for summary.md and counts.json")
    parser.add_argument("--spec", help="one model: as it was printed, or its number")
    arguments = parser.parse_args()
    if arguments.spec:
        number = arguments.spec.isdigit()
        return one(
            spec_number(int(arguments.spec)) if number else eval(arguments.spec, vars(grammar))
        )
    return many(arguments.models, arguments.seed, arguments.workers, arguments.out)


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
