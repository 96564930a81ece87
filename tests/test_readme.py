"""What the README prints is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.parametrize("code", blocks("python"))
def test_python_blocks_run(code, capsys):
    torch.manual_seed(0)
    exec(compile(code, "README.md", "exec"), {})
    assert "ghost" in capsys.readouterr().out


def test_the_diff_turns_a_plain_loop_into_one_that_runs():
    (diff,) = blocks("diff")
    lines = diff.splitlines()
    before = "\n".join(line[1:] for line in lines if not line.startswith("+"))
    after = "\n".join(line[1:] for line in lines if not line.startswith("-"))
    assert sum(line.startswith("+") for line in lines) == 2
    for code in (before, after):
        model = torch.nn.Linear(4, 3)
        batch = (torch.randn(8, 4), torch.randint(3, (8,)))
        start = model.weight.detach().clone()
        names = {
            "F": torch.nn.functional,
            "reweigh": __import__("reweigh"),
            "model": model,
            "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
            "train_loader": [batch, batch],
            "clean_batches": iter([batch, batch]),
        }
        exec(compile(code, "README.md", "exec"), names)
        assert not torch.equal(model.weight, start)


def test_the_commands_are_targets_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text()
    for command in re.findall(r"^\$ make (\w+)", README, flags=re.MULTILINE):
        assert f"\n{command}:" in makefile


def test_numbers_are_those_of_the_results():
    script = ROOT / "docs" / "refresh.py"
    assert subprocess.run([sys.executable, script, "--check"], check=False).returncode == 0
