"""Splits are disjoint, exact in size and the same everywhere; presets have the paper's counts."""

import hashlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh import data
from reweigh.errors import SettingError, UnknownNameError


def digest(*tensors: torch.Tensor) -> str:
    return hashlib.sha256(b"".join(t.numpy().astype("<i8").tobytes() for t in tensors)).hexdigest()


def fake(name: str, *, train: int, test: int, classes: int) -> data.Dataset:
    """Labels of the right number, images of one pixel."""

    def part(count):
        return data.Examples(
            torch.zeros(count, 1, 1, 1, dtype=torch.uint8), torch.arange(count) % classes
        )

    return data.Dataset(name, part(train), part(test), tuple(map(str, range(classes))))


@given(
    st.lists(st.integers(0, 4), min_size=60, max_size=200),
    st.integers(0, 30),
    st.integers(0, 30),
    st.integers(0, 2**32),
)
@settings(max_examples=60, deadline=None)
def test_parts_are_disjoint_and_cover_everything(labels, clean, hyper, seed):
    labels = torch.tensor(labels)
    parts = data.split(labels, seed=seed, clean=clean, hyper_validation=hyper)
    assert [len(parts.clean), len(parts.hyper_validation)] == [clean, hyper]
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(len(labels)))


@given(st.integers(0, 2**32), st.integers(0, 8))
@settings(max_examples=30, deadline=None)
def test_a_clean_set_per_class_is_exact(seed, per_class):
    labels = torch.arange(100) % 7
    parts = data.split(labels, seed=seed, clean_per_class=per_class, hyper_validation=20)
    assert labels[parts.clean].bincount(minlength=7).tolist() == [per_class] * 7
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(100))


def test_known_answers_hold():
    labels = torch.arange(50_000) % 10
    plain = data.split(labels, seed=0, clean=1000, hyper_validation=5000)
    per_class = data.split(labels, seed=0, clean_per_class=10, hyper_validation=5000)
    assert digest(*plain) == KNOWN_PLAIN
    assert digest(*per_class) == KNOWN_PER_CLASS


@pytest.mark.parametrize(
    ("share", "fours"), [(0.9, 500), (0.95, 250), (0.98, 100), (0.99, 50), (0.995, 25)]
)
def test_the_mnist_task_has_the_papers_counts(share, fours):
    mnist = fake("mnist", train=60_000, test=10_000, classes=10)
    task = data.prepare(mnist, data.preset("mnist-imbalance", share=share), seed=0)
    assert task.classes == ("4", "9")
    assert task.clean.targets.bincount().tolist() == [5, 5]
    assert task.train.targets.bincount().tolist() == [fours - 5, 5000 - fours - 5]
    assert len(task.hyper_validation) == 0
    assert task.test.targets.bincount().tolist() == [1000, 1000]
    # 9 is the positive class
    assert (mnist.train.targets[task.train.ids] == 9).eq(task.train.targets == 1).all()
    assert share in data.MAJORITY_SHARES


def test_the_published_mnist_task_leaves_out_5000_and_tests_on_250_of_each():
    mnist = fake("mnist", train=60_000, test=10_000, classes=10)
    task = data.prepare(mnist, data.preset("mnist-imbalance", published_code=True), seed=0)
    assert min(task.train.ids.min(), task.clean.ids.min()) >= 5000
    assert task.test.targets.bincount().tolist() == [250, 250]


@pytest.mark.parametrize("classes", [10, 100])
@pytest.mark.parametrize("kind", ["uniform", "background"])
def test_the_cifar_tasks_have_the_papers_counts(classes, kind):
    cifar = fake(f"cifar{classes}", train=50_000, test=10_000, classes=classes)
    recipe = data.preset(f"cifar{classes}-{kind}", seed=1)
    task = data.prepare(cifar, recipe, seed=1)
    clean = 1000 if kind == "uniform" else 10 * classes
    assert len(task.clean) == clean
    assert len(task.train) == 45_000 - clean
    assert len(task.hyper_validation) == 5_000
    assert len(task.test) == 10_000
    ids = torch.cat([task.train.ids, task.clean.ids, task.hyper_validation.ids])
    assert torch.equal(ids.sort().values, torch.arange(50_000))
    assert not task.clean.changed.any()
    assert not task.test.changed.any()
    for part in (task.train, task.hyper_validation):
        eligible = (part.truth != recipe.background) | torch.tensor(kind == "uniform")
        assert int(part.changed.sum()) == int(0.4 * int(eligible.sum()) + 0.5)
    if kind == "background":
        assert recipe.background == data.BACKGROUNDS[f"cifar{classes}"][1]
        assert task.clean.targets.bincount().unique().tolist() == [10]


def test_the_published_cifar_tasks_draw_clean_images_without_regard_to_class():
    recipe = data.preset("cifar10-background", published_code=True)
    assert (recipe.clean, recipe.clean_per_class) == (100, 0)
    recipe = data.preset("cifar10-uniform", published_code=True)
    assert (recipe.clean, recipe.variant) == (1000, "published_code")


def test_clean_images_can_stay_in_the_train_set():
    cifar = fake("cifar10", train=1000, test=100, classes=10)
    recipe = data.Recipe(
        "cifar10", "uniform_flip", rate=0.4, clean_per_class=2, clean_in_train=True
    )
    task = data.prepare(cifar, recipe, seed=0)
    assert len(task.train) == 1000
    assert torch.isin(task.clean.ids, task.train.ids).all()


def test_a_task_is_a_function_of_its_seed():
    cifar = fake("cifar10", train=50_000, test=100, classes=10)
    recipe = data.preset("cifar10-background", seed=0)
    one, same, other = (data.prepare(cifar, recipe, seed=s) for s in (0, 0, 1))
    assert torch.equal(one.train.ids, same.train.ids)
    assert torch.equal(one.train.targets, same.train.targets)
    assert not torch.equal(one.train.ids, other.train.ids)
    assert digest(one.train.ids, one.train.targets, one.clean.ids) == KNOWN_TASK


def test_bad_input_says_what_to_do():
    labels = torch.arange(20) % 2
    with pytest.raises(SettingError, match=r"11 clean examples of class 0 .* it has 10"):
        data.split(labels, seed=0, clean_per_class=11)
    with pytest.raises(SettingError, match="were asked of 20; ask for fewer"):
        data.split(labels, seed=0, clean=15, hyper_validation=10)
    with pytest.raises(SettingError, match="contradict"):
        data.split(labels, seed=0, clean=1, clean_per_class=1)
    with pytest.raises(SettingError, match="hyper_validation is -1"):
        data.split(labels, seed=0, hyper_validation=-1)
    with pytest.raises(SettingError, match=r"from 0\.5 to under 1"):
        data.shares(majority=9, minority=4, share=1.0, size=5000)
    with pytest.raises(SettingError, match="leaves no example of class 4"):
        data.shares(majority=9, minority=4, share=0.99, size=10)
    with pytest.raises(SettingError, match=r"30 examples of class 1 were asked, but it has 10"):
        data.imbalance(labels, {1: 30}, seed=0)
    with pytest.raises(UnknownNameError, match="did you mean 'cifar10-uniform'"):
        data.preset("cifar10-unifrom")
    with pytest.raises(SettingError, match="no majority share"):
        data.preset("cifar10-uniform", share=0.9)
    with pytest.raises(SettingError, match="no background class"):
        data.preset("cifar10-uniform", background=3)


KNOWN_PLAIN = "4990f1adebbf0aca64111eee6158e82000740d525d63fb19937d7d9a1080ee5f"
KNOWN_PER_CLASS = "51b85a5ebe8a43d8e2a44849f4612b1378314ed28535b8101c85d50333a711d3"
KNOWN_TASK = "c4a4bfc0c1934b012cf3a67011ec6e2159f3e9286d202d338b942d9659942dd9"


def test_clean_images_can_be_spread_evenly_over_the_classes():
    labels = torch.arange(10).repeat(30)
    for seed in range(3):
        cut = data.split(labels, seed=seed, clean=15, clean_even=True)
        counts = torch.bincount(labels[cut.clean], minlength=10)
        assert sorted(counts.tolist()) == [1] * 5 + [2] * 5


def test_a_size_without_kept_classes_takes_evenly_many_of_each():
    digits = data.load("digits")
    recipe = data.Recipe("digits", size=203, clean_per_class=1)
    tasks = [data.prepare(digits, recipe, seed=seed) for seed in (0, 1)]
    for task in tasks:
        truth = torch.cat([task.train.truth, task.clean.truth])
        counts = torch.bincount(truth, minlength=10)
        assert int(counts.sum()) == 203
        assert set(counts.tolist()) == {20, 21}
        assert torch.equal(digits.train.targets[task.train.ids], task.train.truth)
    assert tasks[0].train.ids.tolist() != tasks[1].train.ids.tolist()
