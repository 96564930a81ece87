"""Methods are found by name, plans are read as typed, and what cannot work is refused."""

import pytest
import torch

from reweigh.errors import ReweighError, SettingError, UnknownNameError
from reweigh.methods import METHODS, Plan, make, parse
from reweigh.methods.plan import SUFFIXES
from support.method_cases import problem


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("early_stop", [False, True])
@pytest.mark.parametrize("fine_tune", [False, True])
def test_a_plan_is_read_back_as_it_prints(name, early_stop, fine_tune):
    plan = Plan(name, early_stop=early_stop, fine_tune=fine_tune)
    assert parse(str(plan)) == plan
    assert str(plan) == name + "+es" * early_stop + "+ft" * fine_tune


def test_the_order_of_suffixes_does_not_matter_and_prints_the_same():
    assert parse("uniform+ft+es") == parse("uniform+es+ft")
    assert str(parse("uniform+ft+es")) == "uniform+es+ft"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("unifrom", "unknown method 'unifrom'; did you mean 'uniform'?"),
        ("hard-mining+es", "did you mean 'hard_mining'?"),
        ("uniform+fte", "unknown suffix in 'uniform+fte': 'fte'; did you mean 'ft'?"),
        ("uniform+", "known: clean, es, ft"),
        ("", "unknown method ''"),
        ("+es", "unknown method ''"),
    ],
)
def test_a_near_miss_gets_a_suggestion(text, says):
    with pytest.raises(UnknownNameError) as error:
        parse(text)
    assert says in str(error.value)


def test_a_suffix_stands_once():
    with pytest.raises(SettingError, match=r"\+es stands twice in 'uniform\+es\+ft\+es'"):
        parse("uniform+es+ft+es")


def test_a_plan_made_by_hand_must_name_a_method():
    with pytest.raises(UnknownNameError):
        Plan("unifrom")


def test_no_method_name_can_be_mistaken_for_a_plan():
    assert all(name.isidentifier() for name in METHODS)
    assert not set(METHODS) & set(SUFFIXES)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_bears_the_name_of_its_row(name):
    assert make(name, problem()[0]).name == name
    assert METHODS[name].make.__name__ == name


LACKING = {
    "classes": {"classes": 0},
    "clean": {"clean_labels": torch.zeros(0, dtype=torch.long)},
    "right_share": {"right_share": None},
    "pretrained": {"pretrained": None},
    "confusion": {"confusion": None},
}


@pytest.mark.parametrize("need", LACKING)
@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_refused_what_it_needs_and_lacks_and_only_that(name, need):
    task, _ = problem(**LACKING[need])
    if need in METHODS[name].needs:
        with pytest.raises(SettingError, match=f"has no {need}, which '{name}' needs; expected"):
            make(name, task)
    else:
        make(name, task)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"train_labels": torch.tensor([0, 3])}, "train labels hold 3; expected classes 0 ... 2"),
        ({"clean_labels": torch.tensor([-1])}, "clean labels hold -1"),
        ({"train_labels": torch.tensor([0.5])}, "train labels hold 0.5"),
        ({"train_labels": torch.zeros(2, 2)}, r"shape \(2, 2\); expected one class per example"),
        ({"train_labels": torch.zeros(0)}, "no labels"),
    ],
)
def test_labels_that_contradict_the_classes_are_refused(changes, says):
    with pytest.raises(SettingError, match=says):
        make("uniform", problem(**changes)[0])


def test_an_oracle_of_the_wrong_shape_is_refused():
    with pytest.raises(SettingError, match=r"right_share has shape \(2,\); expected \(3,\)"):
        make("weighted", problem(right_share=torch.ones(2))[0])


def test_an_unknown_option_is_refused_with_a_suggestion():
    with pytest.raises(ReweighError, match="unknown option of reweigh 'backed'; did you mean"):
        make("reweigh", problem()[0], backed="ghost")
