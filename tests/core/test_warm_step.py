"""How much of the library a step goes through once everything about the model is known."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import reweigh
from support.problems import cross_entropy, labelled

SOURCE = str(Path(reweigh.__file__).parent)
AT_MOST = 15


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 10))


def watched() -> nn.Sequential:
    """A hook on a module keeps the batches apart: two passes."""
    model = mlp()
    model[0].register_forward_hook(lambda *_: None)
    return model


def files_of(step) -> set[str]:
    """The files of ours that a call enters."""
    seen: set[str] = set()

    def note(frame, event, arg):
        if event == "call" and frame.f_code.co_filename.startswith(SOURCE):
            seen.add(frame.f_code.co_filename.removeprefix(SOURCE + "/"))

    sys.setprofile(note)
    try:
        step()
    finally:
        sys.setprofile(None)
    return seen


@pytest.mark.parametrize(
    ("make", "passes"), [(mlp, "one"), (watched, "two")], ids=["one-pass", "two-passes"]
)
def test_a_warm_step_enters_few_files(make, passes):
    model = make()
    train, clean = labelled(40, 20), labelled(8, 20)
    weigh = reweigh.Reweighter(model, cross_entropy)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        weigh(train, clean).loss.backward()
        optimizer.step()

    for _ in range(260):  # no proof is due, and the safeguard has full trust
        step()
    assert weigh.backend == "ghost"
    assert float(weigh.state_dict()["trust"]) == 1
    files = files_of(step)
    assert ("core/backends/ghost/one_pass.py" in files) == (passes == "one")
    assert len(files) <= AT_MOST, sorted(files)


def test_the_count_can_fail():
    weigh = reweigh.Reweighter(mlp(), cross_entropy)
    assert len(files_of(lambda: weigh(labelled(8, 20), labelled(4, 20)))) > AT_MOST
