"""The step inside a user's loop: gradients, accumulation, scaling, optimizers, choices, warnings."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import reweigh
from reweigh.errors import ReweighWarning, UnsupportedModelError
from support import definition
from support.problems import (
    PROBLEMS,
    RecurrentNormed,
    Residual,
    cross_entropy,
    images,
    labelled,
    mlp,
    tokens,
    vectors,
)


def problem(name: str):
    return next(p for p in PROBLEMS if p.name == name)


@pytest.fixture(params=["ghost", "forward_mode", "double_backward"])
def backend(request):
    return request.param


def test_the_step_says_how_the_batch_went():
    step = reweigh.Reweighter(mlp(), cross_entropy)(vectors(50), vectors(10))
    positive = step.scores.clamp(min=0)
    assert torch.allclose(step.weights, positive / positive.sum())
    assert torch.isclose(step.effective_sample_size, 1 / step.weights.square().sum())
    assert torch.isclose(step.zero_share, (step.scores <= 0).float().mean())
    assert step.clean_loss.shape == ()
    assert not any(t.requires_grad for t in (step.weights, step.scores, step.losses))
    assert "effective_sample_size" in repr(step)


def test_gradients_accumulate_scale_and_add_up(backend):
    """(loss / 2 + penalty).backward() twice equals the sum of plain backwards."""
    model = mlp().double()
    batches = [(labelled(6, 8), labelled(4, 8)) for _ in range(2)]
    batches = [tuple((x.double(), y) for x, y in pair) for pair in batches]
    reweighter = reweigh.Reweighter(model, cross_entropy, backend=backend, safeguard=None)
    expected = [torch.zeros_like(p) for p in model.parameters()]
    for train, clean in batches:
        step = reweighter(train, clean)
        penalty = sum(p.square().sum() for p in model.parameters())
        (3.0 * step.loss / 2 + penalty).backward()
        parts = definition.weighted_gradient(model, cross_entropy, train, step.weights)
        expected = [
            e + 1.5 * g + 2 * p.detach()
            for e, g, p in zip(expected, parts, model.parameters(), strict=True)
        ]
    for p, e in zip(model.parameters(), expected, strict=True):
        assert torch.allclose(p.grad, e, rtol=1e-10)


def test_works_with_gradient_scaling_and_clipping(backend):
    model, twin = mlp(), mlp()
    twin.load_state_dict(model.state_dict())
    train, clean = vectors(6), vectors(4)
    reweighter = reweigh.Reweighter(model, cross_entropy, backend=backend, safeguard=None)
    scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step = reweighter(train, clean)
    scaler.scale(step.loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    scaler.step(optimizer)
    scaler.update()
    plain = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9)
    (step.weights * cross_entropy(twin, train)).sum().backward()
    nn.utils.clip_grad_norm_(twin.parameters(), 0.05)
    plain.step()
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.allclose(p, q, atol=1e-6)


OPTIMIZERS = [
    torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.Adagrad,
    torch.optim.NAdam, torch.optim.Adadelta,
]  # fmt: skip


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_any_optimizer_sees_the_same_gradients_from_every_back_end(optimizer):
    finals = []
    for backend in ("ghost", "double_backward"):
        torch.manual_seed(5)
        model = mlp().double()
        update = optimizer(model.parameters(), lr=1e-2)
        reweighter = reweigh.Reweighter(model, cross_entropy, backend=backend)
        for _ in range(5):
            (x, y), (cx, cy) = vectors(6), vectors(4)
            update.zero_grad()
            reweighter((x.double(), y), (cx.double(), cy)).loss.backward()
            update.step()
        finals.append([p.detach().clone() for p in model.parameters()])
    for p, q in zip(*finals, strict=True):
        assert torch.allclose(p, q, rtol=1e-7, atol=1e-10)


def test_parameter_hooks_fire_once_in_backward(backend):
    model = mlp()
    seen: list[str] = []
    model[0].weight.register_post_accumulate_grad_hook(lambda p: seen.append("accumulated"))
    step = reweigh.Reweighter(model, cross_entropy, backend=backend)(vectors(6), vectors(4))
    assert seen == []
    step.loss.backward()
    assert seen == ["accumulated"]


def test_backward_twice_is_refused_as_by_any_graph(backend):
    step = reweigh.Reweighter(mlp(), cross_entropy, backend=backend)(vectors(6), vectors(4))
    step.loss.backward()
    with pytest.raises(RuntimeError, match="backward"):
        step.loss.backward()


def test_a_loss_with_parameters_of_its_own_trains_them_too(backend):
    temperature = nn.Parameter(torch.tensor(0.5, dtype=torch.float64))

    def loss(model, batch):
        return F.cross_entropy(model(batch[0]) * temperature, batch[1], reduction="none")

    model = mlp().double()
    (x, y), (cx, cy) = vectors(6), vectors(4)
    train, clean = (x.double(), y), (cx.double(), cy)
    for safeguard in (None, "auto"):
        temperature.grad = None
        step = reweigh.Reweighter(model, loss, backend=backend, safeguard=safeguard)(train, clean)
        step.loss.backward()
        (expected,) = torch.autograd.grad((step.weights * loss(model, train)).sum(), temperature)
        assert torch.allclose(temperature.grad, expected * step.factor)


class TestAuto:
    def test_is_settled_once_and_says_why(self):
        reweighter = reweigh.Reweighter(mlp(), cross_entropy)
        assert reweighter.backend == "auto"
        reweighter(vectors(6), vectors(4))
        assert reweighter.backend == "ghost"
        assert "proven" in reweighter.backend.reason
        assert reweighter.backend.exact

    def test_names_what_it_passed_over(self):
        reweighter = reweigh.Reweighter(Residual(), cross_entropy)
        reweighter(images(6, 3), images(4, 3))
        assert reweighter.backend == "forward_mode"
        assert "'norm1' (BatchNorm2d)" in reweighter.backend.reason

    @pytest.mark.parametrize(
        ("make", "expected"),
        [
            (lambda: RecurrentNormed(nn.LSTM), "double_backward"),
            (lambda: RecurrentNormed(nn.LSTM).eval(), "ghost"),
            (lambda: RecurrentNormed(nn.LSTM, units=128), "forward_mode"),
            (lambda: RecurrentNormed(nn.LSTM, words=20_000), "forward_mode"),
            (lambda: RecurrentNormed(nn.RNN), "double_backward"),
        ],
    )
    @pytest.mark.filterwarnings("ignore:the model is in eval mode")
    def test_narrow_recurrent_layers_take_the_back_end_with_the_fewest_calls(self, make, expected):
        weigh = reweigh.Reweighter(make(), cross_entropy)
        weigh(tokens(6), tokens(4))
        assert weigh.backend == expected
        assert ("mostly calls" in weigh.backend.reason) == (expected == "double_backward")

    def test_decides_again_when_the_mode_changes(self):
        model = Residual()
        reweighter = reweigh.Reweighter(model, cross_entropy)
        reweighter(images(6, 3), images(4, 3))
        model.eval()
        reweighter(images(6, 3), images(4, 3))
        assert reweighter.backend == "ghost"
        model.train()
        reweighter(images(6, 3), images(4, 3))
        assert reweighter.backend == "forward_mode"

    def test_stays_right_when_layers_freeze_and_batch_sizes_change(self):
        model = nn.Sequential(*mlp()).double()
        reweighter = reweigh.Reweighter(model, cross_entropy)
        for n, freeze in ((8, False), (3, False), (5, True), (1, True), (8, False)):
            model[0].weight.requires_grad_(not freeze)
            (x, y), (cx, cy) = vectors(n), vectors(4)
            train, clean = (x.double(), y), (cx.double(), cy)
            expected = definition.scores(model, cross_entropy, train, clean)
            assert torch.allclose(reweighter(train, clean).scores, expected, rtol=1e-9)

    def test_follows_sequences_of_varying_length(self):
        model, loss, *_ = problem("embedding-lstm").make(torch.float64)
        reweighter = reweigh.Reweighter(model, loss)
        for n, length in ((4, 6), (4, 3), (6, 6), (2, 5), (6, 4)):
            train, clean = tokens(n, length), tokens(3, length)
            expected = definition.scores(model, loss, train, clean)
            assert torch.allclose(reweighter(train, clean).scores, expected, rtol=1e-9)

    def test_follows_a_model_that_takes_turns_between_equal_branches(self):
        class Turns(nn.Module):
            def __init__(self):
                super().__init__()
                self.branches, self.turn = nn.ModuleList([mlp(), mlp(), mlp()]), 0

            def forward(self, x):
                return self.branches[self.turn](x)

        model = Turns().double()
        reweighter = reweigh.Reweighter(model, cross_entropy, safeguard=None)
        for turn in (0, 1, 0, 2, 1):
            model.turn = turn
            model.zero_grad()
            (x, y), (cx, cy) = vectors(6), vectors(4)
            train, clean = (x.double(), y), (cx.double(), cy)
            step = reweighter(train, clean)
            assert torch.allclose(
                step.scores, definition.scores(model, cross_entropy, train, clean)
            )
            step.loss.backward()
            expected = definition.weighted_gradient(model, cross_entropy, train, step.weights)
            for p, g in zip(model.parameters(), expected, strict=True):
                assert (p.grad is None) == (g is None)
                assert g is None or torch.allclose(p.grad, g)

    def test_notices_when_a_switch_couples_the_examples(self):
        """No module and no mode changes, only what forward does; the proof is for what was run."""

        class Switch(nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.coupled = mlp(), False

            def forward(self, x):
                h = self.body(x)
                return h - h.mean(0) * h.std() if self.coupled else h

        model = Switch().double()
        reweighter = reweigh.Reweighter(model, cross_entropy)
        for coupled, backend in ((False, "ghost"), (True, "forward_mode")):
            model.coupled = coupled
            (x, y), (cx, cy) = vectors(6), vectors(4)
            train, clean = (x.double(), y), (cx.double(), cy)
            expected = definition.scores(model, cross_entropy, train, clean)
            assert torch.allclose(reweighter(train, clean).scores, expected, rtol=1e-9)
            assert reweighter.backend == backend

    def test_warns_when_only_an_approximation_can_run(self):
        class Opaque(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, w):
                ctx.save_for_backward(x, w)
                return x @ w

            @staticmethod
            @torch.autograd.function.once_differentiable
            def backward(ctx, g):
                x, w = ctx.saved_tensors
                return g @ w.t(), x.t() @ g

        class Layer(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.randn(8, 4))

            def forward(self, x):
                return Opaque.apply(x, self.weight)

        reweighter = reweigh.Reweighter(Layer(), cross_entropy)
        with pytest.warns(ReweighWarning, match="approximate"):
            reweighter(vectors(6), vectors(4))
        assert reweighter.backend == "finite_difference"
        assert not reweighter.backend.exact


class TestParams:
    def test_a_subset_measures_only_its_own_gradients(self):
        model = mlp().double()
        (x, y), (cx, cy) = vectors(6), vectors(4)
        train, clean = (x.double(), y), (cx.double(), cy)
        reference = copy.deepcopy(model)
        reference[0].requires_grad_(False)
        expected = definition.scores(reference, cross_entropy, train, clean)
        for params in ("2", ["2.weight", "2.bias"], "2.*", lambda name, p: name.startswith("2")):
            for backend in ("ghost", "forward_mode", "double_backward"):
                found = reweigh.example_scores(
                    model, cross_entropy, train, clean, params=params, backend=backend
                )
                assert torch.allclose(found, expected, rtol=1e-9)

    def test_the_update_still_trains_everything(self):
        model = mlp().double()
        (x, y), (cx, cy) = vectors(6), vectors(4)
        train, clean = (x.double(), y), (cx.double(), cy)
        step = reweigh.Reweighter(model, cross_entropy, params="2", safeguard=None)(train, clean)
        step.loss.backward()
        expected = definition.weighted_gradient(model, cross_entropy, train, step.weights)
        for p, g in zip(model.parameters(), expected, strict=True):
            assert torch.allclose(p.grad, g, rtol=1e-9)


class TestChunks:
    @pytest.mark.parametrize("chunk", [1, 3, 7, 100])
    @pytest.mark.parametrize("name", ["mlp", "transformer-encoder", "nested-dict"])
    def test_same_weights_and_gradients_as_the_whole_batch(self, name, chunk):
        model, loss, train, clean = problem(name).make(torch.float64)
        whole = reweigh.Reweighter(model, loss)(train, clean)
        whole.loss.backward()
        expected = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        step = reweigh.Reweighter(model, loss, chunk=chunk)(train, clean)
        step.loss.backward()
        assert torch.allclose(step.weights, whole.weights, rtol=1e-9)
        for p, g in zip(model.parameters(), expected, strict=True):
            assert torch.allclose(p.grad, g, rtol=1e-9, atol=1e-13)

    def test_dropout_is_the_same_in_the_update(self):
        model, loss, train, clean = problem("dropout").make(torch.float64)
        reweighter = reweigh.Reweighter(model, loss, chunk=3, safeguard=None)
        torch.manual_seed(1)
        step = reweighter(train, clean)
        after = torch.get_rng_state()
        step.loss.backward()
        assert torch.equal(torch.get_rng_state(), after)
        torch.manual_seed(1)
        parts = [loss(model, (train[0][i : i + 3], train[1][i : i + 3])) for i in (0, 3, 6)]
        total = (torch.cat(parts) * step.weights).sum()
        for p, g in zip(
            model.parameters(), torch.autograd.grad(total, list(model.parameters())), strict=True
        ):
            assert torch.allclose(p.grad, g, rtol=1e-9)

    def test_memory_is_bounded_by_the_chunk(self):
        """The bytes that autograd saves at a time do not grow with the batch."""

        def peak(n: int, chunk: int | None) -> int:
            alive = 0
            high = 0

            class Held:
                def __init__(self, tensor):
                    nonlocal alive, high
                    # detached: an output that held its own graph would never be freed
                    self.tensor, self.size = tensor.detach(), tensor.numel()
                    alive += self.size
                    high = max(high, alive)

                def __del__(self):
                    nonlocal alive
                    alive -= self.size

            model = nn.Sequential(
                *[layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.Tanh())]
            )
            loss = reweigh.per_example(F.mse_loss)
            batch = (torch.randn(n, 64), torch.randn(n, 64))
            reweighter = reweigh.Reweighter(model, loss, chunk=chunk, backend="forward_mode")
            with torch.autograd.graph.saved_tensors_hooks(Held, lambda held: held.tensor):
                reweighter(batch, (batch[0][:4], batch[1][:4])).loss.backward()
            return high

        assert peak(256, 16) < 1.2 * peak(32, 16)
        assert peak(256, 16) < 0.25 * peak(256, None)


class TestWarnings:
    def test_only_zeros_for_many_steps_warns_once_with_what_to_try(self):
        model, loss, train, clean = problem("all-scores-negative").make(torch.float32)
        reweighter = reweigh.Reweighter(model, loss)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(120):
                step = reweighter(train, clean)
        assert float(step.weights.sum()) == 0
        assert float(step.loss.detach()) == 0
        messages = [str(w.message) for w in caught if w.category is ReweighWarning]
        assert len(messages) == 1
        assert "no example" in messages[0]
        assert "Try:" in messages[0]

    def test_all_weight_on_one_example_warns_once(self):
        x = torch.zeros(6, 8)
        x[0] = 1.0
        model = nn.Linear(8, 1, bias=False)
        train = (x, torch.ones(6, 1) * 100)
        clean = (x[:1], torch.ones(1, 1) * 100)
        reweighter = reweigh.Reweighter(model, reweigh.per_example(F.mse_loss))
        for _ in range(49):
            reweighter(train, clean)
        with pytest.warns(ReweighWarning, match="one example has had all the weight"):
            reweighter(train, clean)

    def test_a_forgotten_eval_mode_warns_once_where_it_matters(self):
        model = nn.Sequential(nn.Linear(8, 4), nn.Dropout(0.5)).eval()
        reweighter = reweigh.Reweighter(model, cross_entropy)
        with pytest.warns(ReweighWarning, match="eval mode"):
            reweighter(vectors(4), vectors(4))
        reweighter(vectors(4), vectors(4))  # warnings are errors here: no second one
        reweigh.Reweighter(mlp().eval(), cross_entropy)(vectors(4), vectors(4))  # does not matter


class TestCompiled:
    def test_a_compiled_model_gives_the_weights_of_the_plain_one(self):
        for name in ("mlp", "transformer-encoder", "resnet-train"):
            model, loss, train, clean = problem(name).make(torch.float64)
            plain = reweigh.Reweighter(copy.deepcopy(model), loss)(train, clean)
            compiled = torch.compile(model, backend="inductor")
            step = reweigh.Reweighter(compiled, loss)(train, clean)
            assert torch.allclose(step.weights, plain.weights, rtol=1e-9)
            step.loss.backward()

    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    @pytest.mark.filterwarnings("ignore::UserWarning")
    def test_and_still_runs_compiled_elsewhere(self):
        """Compiled by inductor before, during (in between) and after: the same numbers."""
        model = mlp()
        compiled = torch.compile(model, backend="inductor")
        (x, y), clean = vectors(6), vectors(4)
        before = compiled(x)
        theta = list(compiled.parameters())
        g = torch.autograd.grad(cross_entropy(compiled, clean).mean(), theta)
        rows = [torch.autograd.grad(cross_entropy(compiled, (x, y))[i], theta) for i in range(6)]
        expected = torch.stack(
            [sum((a * b).sum() for a, b in zip(row, g, strict=True)) for row in rows]
        )
        found = reweigh.example_scores(compiled, cross_entropy, (x, y), clean)
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5)
        assert torch.allclose(compiled(x), before)


def test_ghost_refuses_an_input_overwritten_after_use():
    class Overwrites(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.head = nn.Parameter(torch.randn(1, 8)), nn.Linear(8, 4)

        def forward(self, x):
            x = x.clone()
            h = torch.stack([self.first.flip(1).expand(len(x), 8), x], 1)
            x.zero_()
            return self.head(h.tanh().sum(1))

    arguments = (Overwrites(), cross_entropy, vectors(4), vectors(4))
    with pytest.raises(UnsupportedModelError, match="overwritten in place"):
        reweigh.example_scores(*arguments, backend="ghost")
    expected = definition.scores(*arguments)
    assert torch.allclose(reweigh.example_scores(*arguments).double(), expected, rtol=1e-4)


def test_users_can_register_rules_for_their_own_operations():
    @torch.library.custom_op("reweigh_tests::cube", mutates_args=())
    def cube(x: torch.Tensor) -> torch.Tensor:
        return x**3

    cube.register_autograd(
        lambda ctx, g: 3 * ctx.saved_tensors[0] ** 2 * g,
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )

    class Cubic(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 6), nn.Linear(6, 4)

        def forward(self, x):
            return self.b(cube(self.a(x)))

    model = Cubic()
    train, clean = vectors(6), vectors(4)
    arguments = (model, cross_entropy, train, clean)
    with pytest.raises(UnsupportedModelError, match=r"reweigh\.tangent_rule"):
        reweigh.example_scores(*arguments, backend="forward_mode")

    @reweigh.tangent_rule(torch.ops.reweigh_tests.cube.default)
    def cubed(t, out, x):
        return 3 * x**2 * t(x)

    expected = definition.scores(*arguments)
    for backend in ("forward_mode", "ghost"):
        found = reweigh.example_scores(*arguments, backend=backend)
        assert torch.allclose(found.double(), expected, rtol=1e-4)


def test_the_reason_names_the_engine_of_ghost():
    """How ghost finds its contacts stands in `.backend.reason`."""
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(8, 60))
    for first, options, words in (
        (nn.Linear(8, 60), {}, "both batches in one forward"),
        (nn.Linear(8, 60), {"one_pass": False}, "a plain forward, whose graph is read"),
        (normed, {}, "a forward that is watched, operation by operation"),
    ):
        model = nn.Sequential(first, nn.ReLU(), nn.Linear(60, 60), nn.ReLU(), nn.Linear(60, 4))
        weigh = reweigh.Reweighter(model, cross_entropy, **options)
        weigh(vectors(20), vectors(4))
        assert weigh.backend == "ghost"
        assert words in weigh.backend.reason
