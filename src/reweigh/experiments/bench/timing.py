"""What a reweighed step costs, as a ratio to a plain one: time, operations, memory.

    ratio of a method = time of its step / time of a plain step       minimum and median

The methods alternate in one process, so that whatever else the machine does slows all of them alike.
Each visit of a method lasts VISIT seconds, several short steps: in training, a step follows one of
its kind and finds its code in the caches. The weights of all exact methods are compared. Operations
(multiplications and additions of matrix products and convolutions) are counted by PyTorch's own
counter. Memory is the peak of what the step's own tensors hold (memory.py). With one thread, time is the
processor time of that thread, which others on the machine do not add to.

Compiled: a plain step and ours, both by torch.compile, in the same alternation. A user of torch.compile
compares with the compiled plain step, so that ratio is given, too (`to_compiled`), and the time to
compile. PyTorch's counters of operations and memory do not see into compiled code. Other libraries are
compiled where they can be (compiled_peers.py).
"""

import copy
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from ...core import BACKENDS, Reweighter
from ...errors import SettingError, UnsupportedModelError, unknown
from ...files import write_whole
from .cases import CASES
from .compiled_peers import compiled_peer
from .memory import peak_bytes
from .peers import peers

Step = Callable[[], Any]
EXACT_TO = 2e-3  # of the largest weight, in float32
VISIT = 0.02  # seconds: as many steps as begin within it, one at least
COMPILED_PLAIN, COMPILED = "plain, compiled", "auto, compiled"
COMPILE_OPTIONS: dict[str, Any] = {}  # for torch.compile, of both compiled steps
METHODS = ("auto", *BACKENDS)
APPROXIMATE = ("finite_difference", "betty")  # by a difference quotient


@dataclass(frozen=True)
class Measurement:
    """One method on one model. Ratios are to a plain step of the same row's setting.

    to_compiled: the ratio to the compiled plain step, where that was measured, of the fastest steps.
    compile_seconds: of the first step of a compiled method; of the processor, with one thread. None:
    not measured.
    not_compiled: why the step of another library was not measured compiled, too, where that was tried.
    """

    model: str
    n: int
    m: int
    threads: int
    method: str
    runs: str
    minimum: float
    median: float
    operations: float | None
    memory: float | None
    milliseconds: float
    zero_share: float
    to_compiled: float | None = None
    compile_seconds: float | None = None
    not_compiled: str | None = None


def run_bench(
    models: Sequence[str],
    *,
    n: int = 100,
    clean: Sequence[int] = (10, 100),
    threads: Sequence[int] = (2,),
    with_peers: bool = False,
    with_compiled: bool = False,
    methods: Sequence[str] = METHODS,
    seconds: float = 15.0,
    device: str = "cpu",
    out: Path | None = None,
) -> Iterator[list[Measurement]]:
    """The rows of one setting after another; those that `out` holds already are not run again."""
    for name in models:
        if name not in CASES:
            raise unknown("model", name, CASES)
    for method in methods:
        if method not in METHODS:
            raise unknown("method", method, METHODS)
    if min(n, *clean, *threads) < 1:
        raise SettingError(f"n={n}, m={clean}, threads={threads}; expected positive numbers")
    require_device(device)
    rows = _read(out, device)
    before = torch.get_num_threads()
    try:
        for name, m, count in product(models, clean, threads):
            done = [r for r in rows if (r.model, r.n, r.m, r.threads) == (name, n, m, count)]
            if not done or (with_compiled and COMPILED_PLAIN not in {r.method for r in done}):
                torch.set_num_threads(count)
                rows = [r for r in rows if r not in done]
                done = measure(
                    name, n, m, with_peers=with_peers, with_compiled=with_compiled, methods=methods,
                    seconds=seconds, device=device,
                )  # fmt: skip
                rows += done
                if out is not None:
                    write_whole(out, json.dumps(_document(rows, device), indent=1) + "\n")
            yield done
    finally:
        torch.set_num_threads(before)


def measure(
    name: str, n: int, m: int, *, with_peers: bool, seconds: float, with_compiled: bool = False,
    methods: Sequence[str] = METHODS, device: str = "cpu",
) -> list[Measurement]:  # fmt: skip
    """Every method on one model, in alternation for about `seconds`, after two rounds to warm up."""
    torch.manual_seed(0)
    case = CASES[name]
    model = case.model().to(device)
    train, clean = (tuple(x.to(device) for x in case.batch(size)) for size in (n, m))
    steps, runs, zero = _steps(model, case.loss, train, clean, methods, with_peers=with_peers)
    compiling: dict[str, float] = {}
    refused: dict[str, str] = {}
    if with_compiled:
        torch._dynamo.reset()  # it compiles a function so many times only, and networks share the losses
        given = model, case.loss, train, clean
        compiled, compiling = _compiled_steps(*given, runs)
        more, longer = _compiled_peers(*given, runs, refused) if with_peers else ({}, {})
        steps, compiling = steps | compiled | more, compiling | longer
    for _ in range(1 if case.heavy else 2):
        for step in steps.values():
            step()
    times: dict[str, list[float]] = {method: [] for method in steps}
    end = time.perf_counter() + seconds
    clock = _clock(device)
    while time.perf_counter() < end or len(times["plain"]) < 2:
        for method, step in steps.items():
            over = clock() + VISIT
            while (began := clock()) < over:
                step()
                times[method].append(clock() - began)
    # Some steps also prove themselves, which costs more: the least of three in a row does not.
    seen = {method: step for method, step in steps.items() if method not in compiling}
    flops = {method: min(_operations(step) for _ in range(3)) for method, step in seen.items()}
    bytes_ = {method: peak_bytes(step) for method, step in seen.items()}
    base, fastest = times["plain"], min(times.get(COMPILED_PLAIN, [0.0]))
    return [
        Measurement(
            name, n, m, torch.get_num_threads(), method, runs.get(method, method),
            minimum=min(values) / min(base),
            median=statistics.median(values) / statistics.median(base),
            operations=flops[method] / flops["plain"] if method in flops else None,
            memory=bytes_[method] / bytes_["plain"] if method in bytes_ else None,
            milliseconds=1e3 * min(values),
            zero_share=zero,
            to_compiled=min(values) / fastest if fastest else None,
            compile_seconds=compiling.get(method),
            not_compiled=refused.get(method),
        )
        for method, values in times.items()
    ]  # fmt: skip


def _steps(
    model: nn.Module, loss: Any, train: Any, clean: Any, methods: Sequence[str], *, with_peers: bool
) -> tuple[dict[str, Step], dict[str, str], float]:
    """One step per method, optimizer included; the back-end each runs; the share of zero weights."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, momentum=0.9)
    weighers: dict[str, Callable[[], Tensor]] = {}
    runs: dict[str, str] = {}
    for method in dict.fromkeys(("auto", *methods)):
        reweighter = Reweighter(model, loss, backend=method, safeguard=None)

        def weigh(reweighter: Reweighter = reweighter) -> Tensor:
            step = reweighter(train, clean)
            step.loss.backward()
            return step.weights

        try:
            weigh()
        except UnsupportedModelError:
            continue
        weighers[method], runs[method] = weigh, str(reweighter.backend)
    if with_peers:
        for peer, function in peers().items():
            weighers[peer] = partial(function, model, loss, train, clean)
    random = any(isinstance(m, nn.Dropout) and m.p > 0 for m in model.modules())
    weights: dict[str, Tensor] = {}
    for method, call in weighers.items():
        torch.manual_seed(1)  # the same dropout masks for all of ours
        weights[method] = call()
    auto = weights["auto"]
    for method, values in weights.items():
        # A look-ahead draws other dropout masks than ours: different weights, equally right.
        if method not in APPROXIMATE and not (random and method not in runs):
            error = float((values - auto).abs().max() / auto.abs().max())
            if not error <= EXACT_TO:
                raise AssertionError(
                    f"weights of {method} differ from those of auto by {error:.2g}"
                )

    steps = {"plain": _optimized(optimizer, lambda: loss(model, train).mean().backward())}
    steps |= {method: _optimized(optimizer, call) for method, call in weighers.items()}
    return steps, runs, float((auto == 0).float().mean())


def require_device(device: str) -> None:
    """Raise unless PyTorch can compute there."""
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise SettingError(
            f"--device {device}: {str(error).splitlines()[0]}; expected a device of this machine, such as "
            f"cpu or cuda"
        ) from None


def _clock(device: str) -> Callable[[], float]:
    """Seconds: of the one thread that computes, or until the device has done what it was told."""
    if device != "cpu":
        synchronize = getattr(torch, torch.device(device).type).synchronize

        def done() -> float:
            synchronize()
            return time.perf_counter()

        return done
    return time.thread_time if torch.get_num_threads() == 1 else time.perf_counter


def _optimized(optimizer: torch.optim.Optimizer, part: Step) -> Step:
    def step() -> None:
        optimizer.zero_grad()
        part()
        optimizer.step()

    return step


def _compiled_steps(
    model: nn.Module, loss: Any, train: Any, clean: Any, runs: dict[str, str]
) -> tuple[dict[str, Step], dict[str, float]]:
    """A plain step and ours, compiled, each run once; and how long that took. Adds to `runs`."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, momentum=0.9)
    mean = torch.compile(lambda batch: loss(model, batch).mean(), **COMPILE_OPTIONS)
    reweighter = Reweighter(model, loss, safeguard=None, compile=COMPILE_OPTIONS or True)

    def weigh() -> None:
        reweighter(train, clean).loss.backward()

    steps = {
        COMPILED_PLAIN: _optimized(optimizer, lambda: mean(train).backward()),
        COMPILED: _optimized(optimizer, weigh),
    }
    seconds: dict[str, float] = {}
    clock = _compile_clock(train[0].device.type)
    for method, step in steps.items():
        began = clock()
        step()
        seconds[method] = clock() - began
    log = reweighter.compiled
    refused = None if log is None else log.refused
    runs[COMPILED] = str(reweighter.backend) if refused is None else f"eager: {refused}"
    return steps, seconds


def _compiled_peers(
    model: nn.Module,
    loss: Any,
    train: Any,
    clean: Any,
    runs: dict[str, str],
    refused: dict[str, str],
) -> tuple[dict[str, Step], dict[str, float]]:
    """As `_compiled_steps`, of other libraries where that is possible. Adds to `runs` and `refused`."""
    steps: dict[str, Step] = {}
    seconds: dict[str, float] = {}
    clock = _compile_clock(train[0].device.type)
    for peer in peers():
        began, own = clock(), copy.deepcopy(model)  # what fails may leave the model changed
        optimizer = torch.optim.SGD(own.parameters(), lr=1e-6, momentum=0.9)
        found = compiled_peer(peer, own, loss, train, clean, COMPILE_OPTIONS)
        if isinstance(found, str):
            refused[peer] = found
            continue
        method = f"{peer}, compiled"
        steps[method], runs[method] = _optimized(optimizer, found.step), found.way
        seconds[method] = clock() - began
    return steps, seconds


def _compile_clock(device: str) -> Callable[[], float]:
    """Seconds; with one thread on the host, of the processor, the C++ compiler's included."""
    if device != "cpu" or torch.get_num_threads() > 1:
        return time.perf_counter
    from torch._inductor import config

    config.compile_threads = 1  # in this process and children of it, whose time is counted
    return lambda: sum(os.times()[:4])


def _operations(step: Step) -> int:
    with FlopCounterMode(display=False) as counter:
        step()
    return int(counter.get_total_flops())


def _read(out: Path | None, device: str) -> list[Measurement]:
    if out is None or not out.exists():
        return []
    document = json.loads(out.read_text(encoding="utf-8"))
    if document["machine"] != machine(device):
        raise SettingError(f"{out} is from another machine or other versions; give another file")
    return [Measurement(**row) for row in document["rows"]]


def _document(rows: Sequence[Measurement], device: str) -> dict[str, Any]:
    places = list(CASES)
    ordered = sorted(rows, key=lambda r: (places.index(r.model), r.n, r.m, -r.threads))
    return {"machine": machine(device), "rows": [asdict(row) for row in ordered]}


def machine(device: str = "cpu") -> dict[str, str]:
    """What the numbers were measured on."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    cuda = torch.device(device).type == "cuda"
    other = {} if device == "cpu" else {"device": torch.cuda.get_device_name() if cuda else device}
    return {
        **other,
        "processor": names[0] if names else platform.processor() or platform.machine(),
        "cores": str(os.cpu_count()),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
