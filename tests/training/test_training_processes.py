"""Processes that share the batches of a run train what one would, also when one of them is killed."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from reweigh.data import BatchOptions
from reweigh.errors import SettingError
from reweigh.methods import METHODS
from reweigh.training import fit
from reweigh.training.run_context import RunContext
from support.processes import free_port, start
from support.runs import digits_task, helpers_on_path, no_dropout, tiny_config
from support.shared_run import one_of_them


def together(count, out, method, **options):
    """Run shared_run.py in `count` processes to their end."""
    start(one_of_them, (count, free_port(), out, method, options), count)


@pytest.mark.parametrize("method", ["uniform", "reweigh", "random"])
def test_two_processes_train_what_one_trains_even_across_a_stop(tmp_path, method):
    config = tiny_config(method, steps=24, device="cpu")
    alone = fit(no_dropout, digits_task(), config)
    together(2, tmp_path, method)

    models = [torch.load(tmp_path / f"model-{rank}.pt", weights_only=True) for rank in range(2)]
    for name, value in alone.model.state_dict().items():
        torch.testing.assert_close(models[0][name], value, rtol=1e-5, atol=2e-6)
        assert torch.equal(models[0][name], models[1][name])
    expected = alone.ledger.table()
    ledger = np.load(tmp_path / "ledger-0.npz")
    for name in ("seen", "zero_share"):
        np.testing.assert_array_equal(ledger[name], expected[name], err_msg=name)
    for name in ("mean_weight", "average_weight", "mean_loss"):
        np.testing.assert_allclose(ledger[name], expected[name], rtol=1e-4, atol=1e-5, err_msg=name)

    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    for point, right in zip(lines[:-1], alone.curve, strict=True):
        assert point.pop("phase") == right["phase"]
        assert point == pytest.approx({k: v for k, v in right.items() if k != "phase"}, rel=1e-4)
    assert lines[-1]["final"]["confusion"] == alone.metrics["confusion"]
    assert lines[-1]["final"]["test_loss"] == pytest.approx(alone.metrics["test_loss"], rel=1e-5)


def test_a_batch_that_cannot_be_shared_is_refused():
    three = SimpleNamespace(num_processes=3)
    config = tiny_config(batch=BatchOptions(size=48, clean_size=24), accumulate=12)
    with pytest.raises(SettingError, match=r"48 on 3 processes .* multiple of 36"):
        RunContext(no_dropout, digits_task(), config, None, three)


def test_a_killed_process_stops_the_others_and_a_restart_ends_as_if_it_had_not_been(tmp_path):
    together(2, tmp_path / "whole", "reweigh", stop_at=None)
    script = Path(__file__).parents[1] / "support" / "shared_run.py"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
               "--max-restarts=1", str(script), str(tmp_path / "killed"), "13"]  # fmt: skip
    # Else gloo finds the addresses of the first attempt in the launcher's store, and waits for them.
    anew = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "PYTHONPATH": helpers_on_path()}
    settings = {**os.environ, **anew, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    done = subprocess.run(
        command, check=False, env=settings, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    told = (tmp_path / "killed/told-0.txt").read_text()
    assert re.search(r"does not answer .*2 processes.*`torchrun --max-restarts.* checkpoint", told)
    assert "pytorch/" not in told
    for name in ("metrics.jsonl", "model.safetensors", "weights.parquet", "config.json"):
        whole, killed = (
            (tmp_path / run / "run" / name).read_bytes() for run in ("whole", "killed")
        )
        assert whole == killed, name


def test_a_checkpoint_is_read_by_another_number_of_processes(tmp_path):
    together(2, tmp_path, "reweigh", only_stop=True)
    config = tiny_config("reweigh", steps=24, device="cpu")
    alone = fit(no_dropout, digits_task(), config)
    resumed = fit(no_dropout, digits_task(), config, out=tmp_path / "run")
    for name, value in alone.model.state_dict().items():
        torch.testing.assert_close(resumed.model.state_dict()[name], value, rtol=1e-5, atol=2e-6)
    assert resumed.ledger.table()["seen"].tolist() == alone.ledger.table()["seen"].tolist()


@pytest.mark.parametrize("method", [name for name, row in METHODS.items() if not row.shares])
def test_a_method_whose_state_would_come_apart_is_refused(monkeypatch, method):
    monkeypatch.setattr("reweigh.methods.method_table.process_count", lambda: 2)
    with pytest.raises(SettingError, match=rf"2 processes train with '{method}'.*expected one"):
        fit(no_dropout, digits_task(), tiny_config(method, device="cpu"))
