"""What makes a step cheap stays right: operations counted, memory freed, nothing waited for."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import reweigh
from reweigh.core.backends.forward_mode import Propagate
from reweigh.core.backends.ghost import from_dispatch as ghost
from reweigh.core.backends.ghost.from_graph import read
from support import definition
from support.problems import (
    EXACT,
    PROBLEMS,
    Residual,
    cross_entropy,
    images,
    labelled,
    lenet,
    mlp,
    vectors,
)

N, M = 32, 8


def operations(step) -> int:
    with FlopCounterMode(display=False) as counter:
        step()
    return counter.get_total_flops()


def cost(model, batch, backend: str) -> float:
    """Operations of a reweighed step, as a ratio to a plain one, once everything is proven."""
    train, clean = batch(N), batch(M)
    reweighter = reweigh.Reweighter(model, cross_entropy, backend=backend, safeguard=None)
    for _ in range(4):
        reweighter(train, clean).loss.backward()

    def plain() -> None:
        cross_entropy(model, train).mean().backward()

    def reweighed() -> None:
        reweighter(train, clean).loss.backward()

    return operations(reweighed) / operations(plain)


@pytest.mark.parametrize(
    ("model", "batch", "backend", "limit"),
    [
        (mlp, vectors, "ghost", 1.50),
        (lenet, images, "ghost", 1.50),
        (Residual, lambda n: images(n, 3), "forward_mode", 1.90),
        (Residual, lambda n: images(n, 3), "finite_difference", 1.50),
    ],
)
def test_operations_beyond_the_clean_batch(model, batch, backend, limit):
    assert cost(model(), batch, backend) <= limit + M / N


def test_examples_without_weight_cost_no_weight_gradient():
    model, loss, train, clean = PROBLEMS[0].make(torch.float64)
    step = reweigh.Reweighter(model, loss, backend="ghost", safeguard=None)(train, clean)
    assert 0 < int((step.weights == 0).sum()) < len(step.weights)
    step.loss.backward()
    expected = definition.weighted_gradient(model, loss, train, step.weights)
    for p, g in zip(model.parameters(), expected, strict=True):
        assert torch.allclose(p.grad, g, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize(
    "name",
    ["mlp", "lenet", "dropout", "frozen", "tied", "causal-lm", "reshaped-parameters", "bilinear"],
)
def test_common_layers_are_read_off_the_graph(name):
    model, loss, train, _ = next(p for p in PROBLEMS if p.name == name).make(torch.float64)
    parameters = {k: p for k, p in model.named_parameters() if p.requires_grad}
    reading = read(loss(model, train), tuple(parameters.values()))
    assert reading is not None
    assert {id(s) for c in reading.contacts for s in c.sources} == set(map(id, parameters.values()))


def test_an_unknown_use_of_a_parameter_is_followed_operation_by_operation(monkeypatch):
    watched = []
    monkeypatch.setattr(ghost, "Meet", lambda *a, meet=ghost.Meet: watched.append(1) or meet(*a))
    for name, times in (("mlp", 0), ("weight-norm", 3)):
        model, loss, train, clean = next(p for p in PROBLEMS if p.name == name).make(torch.float64)
        reweighter = reweigh.Reweighter(model, loss, backend="ghost")
        for _ in range(3):
            expected = definition.scores(copy.deepcopy(model), loss, train, clean)
            assert torch.allclose(reweighter(train, clean).scores, expected, rtol=1e-9)
        assert len(watched) == times
        watched.clear()


@pytest.mark.parametrize("backend", EXACT)
@pytest.mark.parametrize("problem", [p for p in PROBLEMS if p.only is None], ids=str)
@pytest.mark.filterwarnings("ignore:the model is in eval mode")
def test_the_third_step_is_as_right_as_the_first(problem, backend):
    """From the second step on, what was learnt in the first is used: layouts, last uses."""
    if backend in problem.refused_by:
        return
    model, loss, train, clean = problem.make(torch.float64)
    reweighter = reweigh.Reweighter(model, loss, backend=backend)
    for seed in range(3):
        twin = copy.deepcopy(model)
        torch.manual_seed(seed)
        expected = definition.scores(twin, loss, train, clean)
        torch.manual_seed(seed)
        found = reweighter(train, clean).scores
    error = (found - expected).norm() / expected.norm().clamp(min=1e-300)
    assert float(error) <= 1e-9


class Skip(nn.Module):
    """Uses an early activation again, but only when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)
        self.again = False

    def forward(self, x):
        early = self.a(x)
        h = self.norm(early).tanh()
        return self.b(h + early) if self.again else self.b(h + h)


def test_a_tangent_asked_for_after_it_was_freed_is_made_again():
    model = Skip().double()
    train, clean = ((x.double(), y) for x, y in (vectors(6), vectors(4)))
    reweighter = reweigh.Reweighter(model, cross_entropy, backend="forward_mode")
    for again in (False, False, True, True, False):
        model.again = again
        expected = definition.scores(copy.deepcopy(model), cross_entropy, train, clean)
        tracked = int(model.norm.num_batches_tracked)
        assert torch.allclose(reweighter(train, clean).scores, expected, rtol=1e-9)
        assert int(model.norm.num_batches_tracked) == tracked + 1


def test_tangents_are_freed_on_the_way():
    model, last_uses, alive = Residual(), None, []
    parameters = dict(model.named_parameters())
    ones = tuple(map(torch.ones_like, parameters.values()))
    direction = reweigh.core.model.parameters.Direction(
        tuple(parameters), tuple(parameters.values()), ones
    )
    for _ in range(2):
        mode = Propagate(model, direction, last_uses)
        with mode:
            losses = cross_entropy(model, images(4, 3))
            mode.keep(losses)
        alive.append(sum(cell.tangent is not None for cell in mode._cells))
        last_uses = mode.last_uses
        mode.release()
        del losses
    assert alive[1] < alive[0] - 5


class NoWaiting(TorchDispatchMode):
    """Fails on operations for which the host would have to wait for a device."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name
        drawn_on_the_host = (
            args and isinstance(args[0], torch.Tensor) and not args[0].is_floating_point()
        )
        if name == "aten::_local_scalar_dense" and drawn_on_the_host:  # the seed of the clean pass
            return func(*args, **(kwargs or {}))
        assert name not in {
            "aten::_local_scalar_dense", "aten::nonzero", "aten::item", "aten::masked_select",
            "aten::equal", "aten::is_nonzero", "aten::unique_dim", "aten::_unique2",
        }, f"{name} waits for the device"  # fmt: skip
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["mlp", "lenet", "resnet-train", "transformer-encoder"])
@pytest.mark.parametrize("safeguard", [None, "auto"])
def test_no_step_waits_for_a_device(name, safeguard, monkeypatch):
    """With every check for the CPU answered as on a GPU, nothing is read back between proofs."""
    for module in (
        "backends.ghost.engine",
        "health",
        "update.gradient",
        "clean.gradient",
    ):
        monkeypatch.setattr(f"reweigh.core.{module}.on_host", lambda tensor: False)
    model, loss, train, clean = next(p for p in PROBLEMS if p.name == name).make(torch.float32)
    reweighter = reweigh.Reweighter(model, loss, safeguard=safeguard)
    for _ in range(4):  # the proofs of the 1st, 2nd and 4th step do read
        reweighter(train, clean).loss.backward()
    monkeypatch.setattr("reweigh.core.health._require", lambda *pending: None)  # one step later
    with NoWaiting():
        reweighter(train, clean).loss.backward()


def test_the_check_for_waiting_can_fail():
    with pytest.raises(AssertionError, match="waits"), NoWaiting():
        torch.ones(3).nonzero()


def test_memory_is_that_of_the_tensors_alive_at_once():
    from reweigh.experiments.bench import peak_bytes

    def step():
        a = torch.ones(1000)  # 4 kB
        a.view(10, 100).add_(1)  # no memory of its own
        b = a + 1
        del a
        return b * 2  # b and this

    assert peak_bytes(step) == 8000


def wide() -> nn.Sequential:
    return nn.Sequential(nn.Linear(400, 300), nn.ReLU(), nn.Linear(300, 4))


@pytest.mark.parametrize("clean", [4, 20])
def test_linear_layers_cost_no_clean_gradient(clean):
    """Fewer operations than a plain step has, beyond the clean batch's own pass."""
    model, train, clean = wide(), labelled(32, 400), labelled(clean, 400)
    reweighter = reweigh.Reweighter(model, cross_entropy, safeguard=None)
    for _ in range(2):
        reweighter(train, clean)

    def weigh() -> None:
        reweighter(train, clean).loss.backward()

    def to_the_first_layer() -> None:
        torch.autograd.grad(cross_entropy(model, clean).mean(), model[0].bias)

    plain = operations(lambda: cross_entropy(model, train).mean().backward())
    step, passes = operations(weigh), operations(to_the_first_layer)
    assert step - passes <= 1.1 * plain


@pytest.mark.parametrize(
    ("model", "batch", "m", "most"),
    [
        (lenet, images, 8, 1.5),
        (Residual, lambda n: images(n, 3), 8, 1.5),
        # In one pass, whose first inputs are a copy: it is let go of before the gradients are made.
        (wide, lambda n: labelled(n, 400), 8, 1.1),
        (wide, lambda n: labelled(n, 400), 64, 1.5),
    ],
)
def test_a_step_holds_little_more_than_a_plain_one(model, batch, m, most):
    from reweigh.experiments.bench import peak_bytes

    model, train, clean = model(), batch(64), batch(m)
    reweighter = reweigh.Reweighter(model, cross_entropy, safeguard=None)

    def plain() -> None:
        cross_entropy(model, train).mean().backward()

    def reweighed() -> None:
        reweighter(train, clean).loss.backward()

    for _ in range(4):
        reweighed()
    assert peak_bytes(reweighed) <= most * peak_bytes(plain)


class TestBench:
    def test_keeps_rows_and_goes_on_from_them(self, tmp_path):
        pytest.importorskip("typer")
        from reweigh.experiments.bench import run_bench as bench

        out = tmp_path / "steps.json"
        options = {"n": 6, "clean": [2], "threads": [1], "seconds": 0.0, "out": out}
        (first,) = bench(["mlp"], with_peers=True, **options)
        methods = {row.method for row in first}
        assert {"plain", "auto", "ghost", "double_backward", "by hand"} <= methods
        plain = next(row for row in first if row.method == "plain")
        assert plain.minimum == plain.operations == 1
        written = json.loads(out.read_text())
        assert set(written["machine"]) >= {"processor", "torch"}
        (second,) = bench(["mlp"], **options)
        assert second == first
        assert json.loads(out.read_text()) == written

    def test_compiled_steps_are_beside_the_compiled_plain_one(self, tmp_path, monkeypatch):
        pytest.importorskip("typer")
        from reweigh.experiments.bench import timing

        monkeypatch.setattr(timing, "COMPILE_OPTIONS", {"backend": "eager"})
        out = tmp_path / "steps.json"
        options = {"n": 6, "clean": [2], "threads": [1], "seconds": 0.0, "out": out}
        (without,) = timing.run_bench(["mlp"], **options)
        assert {row.to_compiled for row in without} == {None}
        (rows,) = timing.run_bench(["mlp"], with_compiled=True, **options)
        by_method = {row.method: row for row in rows}
        assert by_method[timing.COMPILED_PLAIN].to_compiled == 1
        ours = by_method[timing.COMPILED]
        assert ours.runs == "ghost"
        assert ours.compile_seconds > 0
        assert ours.operations is ours.memory is None
        times = by_method["auto"].milliseconds, by_method[timing.COMPILED_PLAIN].milliseconds
        assert by_method["auto"].to_compiled == pytest.approx(times[0] / times[1])
        (again,) = timing.run_bench(["mlp"], with_compiled=True, **options)
        assert again == rows

    def test_other_ways_are_compiled_where_they_can_be(self, monkeypatch):
        pytest.importorskip("typer")
        from reweigh.experiments.bench import timing

        monkeypatch.setattr(timing, "COMPILE_OPTIONS", {"backend": "aot_eager"})
        options = {"n": 6, "clean": [2], "threads": [1], "seconds": 0.0}
        (rows,) = timing.run_bench(["mlp"], with_compiled=True, with_peers=True, **options)
        by_method = {row.method: row for row in rows}
        assert by_method["by hand, compiled"].runs == "one graph"
        assert by_method["by hand, compiled"].compile_seconds > 0
        assert by_method["by hand"].not_compiled is None
        for name in timing.peers():
            compiled = f"{name}, compiled" in by_method
            assert compiled == (by_method[name].not_compiled is None)

    def test_a_library_that_is_not_compiled_says_why(self, monkeypatch):
        pytest.importorskip("typer")
        from reweigh.experiments.bench import compiled_peers
        from reweigh.experiments.bench.cases import CASES
        from reweigh.experiments.bench.peers import by_hand

        monkeypatch.setattr(compiled_peers, "peers", lambda: {"another": by_hand})
        case = CASES["mlp"]
        model, train, clean = case.model(), case.batch(6), case.batch(2)
        why = compiled_peers.compiled_peer(
            "another", model, case.loss, train, clean, {"backend": "aot_eager"}
        )
        assert "one graph: " in why
        assert "losses: torch.compile with aot_autograd does not currently support" in why

    def test_a_compiled_library_with_other_numbers_is_not_timed(self, monkeypatch):
        pytest.importorskip("typer")
        from reweigh.experiments.bench import compiled_peers
        from reweigh.experiments.bench.cases import CASES

        def wrong(graph, inputs):
            return lambda *args: [x * 1.1 for x in graph(*args)]

        case = CASES["mlp"]
        model, train, clean = case.model(), case.batch(6), case.batch(2)
        why = compiled_peers.compiled_peer(
            "by hand", model, case.loss, train, clean, {"backend": wrong}
        )
        assert "differ from the eager ones" in why

    @pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
    def test_a_device_that_is_not_there_is_named(self):
        from reweigh.experiments.bench import run_bench as bench

        with pytest.raises(reweigh.errors.SettingError, match=r"--device cuda: .*cpu or cuda"):
            next(bench(["mlp"], device="cuda"))

    def test_unknown_models_are_named(self):
        from reweigh.experiments.bench import run_bench as bench

        with pytest.raises(reweigh.errors.UnknownNameError, match="did you mean 'lenet'"):
            next(bench(["lenett"]))
