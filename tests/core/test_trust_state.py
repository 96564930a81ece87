"""State that forward passes write: scores as by brute force, and afterwards as after one plain forward.

Each case is made anew for every use, from the same seed: one copy is weighed, one runs the plain forwards,
and one more, brought to the same state, is asked for the clean gradient.
"""

from __future__ import annotations

import copy
import functools
from collections import deque

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import reweigh
from reweigh.core import BACKENDS
from reweigh.errors import UnsupportedModelError
from support import definition

ROWS = 60_000  # of a memory: more than what is copied in every step


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 60), nn.ReLU(), nn.Linear(60, 3)).double()


def remembered(q, model, batch):
    """Early-learning regularisation: a running average of predictions enters the loss."""
    x, y, rows = batch
    p = model(x).softmax(1)
    if isinstance(q, np.ndarray):
        q[rows.numpy()] = 0.7 * q[rows.numpy()] + 0.3 * p.detach().numpy()
        q = torch.from_numpy(q)
    else:
        q[rows] = 0.7 * q[rows] + 0.3 * p.detach()
    return F.nll_loss(p.log(), y, reduction="none") + (1 - (q[rows] * p).sum(1)).log()


class Memory:
    """A loss that is an object."""

    def __init__(self, rows: int = 200) -> None:
        self.q = torch.zeros(rows, 3).double()
        self.calls, self.sizes = 0, deque(maxlen=2)

    def __call__(self, model, batch):
        self.calls += 1
        self.sizes.append(len(batch[0]))
        return remembered(self.q, model, batch)

    def method(self, model, batch):
        return self(model, batch)


def object_of(rows: int):
    loss = Memory(rows)
    return network(), loss, lambda: (loss.q, loss.calls, list(loss.sizes))


def a_method():
    loss = Memory()
    return network(), loss.method, lambda: (loss.q, loss.calls, list(loss.sizes))


def a_partial():
    q = torch.zeros(200, 3).double()
    return network(), functools.partial(remembered, q), lambda: (q,)


def a_closure():
    q, count = torch.zeros(200, 3).double(), 0

    def loss(model, batch):
        nonlocal count
        count += 1
        return remembered(q, model, batch)

    return network(), loss, lambda: (q, count)


def a_numpy_array():
    loss = functools.partial(remembered, np.zeros((200, 3)))
    return network(), loss, lambda: (torch.from_numpy(loss.args[0]),)


def a_class_attribute():
    class Shared:
        q = torch.zeros(200, 3).double()

        def __call__(self, model, batch):
            return remembered(self.q, model, batch)

    loss = Shared()
    return network(), loss, lambda: (loss.q,)


GLOBAL = torch.zeros(200, 3).double()


def of_global(model, batch):
    return remembered(GLOBAL, model, batch)


def a_global():
    # One tensor for all copies of the case would not do: each has a namespace of its own.
    space = {**globals(), "GLOBAL": torch.zeros(200, 3).double()}
    loss = type(of_global)(of_global.__code__, space)
    return network(), loss, lambda: (space["GLOBAL"],)


class Centred(nn.Module):
    """A criterion with a buffer: the running mean of its losses, which they are divided by."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.ones(()).double())
        self.calls = 0

    def forward(self, outputs, targets):
        losses = F.cross_entropy(outputs, targets, reduction="none")
        self.mean.lerp_(losses.detach().mean(), 0.1)
        self.calls += 1
        return losses / self.mean.clone()


def a_criterion():
    criterion = Centred()
    judge = reweigh.per_example(criterion)
    return network(), lambda m, b: judge(m, b[:2]), lambda: (criterion.mean, criterion.calls)


def a_teacher():
    teacher = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).double()

    def loss(model, batch):
        outputs = model(batch[0])
        agreement = (outputs - teacher(batch[0]).detach()).pow(2).mean(1)
        return F.cross_entropy(outputs, batch[1], reduction="none") + agreement

    return network(), loss, lambda: tuple(teacher.state_dict().values())


def plain(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1], reduction="none")


class Attributes(nn.Module):
    """Counts, logs and remembers in plain attributes, some made by the first forward."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.steps, self.log, self.by_size = network(), 0, [], {}
        self.mean = torch.zeros(16).double()

    def forward(self, x):
        self.steps += 1
        self.log.append(len(x))
        self.by_size[len(x)] = self.steps
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        self.last = x.detach()
        return self.body(x - self.mean) / self.steps

    def state(self):
        return self.steps, self.log, self.by_size, self.mean, self.last


def attributes():
    model = Attributes()
    return model, plain, model.state


class Tokens(nn.Module):
    def __init__(self, table) -> None:
        super().__init__()
        self.table, self.head = table, nn.LazyLinear(3)

    def forward(self, x):
        ids = (x.abs() * 7).long().clamp(max=19)
        return self.head(self.table(ids).flatten(1))


def renormalised(kind):
    model = Tokens(kind(20, 6, max_norm=0.5)).double()
    model(torch.zeros(1, 16).double())
    return model, plain, lambda: (model.table.weight.detach(),)


class Clamped(nn.Module):
    def __init__(self, *, hidden: bool) -> None:
        super().__init__()
        self.first, self.second, self.hidden = nn.Linear(16, 9), nn.Linear(9, 3), hidden

    def forward(self, x):
        with torch.no_grad():
            weight = self.first.weight.data if self.hidden else self.first.weight
            weight.mul_(weight.norm().reciprocal()).clamp_(min=-0.1 * float(x.mean()) ** 2)
        return self.second(self.first(x).tanh())


def clamped(*, hidden: bool):
    model = Clamped(hidden=hidden).double()
    return model, plain, lambda: (model.first.weight.detach(),)


class Queue(nn.Module):
    """A large buffer of which every forward writes a few rows."""

    def __init__(self) -> None:
        super().__init__()
        self.body = network()
        self.register_buffer("rows", torch.zeros(ROWS, 3).double())
        self.register_buffer("constant", torch.ones(ROWS, 3).double())

    def forward(self, x):
        outputs = self.body(x)
        self.rows[: len(x)] += outputs.detach()
        return outputs + 0.1 * self.rows[: len(x)].mean(0) + self.constant[0]


def large_buffers():
    model = Queue()
    return model, plain, lambda: (model.rows, model.constant)


CASES = {
    "a loss object": functools.partial(object_of, 200),
    "a large memory": functools.partial(object_of, ROWS),
    "a method": a_method,
    "a partial": a_partial,
    "a closure": a_closure,
    "a numpy array": a_numpy_array,
    "a class attribute": a_class_attribute,
    "a global": a_global,
    "a criterion": a_criterion,
    "a teacher": a_teacher,
    "attributes": attributes,
    "embedding": functools.partial(renormalised, nn.Embedding),
    "bag": functools.partial(renormalised, nn.EmbeddingBag),
    "clamped": functools.partial(clamped, hidden=False),
    "clamped through data": functools.partial(clamped, hidden=True),
    "large buffers": large_buffers,
}
WRITES_PARAMETERS = {"embedding", "bag", "clamped", "clamped through data"}
# Elsewhere state is made of detached results, which a difference of losses sees through.
WITHOUT_DETACHED = {"a teacher", "attributes", *WRITES_PARAMETERS}


def made(case: str):
    torch.manual_seed(3)
    return CASES[case]()


def batch(n: int, first: int):
    x = torch.randn(n, 16).double()
    return x, torch.randint(3, (n,)), torch.arange(first, first + n)


def parts(whole, chunk):
    n = len(whole[0])
    return [tuple(t[i : i + (chunk or n)] for t in whole) for i in range(0, n, chunk or n)]


def brute(case: str, history, train, clean):
    """Scores, and the weighted gradient as a function, by plain autograd on copies of the case."""
    model, loss, _ = made(case)
    for past in history:
        loss(model, past)
    theta = [p for p in model.parameters() if p.requires_grad]
    direction = torch.autograd.grad(loss(model, clean).mean(), theta)
    model, loss, _ = made(case)
    for past in history:
        loss(model, past)
    theta = [p for p in model.parameters() if p.requires_grad]
    losses = torch.cat([loss(model, part) for part in train])
    scores = []
    for f in losses:
        g = torch.autograd.grad(f, theta, retain_graph=True)
        scores.append(sum((a * v).sum() for a, v in zip(g, direction, strict=True)))
    return torch.stack(scores), lambda w: torch.autograd.grad((w * losses).sum(), theta)


def same(a, b) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.allclose(a, b, rtol=1e-12, atol=1e-13)
    return len(a) == len(b) and all(map(same, a, b)) if isinstance(a, tuple) else a == b


def refused(case: str, backend: str) -> str | None:
    if backend == "finite_difference" and case in WRITES_PARAMETERS:
        return "writes to its parameter"
    if backend == "double_backward" and case == "bag":
        return "cannot be differentiated twice"
    return None


@pytest.mark.parametrize("chunk", [None, 3])
@pytest.mark.parametrize("backend", ["auto", *BACKENDS])
@pytest.mark.parametrize("case", CASES)
def test_leaves_what_one_forward_leaves(case, backend, chunk):
    model, loss, observed = made(case)
    twin, its_loss, expected = made(case)
    weigh = reweigh.Reweighter(model, loss, backend=backend, chunk=chunk, safeguard=None)
    history = []
    for step in range(3):
        torch.manual_seed(step)
        train, clean = batch(6, 10 * step), batch(4, 100 + step)
        if (words := refused(case, backend)) is not None:
            with pytest.raises(UnsupportedModelError, match=words):
                weigh(train, clean)
            return
        scores, gradient = brute(case, history, parts(train, chunk), clean)
        result = weigh(train, clean)
        history += parts(train, chunk)
        for part in parts(train, chunk):
            its_loss(twin, part)
        tolerance = 1e-8 if backend != "finite_difference" else 1e-3
        if backend != "finite_difference" or case in WITHOUT_DETACHED:
            assert torch.allclose(result.scores, scores, rtol=tolerance, atol=tolerance)
        assert same(observed(), expected())
        model.zero_grad()
        result.loss.backward()
        assert same(observed(), expected())
        for p, g in zip(model.parameters(), gradient(result.weights), strict=True):
            assert torch.allclose(p.grad, g, rtol=1e-8, atol=1e-10)


def test_in_one_pass_the_criterion_remembers_the_train_batch_only():
    criterion = Centred()
    model = nn.Sequential(
        nn.Linear(16, 300), nn.ReLU(), nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 3)
    ).double()
    twin = copy.deepcopy(criterion)
    weigh = reweigh.Reweighter(model, reweigh.per_example(criterion))
    for step in range(5):
        train, clean = batch(60, 0)[:2], batch(4, 0)[:2]
        weigh(train, clean)
        twin(model(train[0]), train[1])
        assert "one forward" in weigh.backend.reason
        assert torch.allclose(criterion.mean, twin.mean)
        assert criterion.calls == step + 1


class Copies(TorchDispatchMode):
    """The sizes of all copies, in elements."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in (torch.ops.aten.clone.default, torch.ops.aten.copy_.default):
            self.sizes.append(args[0].numel())
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("written", [False, True])
def test_a_large_buffer_is_copied_only_if_it_is_written(written):
    model = Queue()
    if not written:
        model.forward = lambda x: model.body(x) + model.constant[0]
    weigh = reweigh.Reweighter(model, plain)
    for _ in range(5):  # the next look is at the eighth step
        weigh(batch(6, 0), batch(4, 0))
    with Copies() as copies:
        weigh(batch(6, 0), batch(4, 0))
    large = [size for size in copies.sizes if size == model.rows.numel()]
    assert len(large) == (2 if written else 0)  # to keep it, and to put it back


def test_large_state_that_is_written_later_is_an_error_once():
    model = Queue()
    twin = copy.deepcopy(model)
    twin.forward = lambda x: twin.body(x) + twin.constant[0]
    weigh = reweigh.Reweighter(twin, plain)
    for _ in range(5):
        weigh(batch(6, 0), batch(4, 0))
    del twin.forward
    with pytest.raises(UnsupportedModelError, match=r"written to 'rows', a tensor .* call again"):
        weigh(batch(6, 0), batch(4, 0))
    model.load_state_dict(twin.state_dict())
    for _ in range(4):
        train = batch(6, 0)
        weigh(train, batch(4, 0))
        model(train[0])
        assert torch.allclose(twin.rows, model.rows)


def test_large_running_averages_whose_writes_are_not_counted():
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm1d(ROWS * 5), nn.Linear(ROWS * 5, 3))
    twin = copy.deepcopy(model)
    version = model[0].running_mean._version
    weigh = reweigh.Reweighter(model, plain, safeguard=None)
    for _ in range(3):
        train, clean = ((torch.randn(n, ROWS * 5), torch.arange(n) % 3) for n in (4, 3))
        weigh(train, clean)
        twin(train[0])
        assert torch.allclose(model[0].running_mean, twin[0].running_mean)
    assert model[0].running_mean._version == version


def test_state_that_cannot_be_compared_or_written():
    """Attributes made under inference_mode, on the meta device, sparse, expanded, quantised."""
    model = network()
    with torch.inference_mode():
        model.last = torch.ones(3)
    model.placeholder, model.sparse = torch.ones(3, device="meta"), torch.eye(3).to_sparse()
    model.same, model.frozen = torch.ones(1).expand(3), np.broadcast_to(np.ones(1), (3,))
    train, clean = batch(6, 0), batch(4, 0)
    expected = definition.scores(model, plain, train, clean)
    assert torch.allclose(reweigh.Reweighter(model, plain)(train, clean).scores, expected)
