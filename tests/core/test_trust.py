# ruff: noqa: NPY002 - models of users do draw from numpy's shared generator
"""Situations in which weights used to be wrong without a word: now exact, or refused by name."""

from __future__ import annotations

import collections
import copy
import random
import threading

import numpy as np
import pytest
import torch
import torch._dynamo
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import reweigh
from reweigh.errors import BatchError, SettingError, UnsupportedModelError
from support import definition

LOSS = reweigh.per_example(F.cross_entropy)


def labelled(n: int, *shape: int):
    return torch.randn(n, *(shape or (8,))).double(), torch.randint(3, (n,))


def exact(step, model, loss, train, clean) -> None:
    expected = definition.scores(model, loss, train, clean)
    assert torch.allclose(step.scores, expected, rtol=1e-7, atol=1e-10)


class Sorting(nn.Module):
    """Sorts its batch by length, as code around recurrent layers does."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x, lengths):
        order = lengths.argsort(descending=True, stable=True)
        return self.second(self.first(x[order]).relu()[order.argsort()])


def by_length(model, batch):
    return F.cross_entropy(model(batch[0], batch[1]), batch[2], reduction="none")


def test_an_order_that_comes_from_data_is_measured_in_every_step():
    def batch(n: int, *, ordered: bool):
        x, y = labelled(n)
        lengths = torch.randint(1, 50, (n,))
        return x, lengths.sort(descending=True)[0] if ordered else lengths, y

    model = Sorting().double()
    weigh = reweigh.Reweighter(model, by_length, safeguard=None)
    for step in range(1, 20):  # between looks at 8 and 16 too
        train, clean = batch(16, ordered=step <= 9), batch(4, ordered=True)
        exact(weigh(train, clean), model, by_length, train, clean)


def test_an_input_overwritten_before_backward_is_an_error_as_in_pytorch():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(64, 3)).double()
    weigh = reweigh.Reweighter(model, LOSS, safeguard=None)
    x, y = labelled(8, 1, 6, 6)
    step = weigh((x, y), labelled(4, 1, 6, 6))
    x.copy_(torch.randn_like(x))
    with pytest.raises(RuntimeError, match="modified by an in-place operation"):
        step.loss.backward()


LOG: list[bool] = []  # not the model's, or passes that are undone would be taken out of it


class Drawing(nn.Module):
    """Skips a layer at random, by numbers that are not torch's default ones."""

    def __init__(self, draw) -> None:
        super().__init__()
        self.first, self.skipped, self.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.draw = draw
        self.own = torch.Generator().manual_seed(1)
        self.numbers = np.random.default_rng(1)

    def forward(self, x):
        LOG.append(self.draw(self) < 0.5)
        h = self.first(x).relu()
        return self.last(self.skipped(h).relu() if LOG[-1] else h)


DRAWS = {
    "python": lambda model: random.random(),
    "numpy": lambda model: np.random.rand(),
    "a generator of its own": lambda model: float(torch.rand((), generator=model.own)),
    "numpy's own": lambda model: model.numbers.random(),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_every_random_number_is_replayed(draw):
    random.seed(0)
    np.random.seed(0)
    model = Drawing(draw).double()
    weigh = reweigh.Reweighter(model, LOSS, safeguard=None, chunk=4, rule=torch.ones_like)
    for _ in range(6):
        LOG.clear()
        step = weigh(labelled(8), labelled(4))
        scored = LOG[-2:]
        LOG.clear()
        step.loss.backward()
        assert scored == LOG


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
@pytest.mark.parametrize("backend", ["auto", "finite_difference"])
def test_a_step_draws_as_one_forward_does(draw, backend):
    model = Drawing(draw).double()
    plain = copy.deepcopy(model)
    plain.own.set_state(model.own.get_state())
    weigh = reweigh.Reweighter(model, LOSS, backend=backend)
    train, clean = labelled(6), labelled(4)
    for _ in range(3):
        before = random.getstate(), np.random.get_state(), torch.get_rng_state()
        plain(train[0])
        after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
        random.setstate(before[0])
        np.random.set_state(before[1])
        torch.set_rng_state(before[2])
        weigh(train, clean)
        assert random.getstate() == after[0]
        assert np.random.get_state()[1].tolist() == after[1]
        assert torch.equal(torch.get_rng_state(), after[2])
        assert torch.equal(model.own.get_state(), plain.own.get_state())
        assert model.numbers.bit_generator.state == plain.numbers.bit_generator.state


class Spelled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(128, 8), nn.Linear(8, 3)

    def forward(self, text):
        return self.head(self.table(torch.tensor([ord(c) for c in text])).mean(0))


def of_texts(model, batch):
    pairs = zip(batch["text"], batch["label"], strict=True)
    return torch.stack([F.cross_entropy(model(text), label) for text, label in pairs])


@pytest.mark.parametrize("kind", [dict, collections.UserDict], ids=["dict", "UserDict"])
def test_chunks_cut_lists_as_they_cut_tensors(kind):
    def batch(n: int):
        texts = ["".join(random.choices("abcdefgh", k=5)) for _ in range(n)]
        return kind({"text": texts, "label": torch.randint(3, (n,)), "name": "the whole batch"})

    model, train, clean = Spelled().double(), batch(7), batch(4)
    for chunk in (None, 3):
        weigh = reweigh.Reweighter(model, of_texts, chunk=chunk)
        exact(weigh(train, clean), model, of_texts, train, clean)


def test_a_list_that_can_be_read_in_two_ways_is_not_cut():
    def loss(model, batch):
        return F.cross_entropy(model(batch["x"][0]), batch["y"], reduction="none")

    batch = {
        "x": [torch.randn(3, 8), torch.randn(3, 8), torch.randn(3, 8)],
        "y": torch.tensor([0, 1, 2]),
    }
    with pytest.raises(BatchError, match="can be read in two ways"):
        reweigh.Reweighter(nn.Linear(8, 3), loss, chunk=2)(batch, batch)


class Normalising(nn.Module):
    """Normalises its input in place."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(8, 16), nn.GroupNorm(2, 16), nn.ReLU(), nn.Linear(16, 3)
        )

    def forward(self, x):
        return self.body(x.sub_(0.5).div_(0.25))


@pytest.mark.parametrize("backend", ["auto", *reweigh.core.BACKENDS])
def test_a_model_that_writes_to_its_input(backend):
    model = Normalising().double()
    weigh = reweigh.Reweighter(model, LOSS, safeguard=None, backend=backend)
    for _ in range(3):
        train, clean = labelled(6), labelled(4)
        untouched = copy.deepcopy((train, clean))
        step = weigh(train, clean)
        model.zero_grad()
        step.loss.backward()
        expected = definition.scores(model, LOSS, *copy.deepcopy(untouched))
        tolerance = 1e-7 if weigh.backend.exact else 1e-3
        assert torch.allclose(step.scores, expected, rtol=tolerance, atol=tolerance)
        losses = LOSS(model, copy.deepcopy(untouched[0]))
        right = torch.autograd.grad((step.weights * losses).sum(), list(model.parameters()))
        for p, gradient in zip(model.parameters(), right, strict=True):
            assert torch.allclose(p.grad, gradient, rtol=1e-7, atol=1e-10)
        assert torch.allclose(train[0], (untouched[0][0] - 0.5) / 0.25)  # as after one forward
        assert torch.equal(clean[0], untouched[1][0])


def test_a_first_layer_in_place():
    model = nn.Sequential(
        nn.ReLU(inplace=True), nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)
    ).double()
    weigh = reweigh.Reweighter(model, LOSS, safeguard=None)
    for _ in range(3):
        train, clean = labelled(6), labelled(4)
        untouched = copy.deepcopy((train, clean))
        step = weigh(train, clean)
        expected = definition.scores(model, LOSS, *copy.deepcopy(untouched))
        assert torch.allclose(step.scores, expected)
        assert torch.equal(train[0], untouched[0][0].relu())
        assert torch.equal(clean[0], untouched[1][0])


def test_writing_to_the_input_under_chunks_is_refused():
    weigh = reweigh.Reweighter(Normalising().double(), LOSS, chunk=3)
    with pytest.raises(UnsupportedModelError, match="writes to its input in place"):
        weigh(labelled(6), labelled(4))


class Adapted(nn.Module):
    """Frozen inputs that require a gradient, as `enable_input_require_grads` makes them."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
        self.head = nn.Linear(8, 3)
        self.reentrant = True

    def forward(self, x):
        inner = self.frozen(x).requires_grad_()
        return self.head(checkpoint(self.body, inner, use_reentrant=self.reentrant))


@pytest.mark.parametrize("backend", ["auto", *reweigh.core.BACKENDS])
@pytest.mark.filterwarnings("ignore")
def test_parameters_hidden_by_a_reentrant_checkpoint_are_named(backend):
    model, train, clean = Adapted().double(), labelled(6), labelled(4)
    with pytest.raises(UnsupportedModelError, match="use_reentrant=False"):
        reweigh.example_scores(model, LOSS, train, clean, backend=backend)
    with pytest.raises(UnsupportedModelError, match="use_reentrant=False"):
        reweigh.Reweighter(model, LOSS, backend=backend)(train, clean)
    model.reentrant = False
    if backend in ("auto", "ghost"):
        exact(
            reweigh.Reweighter(model, LOSS, backend=backend)(train, clean),
            model,
            LOSS,
            train,
            clean,
        )


def test_a_batch_statistic_that_is_detached_from_the_graph():
    def loss(model, batch):
        x, y, own = batch
        return F.cross_entropy(model(x), y, reduction="none") * own / own.mean()

    def batch(n: int, *, even: bool):
        return *labelled(n, 20), torch.ones(n) if even else torch.rand(n) ** 3 + 0.01

    model = nn.Sequential(nn.Linear(20, 60), nn.ReLU(), nn.Linear(60, 3)).double()
    weigh = reweigh.Reweighter(model, loss, safeguard=None)
    for step in range(1, 20):
        train, clean = batch(50, even=step <= 9), batch(10, even=step <= 9)
        exact(weigh(train, clean), model, loss, train, clean)


def scripted():
    return torch.jit.script(nn.Linear(8, 3))


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (scripted, "TorchScript"),
        (lambda: nn.Linear(8, 3, device="meta"), "meta device"),
    ],
    ids=["scripted", "meta"],
)
def test_models_that_cannot_be_followed_are_refused_by_name(make, words):
    with pytest.raises(UnsupportedModelError, match=words):
        reweigh.Reweighter(make(), LOSS)(labelled(6), labelled(4))


def test_modes_that_a_step_cannot_run_in_are_named():
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)), nn.Linear(8, 3))
    weigh = reweigh.Reweighter(model.double(), LOSS)
    with nn.utils.parametrize.cached(), pytest.raises(SettingError, match=r"parametrize\.cached"):
        weigh(labelled(6), labelled(4))
    with torch.inference_mode(), pytest.raises(SettingError, match="inference_mode"):
        weigh(labelled(6), labelled(4))
    weigh(labelled(6), labelled(4))


class Buffered(nn.Module):
    def __init__(self, buffer) -> None:
        super().__init__()
        self.register_buffer("table", buffer)
        self.layer = nn.Linear(8, 3)

    def forward(self, x):
        if self.table.shape == (0,):
            self.table.resize_(3).fill_(1.0)
        return self.layer(x) * self.table.sum().clamp(max=1)


def test_buffers_that_share_memory_or_are_resized():
    grid, _ = torch.meshgrid(torch.arange(4.0), torch.arange(4.0), indexing="ij")
    for buffer in (grid.double(), torch.zeros(0).double(), torch.ones(2, 1).double().expand(2, 3)):
        model = Buffered(buffer).double()
        train, clean = labelled(6), labelled(4)
        weigh = reweigh.Reweighter(model, LOSS)
        weigh(train, clean)
        plain = copy.deepcopy(model)
        plain.table = buffer.clone(memory_format=torch.contiguous_format)
        exact(weigh(train, clean), plain, LOSS, train, clean)


def test_a_second_derivative_of_a_step_is_refused():
    model = nn.Linear(8, 3).double()
    step = reweigh.Reweighter(model, LOSS)(labelled(6), labelled(4))
    with pytest.raises(RuntimeError, match="create_graph=True"):
        torch.autograd.grad(step.loss, model.weight, create_graph=True)
    step = reweigh.Reweighter(model, LOSS)(labelled(6), labelled(4))
    torch.autograd.grad(step.loss, model.weight, retain_graph=True)
    with pytest.raises(RuntimeError, match="also with retain_graph=True"):
        step.loss.backward()


def test_threads_leave_the_switches_of_the_process_alone():
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.head = nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 3)

        def forward(self, x):
            return self.head(self.layer(x)[0].mean(1))

    def work() -> None:
        weigh = reweigh.Reweighter(Recurrent().double(), LOSS)
        for _ in range(5):
            weigh(labelled(6, 5, 8), labelled(4, 5, 8)).loss.backward()

    before = torch.backends.mkldnn.enabled, torch._dynamo.eval_frame._stance.stance
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (torch.backends.mkldnn.enabled, torch._dynamo.eval_frame._stance.stance) == before


def test_hooks_on_all_modules_never_see_a_mixed_batch():
    seen: list[int] = []
    model = nn.Sequential(nn.Linear(8, 30), nn.ReLU(), nn.Linear(30, 3)).double()
    handle = nn.modules.module.register_module_forward_hook(lambda m, x, y: seen.append(len(y)))
    try:
        weigh = reweigh.Reweighter(model, LOSS)
        for _ in range(3):
            weigh(labelled(20), labelled(4))
    finally:
        handle.remove()
    assert set(seen) == {4, 20}


def test_the_number_of_losses_is_the_number_of_examples():
    """Images of different sizes in a list, sequences with the batch second, one loss per group."""
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))

    def of_images(model, batch):
        outputs = torch.cat([model(image[None]) for image in batch["images"]])
        return F.cross_entropy(outputs, torch.stack(batch["labels"]), reduction="none")

    def images(n: int):
        return {
            "images": [torch.randn(3, 8, 8 + i).double() for i in range(n)],
            "labels": [torch.tensor(i % 3) for i in range(n)],
        }

    def of_groups(model, batch):
        x, y, group = batch
        losses = F.cross_entropy(model(x), y, reduction="none")
        return torch.zeros(int(group.max()) + 1).double().index_add(0, group, losses)

    def groups(n: int):
        return *labelled(n), torch.arange(n) // 3

    for model, loss, train, clean in (
        (net.double(), of_images, images(6), images(4)),
        (nn.Linear(8, 3).double(), of_groups, groups(12), groups(6)),
    ):
        exact(reweigh.Reweighter(model, loss)(train, clean), model, loss, train, clean)


class Tokens(nn.Module):
    """Sequence first: [length, n]."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.body, self.head = nn.Embedding(9, 6), nn.GRU(6, 6), nn.Linear(6, 9)

    def forward(self, x):
        return self.head(self.body(self.table(x))[0])


def test_batches_with_the_examples_second():
    def loss(model, x):
        outputs = model(x[:-1]).permute(1, 2, 0)
        return F.cross_entropy(outputs, x[1:].t(), reduction="none").mean(1)

    model = Tokens().double()
    train, clean = torch.randint(9, (8, 16)), torch.randint(9, (8, 4))
    exact(reweigh.Reweighter(model, loss)(train, clean), model, loss, train, clean)


@pytest.mark.parametrize("backend", ["auto", "ghost", "double_backward"])
def test_backward_hooks_see_the_weighted_gradient_once(backend):
    model, seen = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)).double(), []
    model[2].register_full_backward_hook(lambda module, inputs, outputs: seen.append(outputs[0]))
    weigh = reweigh.Reweighter(model, LOSS, backend=backend, safeguard=None)
    for _ in range(3):
        train, clean = labelled(6), labelled(4)
        step = weigh(train, clean)
        assert not seen
        step.loss.backward()
        (mine,) = seen
        seen.clear()
        (step.weights * LOSS(model, train)).sum().backward()
        assert torch.allclose(mine, seen.pop())
    exact(step, model, LOSS, train, clean)


def test_batches_made_under_inference_mode_are_named():
    with torch.inference_mode():
        train, clean = labelled(6), labelled(4)
    for between in ((), (nn.Dropout(0.1),)):  # in one pass, and in two
        model = nn.Sequential(nn.Linear(8, 60), *between, nn.Linear(60, 3)).double()
        with pytest.raises(BatchError, match=r"clean batch holds tensors made under torch\.inf"):
            reweigh.Reweighter(model, LOSS)(train, clean)


@pytest.mark.parametrize("one_pass", [None, True])
@pytest.mark.parametrize("switch", ["rate", "mode", "functional"])
@pytest.mark.filterwarnings("ignore:the model is in eval mode")
def test_a_noise_that_is_switched_on_later_draws_as_one_forward_does(switch, one_pass):
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rate, self.body = 0.0, nn.Linear(60, 60)

        def forward(self, x):
            return self.body(F.dropout(x, self.rate) if self.rate else x)

    between = Noisy() if switch == "functional" else nn.Dropout(0.0 if switch == "rate" else 0.5)
    model = nn.Sequential(nn.Linear(8, 60), between, nn.Linear(60, 60), nn.Linear(60, 3)).double()
    model.train(switch != "mode")
    weigh = reweigh.Reweighter(model, LOSS, one_pass=one_pass, safeguard=None)
    for step in range(12):
        if step == 5:  # between two looks
            model.train()
            between.p = between.rate = 0.5
        train, clean = labelled(40), labelled(6)
        before = torch.get_rng_state()
        expected = definition.scores(model, LOSS, train, clean)
        after = torch.get_rng_state()
        torch.set_rng_state(before)
        result = weigh(train, clean)
        assert torch.equal(torch.get_rng_state(), after)
        assert torch.allclose(result.scores, expected, rtol=1e-7, atol=1e-10)
        assert torch.equal(after, before) == (step < 5)


@pytest.mark.parametrize("place", ["attribute", "list", "loss"])
@pytest.mark.parametrize("backend", ["auto", "finite_difference"])
def test_a_generator_handed_over_later_is_replayed(backend, place):
    """Or exchanged. (The first one in a list is found at the next look: the fourth step here.)"""

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.own, self.owns = nn.Linear(8, 3), None, [None]

        def forward(self, x):
            own = (
                self.own if place == "attribute" else self.owns[0] if place == "list" else loss.own
            )
            return self.layer(x) if own is None else self.layer(x * torch.rand(8, generator=own))

    class Own:
        own = None

        def __call__(self, model, batch):
            return F.cross_entropy(model(batch[0]), batch[1], reduction="none")

    loss, model = Own(), Masked().double()
    weigh = reweigh.Reweighter(model, loss, backend=backend, safeguard=None, chunk=4)
    for step in range(7):
        if step in (3, 5):
            own = torch.Generator().manual_seed(step)
            model.own = model.owns[0] = loss.own = own
            twin = torch.Generator().manual_seed(step)
        train, clean = labelled(8), labelled(4)
        result = weigh(train, clean)
        if step < 3:
            continue
        factors = torch.stack([torch.rand(8, generator=twin) for _ in range(2)])  # one per chunk
        assert torch.equal(own.get_state(), twin.get_state())
        x = (train[0].unflatten(0, (2, 4)) * factors[:, None]).flatten(0, 1)
        assert torch.allclose(
            result.losses, F.cross_entropy(model.layer(x), train[1], reduction="none")
        )
        model.zero_grad()
        result.loss.backward()
        right = (result.weights * F.cross_entropy(model.layer(x), train[1], reduction="none")).sum()
        (gradient,) = torch.autograd.grad(right, [model.layer.weight])
        assert torch.allclose(model.layer.weight.grad, gradient)
        assert torch.equal(own.get_state(), twin.get_state())
