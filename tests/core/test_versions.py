"""A PyTorch that is too old is refused in one line; the limits are those that pip is told."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from reweigh.core.torch_internals import OLDEST_TORCH, require_torch
from reweigh.errors import ReweighError, TorchVersionError

ROOT = Path(__file__).parents[2]
PROJECT = (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize("version", ["1.13.1", "2.0.0", "2.5.1+cu124", "2.5.0a0+git1234567"])
def test_an_older_one_is_refused(version):
    with pytest.raises(TorchVersionError) as error:
        require_torch(version)
    assert isinstance(error.value, ImportError)
    assert isinstance(error.value, ReweighError)
    assert str(error.value) == (
        f"torch {version} is installed; expected 2.6 or newer: pip install 'torch>=2.6'"
    )


@pytest.mark.parametrize(
    "version", ["2.6.0", "2.6.0a0+git1234567", "2.10.0", "2.13.0+cpu", "3.0.0"]
)
def test_a_newer_one_is_not(version):
    require_torch(version)


def test_the_oldest_is_the_one_in_the_project_file():
    (oldest,) = re.findall(r'"torch>=([\d.]+),', PROJECT)
    assert tuple(map(int, oldest.split("."))) == OLDEST_TORCH


def test_the_ends_of_the_range_are_among_what_is_run():
    cells = runpy.run_path(str(ROOT / "scripts" / "versions.py"))["CELLS"]
    ran = sorted(tuple(map(int, torch.split(".")[:2])) for torch in cells.values())
    (newest,) = re.findall(r'"torch>=[\d.]+,<(\d+\.\d+)"', PROJECT)
    major, above = map(int, newest.split("."))
    assert (ran[0], ran[-1]) == (OLDEST_TORCH, (major, above - 1))
    assert {f"Python :: {python}" for python in cells} <= set(
        re.findall(r"Python :: [\d.]+", PROJECT)
    )


def started(code: str) -> subprocess.CompletedProcess[str]:
    """What a process does in which PyTorch calls itself 2.5.1."""
    old = "import torch; torch.__version__ = '2.5.1'\n"
    return subprocess.run(
        [sys.executable, "-c", old + code], capture_output=True, text=True, check=False
    )


def test_the_library_refuses_when_it_is_imported():
    done = started("import reweigh\nfrom reweigh import Reweighter")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        "reweigh.errors.TorchVersionError: torch 2.5.1 is installed; expected 2.6"
    )


def test_a_command_refuses_in_one_line(tmp_path):
    pytest.importorskip("typer")
    done = started(f"from reweigh.cli import main; main(['demo', '--out', {str(tmp_path)!r}])")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "reweigh: error: torch 2.5.1 is installed; expected 2.6 or newer: pip install 'torch>=2.6'"
    ]


def test_a_tangent_by_pytorchs_own_formula_warns_of_nothing():
    """PyTorch loads its formulas through a compiler that it has deprecated; users cannot help that."""
    code = """
import warnings
warnings.simplefilter("error", DeprecationWarning)
warnings.simplefilter("error", FutureWarning)
from torch import nn
import reweigh
x, y = torch.randn(4, 3), torch.randint(2, (4,))
loss = reweigh.per_example(nn.functional.cross_entropy)
reweigh.example_scores(nn.Linear(3, 2), loss, (x, y), (x, y), backend="forward_mode")
"""
    done = subprocess.run(
        [sys.executable, "-c", "import torch" + code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
