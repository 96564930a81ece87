"""Two processes that share the batches train what one would: plain training, over gloo."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from reweigh.data import BatchOptions
from reweigh.errors import SettingError
from reweigh.training import fit
from reweigh.training.job import Job
from runs import digits_task, no_dropout, tiny_config


def together(count, *arguments):
    """Run shared_run.py in `count` processes to their end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(count),
        "OMP_NUM_THREADS": "1",
        "ACCELERATE_USE_CPU": "true",
    }
    script = Path(__file__).with_name("shared_run.py")
    running = [
        subprocess.Popen(
            [sys.executable, script, *map(str, arguments)],
            env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(count)
    ]
    output = [process.communicate(timeout=300)[0] for process in running]
    assert not any(process.returncode for process in running), "\n".join(output)


def test_two_processes_train_what_one_trains_even_across_a_stop(tmp_path):
    config = tiny_config("uniform", steps=24, device="cpu")
    alone = fit(no_dropout, digits_task(), config)
    together(2, tmp_path, "uniform")

    models = [torch.load(tmp_path / f"model-{rank}.pt", weights_only=True) for rank in range(2)]
    for name, value in alone.model.state_dict().items():
        torch.testing.assert_close(models[0][name], value, rtol=1e-5, atol=1e-6)
        assert torch.equal(models[0][name], models[1][name])
    expected = alone.ledger.table()
    ledger = np.load(tmp_path / "ledger-0.npz")
    for name in ("seen", "mean_weight", "zero_share"):
        np.testing.assert_array_equal(ledger[name], expected[name], err_msg=name)
    for name in ("average_weight", "mean_loss"):
        np.testing.assert_allclose(ledger[name], expected[name], rtol=1e-4, err_msg=name)

    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [p["step"] for p in lines[:-1]] == [p["step"] for p in alone.curve]
    assert lines[-1]["final"]["confusion"] == alone.metrics["confusion"]
    assert lines[-1]["final"]["test_loss"] == pytest.approx(alone.metrics["test_loss"], rel=1e-5)


def test_a_batch_that_cannot_be_shared_is_refused():
    three = SimpleNamespace(num_processes=3)
    config = tiny_config(batch=BatchOptions(size=48, clean_size=24), accumulate=12)
    with pytest.raises(SettingError, match=r"48 on 3 processes .* multiple of 36"):
        Job(no_dropout, digits_task(), config, None, three)
