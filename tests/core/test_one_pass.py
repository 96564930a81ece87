"""Train and clean rows in one pass, and clean gradients left as factors: the same numbers, found out
to be so, and two passes wherever they would not be."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import reweigh
from reweigh.core.backends.ghost import one_pass as joint
from reweigh.core.clean import Factors
from reweigh.core.clean import PartlyFactored as Values
from reweigh.errors import NonFiniteError
from support import definition, problems
from support.problems import CLASSES, PROBLEMS, cross_entropy, labelled

N, M = 24, 5
KINDS = [p for p in PROBLEMS if p.autocast is None and p.only is None]
# Those whose layers are all read off the graph, and whose forward draws no random numbers.
ONE_BY_ONE = {"mlp", "lenet", "causal-lm"}


def net(*, bias: bool = True) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(20, 30, bias=bias), nn.Tanh(), nn.Linear(30, 25, bias=bias), nn.ReLU(),
        nn.Linear(25, CLASSES),
    ).double()  # fmt: skip


def batch(n: int, *shape: int):
    x, y = labelled(n, *(shape or (20,)))
    return x.double(), y


def asked(model, loss, **options) -> reweigh.Reweighter:
    """One pass for a loss or model of the user's own: only where the user vouches for them."""
    return reweigh.Reweighter(model, loss, one_pass=True, **options)


class Rows:
    """A loss that notes how many rows each of its calls had; in a slot, which no step puts back."""

    __slots__ = ("loss", "seen")

    def __init__(self, loss=cross_entropy) -> None:
        self.loss, self.seen = loss, list[int]()

    def __call__(self, model, batch):
        values = self.loss(model, batch)
        self.seen.append(len(values))
        return values

    def in_a_step(self, reweighter, train, clean) -> list[int]:
        self.seen.clear()
        reweighter(train, clean)
        return list(self.seen)


def one_pass(reweighter, rows: Rows, n: int = N, m: int = M, make=batch) -> bool:
    """Whether a step between proofs is one pass; some other number of passes is an error."""
    for _ in range(2):
        reweighter(make(n), make(m))
    seen = rows.in_a_step(reweighter, make(n), make(m))
    assert seen in ([n + m], [m, n])
    return seen == [n + m]


def matches(reweighter, loss, train, clean) -> None:
    """Scores and update of a step against brute force."""
    model = reweighter.model
    expected = definition.scores(model, loss, train, clean)
    step = reweighter(train, clean)
    assert torch.allclose(step.scores, expected, rtol=1e-8, atol=1e-12)
    assert torch.allclose(step.clean_loss, loss(model, clean).mean())
    update = definition.weighted_gradient(model, loss, train, step.weights)
    model.zero_grad()
    step.loss.backward()
    for p, g in zip([p for p in model.parameters() if p.requires_grad], update, strict=True):
        assert (p.grad is None) == (g is None)
        assert g is None or torch.allclose(p.grad, g, rtol=1e-8, atol=1e-12)


@pytest.mark.filterwarnings("ignore:the model is in eval mode")
@pytest.mark.parametrize("problem", KINDS, ids=str)
def test_every_model_is_weighed_by_the_definition(problem, monkeypatch):
    monkeypatch.setattr(problems, "N", N)
    monkeypatch.setattr(problems, "M", M)
    monkeypatch.setattr(joint, "_light", lambda *_: True)  # also where two passes are lighter
    model, loss, train, clean = problem.make(torch.float64)
    rows = Rows(loss)
    reweighter = asked(model, rows, safeguard=None)
    for _ in range(3):  # the third is no proof
        state = torch.get_rng_state()
        buffers = [b.clone() for b in model.buffers()]
        expected = definition.scores(model, loss, train, clean)
        torch.set_rng_state(state)
        for b, before in zip(model.buffers(), buffers, strict=True):
            b.data.copy_(before)
        rows.seen.clear()
        step = reweighter(train, clean)
        assert torch.allclose(step.scores, expected, rtol=1e-7, atol=1e-10)
    if problem.name in ONE_BY_ONE:
        assert rows.seen == [len(step.losses) + M]


def test_a_buffer_that_the_graph_has_saved_is_no_reason_for_two_passes():
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(20, 30), nn.Linear(30, CLASSES)
            self.register_buffer("scale", torch.rand(30))

        def forward(self, x):
            return self.second(self.first(x) * self.scale)

    rows, model = Rows(), Scaled().double()
    reweighter = asked(model, rows, safeguard=None)
    assert one_pass(reweighter, rows)
    matches(reweighter, cross_entropy, batch(N), batch(M))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("n", "m"), [(24, 5), (24, 1), (400, 7), (24, 12), (6, 6), (4, 9)])
def test_scores_and_update_of_linear_layers(n, m, bias):
    model = net(bias=bias)
    reweighter = asked(model, cross_entropy, safeguard=None)
    for _ in range(4):
        matches(reweighter, cross_entropy, batch(n), batch(m))


def test_small_networks_take_one_pass():
    rows = Rows()
    assert one_pass(asked(net(), rows), rows)


def test_as_many_clean_rows_take_one_pass_while_that_holds_less():
    for n, less in ((6, True), (N, False)):
        rows = Rows()
        assert one_pass(asked(net(), rows), rows, n=n, m=n) == less


@pytest.mark.parametrize("before", [0, 3])
def test_a_batch_that_takes_two_passes_decides_for_its_shapes_alone(before):
    rows, model = Rows(), net()
    reweighter = asked(model, rows, safeguard=None)
    for _ in range(before):
        reweighter(batch(N), batch(M))
    matches(reweighter, cross_entropy, batch(2), batch(20))
    assert one_pass(reweighter, rows)
    assert not one_pass(reweighter, rows, n=2, m=20)


def test_two_passes_where_they_hold_less():
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, CLASSES))
    rows = Rows()
    weigher = asked(model.double(), rows)
    assert not one_pass(weigher, rows, make=lambda n: batch(n, 1, 8, 8))


def test_dropout_takes_two_passes_and_draws_as_ever():
    model = nn.Sequential(nn.Linear(20, 30), nn.Dropout(0.5), nn.Linear(30, CLASSES)).double()
    rows = Rows()
    reweighter = asked(model, rows)
    assert not one_pass(reweighter, rows)
    matching = batch(N), batch(M)
    state = torch.get_rng_state()
    expected = definition.scores(model, cross_entropy, *matching)
    torch.set_rng_state(state)
    assert torch.allclose(reweighter(*matching).scores, expected)


def test_a_model_without_randomness_leaves_the_generator_alone():
    reweighter = asked(net(), cross_entropy)
    for _ in range(3):
        train, clean = batch(N), batch(M)
        state = torch.get_rng_state()
        reweighter(train, clean)
        assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    "register",
    [
        lambda module, seen: module.register_forward_hook(lambda *a: seen.append(len(a[2]))),
        lambda module, seen: module.register_forward_pre_hook(lambda *a: seen.append(len(a[1][0]))),
        lambda module, seen: module.register_full_backward_hook(
            lambda *a: seen.append(len(a[2][0]))
        ),
    ],
)
def test_hooks_never_see_a_mixed_batch(register):
    model, seen = net(), []
    reweighter = asked(model, cross_entropy)
    reweighter(batch(N), batch(M))
    register(model[2], seen)
    for _ in range(5):
        reweighter(batch(N), batch(M)).loss.backward()
        assert set(seen) <= {N, M}
        assert seen
        seen.clear()


def test_a_loss_that_depends_on_who_else_is_there():
    def loss(model, batch):
        values = F.cross_entropy(model(batch[0]), batch[1], reduction="none")
        return values * (
            len(values) / N
        )  # no gradient mixes examples, but the size of the batch counts

    rows = Rows(loss)
    reweighter = asked(net(), rows, safeguard=None)
    assert not one_pass(reweighter, rows)
    matches(reweighter, loss, batch(N), batch(M))


def test_a_size_that_begins_to_count_is_found_when_it_is_looked_at_again():
    ramp = 0.0

    def loss(model, batch):
        values = F.cross_entropy(model(batch[0]), batch[1], reduction="none")
        return values * (1 + ramp * len(values))

    rows = Rows(loss)
    reweighter = asked(net(), rows, safeguard=None)
    assert one_pass(reweighter, rows)
    ramp = 0.5
    matches(reweighter, loss, batch(N), batch(M))  # the fourth use is one of those
    assert not one_pass(reweighter, rows)


def test_a_buffer_that_is_written_takes_two_passes():
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()
            self.register_buffer("rows", torch.zeros(()))

        def forward(self, x):
            self.rows += len(x)
            return self.net(x)

    rows, model = Rows(), Counting()
    reweighter = asked(model, rows)
    assert not one_pass(reweighter, rows)
    before = float(model.rows)
    reweighter(batch(N), batch(M))
    assert float(model.rows) == before + N


def test_batches_of_other_shapes_take_two_passes():
    def loss(model, batch):
        return F.cross_entropy(model(batch["x"].mean(1)), batch["y"], reduction="none")

    def words(n, length):
        x, y = batch(n, length, 20)
        return {"x": x, "y": y}

    rows = Rows(loss)
    reweighter = asked(net(), rows, safeguard=None)
    for length in (3, 4, 3, 5):
        matches(reweighter, rows, words(N, 3), words(M, length))
    assert rows.in_a_step(reweighter, words(N, 3), words(M, 4)) == [M, N]
    assert rows.in_a_step(reweighter, words(N, 3), words(M, 3)) == [N + M]


def test_what_is_not_a_tensor_takes_two_passes():
    def loss(model, batch):
        return F.cross_entropy(model(batch[0]), batch[1], reduction="none")

    rows = Rows(loss)
    reweighter = asked(net(), rows)
    assert not one_pass(reweighter, rows, make=lambda n: (*batch(n), "a name"))


def test_an_error_of_the_users_is_told_in_the_words_of_two_passes():
    rows = Rows()
    reweighter = asked(net(), rows)
    assert one_pass(reweighter, rows)
    train, clean = batch(N), batch(M)
    clean[0][2, 3] = float("nan")
    with pytest.raises(NonFiniteError, match="clean batch are NaN or infinite at rows 2"):
        reweighter(train, clean)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        reweighter(batch(N, 21), batch(M, 21))


def test_a_step_has_the_same_bits_whatever_went_before():
    model, train, clean = net().float(), labelled(N, 20), labelled(M, 20)
    old = asked(model, cross_entropy)
    for _ in range(7):
        old(train, clean)
    new = asked(model, cross_entropy)
    new.load_state_dict(old.state_dict())
    for _ in range(3):
        one, other = old(train, clean), new(train, clean)
        assert torch.equal(one.scores, other.scores)
        model.zero_grad()
        one.loss.backward()
        kept = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        other.loss.backward()
        assert all(map(torch.equal, kept, [p.grad for p in model.parameters()]))


def test_factors_are_multiplied_out_when_looked_at():
    b, c = torch.randn(3, 5), torch.randn(3, 4)
    values = Values([Factors(b, c, transposed=True), Factors(None, c, transposed=False), b])
    assert values.factors(2) is None
    assert values.factors(0) is not None
    brute = sum(torch.outer(c[k], b[k]) for k in range(3))
    assert torch.allclose(values[0], brute)
    assert values.factors(0) is None
    assert torch.allclose(values[1], c[0] + c[1] + c[2])
    assert values[2] is b
    assert len(values[:2]) == 2
    assert torch.allclose(Factors(b, c, transposed=False).product(), brute.t())


def test_a_safeguard_of_the_users_is_given_the_clean_gradient():
    seen = []

    class Looking:
        def __call__(self, clean_loss, direction, slope, gradient):
            seen.append([v.clone() for v in direction.values])
            return torch.ones_like(slope)

        def state_dict(self):
            return {}

        def load_state_dict(self, state):
            pass

    model = net()
    reweighter = asked(model, cross_entropy, safeguard=Looking())
    for _ in range(3):
        train, clean = batch(N), batch(M)
        reweighter(train, clean)
        for found, right in zip(
            seen[-1], definition.clean_gradient(model, cross_entropy, clean), strict=True
        ):
            assert torch.allclose(found, right, rtol=1e-10, atol=1e-14)


def test_a_gradient_of_rounding_errors_is_no_reason_for_two_passes():
    """A shift that a norm takes away again has a gradient of zero, and what is left of it is rounding."""

    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm = nn.Linear(60, 80), nn.LayerNorm(80)
            self.shift, self.head = nn.Parameter(torch.ones(1)), nn.Linear(80, CLASSES)

        def forward(self, x):
            return self.head(self.norm(self.first(x) + self.shift))

    rows = Rows()
    reweighter = asked(Shifted(), rows)
    assert one_pass(reweighter, rows, make=lambda n: labelled(n, 60))


def test_running_out_of_memory_is_no_reason_for_two_passes_for_ever():
    """The joined batch is tried again after some steps; two passes stand in meanwhile."""
    failing = True

    def loss(model, batch):
        if failing and len(batch[0]) == N + M:
            raise RuntimeError("DefaultCPUAllocator: out of memory")
        return cross_entropy(model, batch)

    rows = Rows(loss)
    reweighter = asked(net(), rows, safeguard=None)
    matches(reweighter, cross_entropy, batch(N), batch(M))
    failing = False
    assert rows.in_a_step(reweighter, batch(N), batch(M))[-2:] == [M, N]
    for _ in range(4):
        matches(reweighter, cross_entropy, batch(N), batch(M))
    assert one_pass(reweighter, rows)


def calls_of(model, **options) -> list[int]:
    """How many rows each call of a model has in a step between proofs."""
    reweighter = reweigh.Reweighter(model, cross_entropy, **options)
    seen: list[int] = []
    forward = type(model).forward

    def noting(self, x):
        if self is model:
            seen.append(len(x))
        return forward(self, x)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(model), "forward", noting)
        for _ in range(2):
            reweighter(batch(N), batch(M))
        seen.clear()
        reweighter(batch(N), batch(M))
    return seen


class Own(nn.Module):
    """A forward of the user's own: it may do anything."""

    def __init__(self) -> None:
        super().__init__()
        self.net = net()

    def forward(self, x):
        return self.net(x)


class Vouched(Own):
    row_wise = True


def test_by_construction_only_where_all_code_is_pytorchs_own():
    assert calls_of(net()) == [N + M]
    assert calls_of(net(), one_pass=False) == [M, N]
    assert calls_of(Own()) == [M, N]
    assert calls_of(Own(), one_pass=True) == [N + M]
    assert calls_of(Vouched()) == [N + M]


def test_a_criterion_sees_each_batch_by_itself():
    """A statistic of the batch, detached from the graph, does not mix the two."""

    def relative(outputs, targets, reduction):
        values = F.cross_entropy(outputs, targets, reduction=reduction)
        return values / values.detach().mean()

    loss = reweigh.per_example(relative)
    reweighter = reweigh.Reweighter(net(), loss, safeguard=None)
    for _ in range(10):
        matches(reweighter, loss, batch(N), batch(M))
