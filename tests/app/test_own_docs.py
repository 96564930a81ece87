"""What docs/own-data.md tells its readers to type is typed here."""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from reweigh.app import networks as models
from reweigh.cli import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "own-data.md").read_text(encoding="utf-8")


def commands():
    blocks = re.findall(r"```console\n(.*?)```", PAGE, flags=re.DOTALL)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def test_the_tutorial_from_a_noisy_table_to_a_corrected_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(models, "FEWEST", 150)
    monkeypatch.setattr(models, "MOST", 150)
    monkeypatch.setattr(models, "EPOCHS", 1)
    for command in commands():
        program, *arguments = shlex.split(command)
        if program == "python":
            monkeypatch.setattr(sys, "argv", arguments)
            runpy.run_path(str(ROOT / arguments[0]), run_name="__main__")
            continue
        assert program == "reweigh"
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        assert stopped.value.code == 0, (command, capsys.readouterr().err)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    exec(compile(code, "own-data.md", "exec"), {})
    predicted = pd.read_csv("predicted.csv")["predicted"]
    assert (predicted == pd.read_csv("test.csv")["diagnosis"]).mean() > 0.9
    assert "were mislabelled" in capsys.readouterr().out


def test_its_figures_are_those_of_the_benchmark():
    script = ROOT / "docs" / "own_data.py"
    assert subprocess.run([sys.executable, script, "--check"], check=False).returncode == 0
