"""One process of a run that several share; called by test_training_processes.py.

    torchrun ... shared_run.py FOLDER STEP

As a script, process 1 kills itself at that step, once; the others write down what they were told.
"""

import os
import signal
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from reweigh.errors import Interrupted, LostProcessError
from reweigh.training import fit
from support.runs import digits_task, no_dropout, tiny_config


def one_of_them(rank, count, port, out, method, options):
    """As a launcher would start it."""
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(count),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "ACCELERATE_USE_CPU": "true",
        "OMP_NUM_THREADS": "1",  # as torchrun does
    }
    warnings.simplefilter("error", UserWarning)
    shared(rank, out, method, **options)


def shared(rank, out, method, *, stop_at=13, only_stop=False):
    """The first process is asked to stop; then, unless that is all, they go on to the end."""
    torch.set_num_threads(1)
    out.mkdir(exist_ok=True)
    config = tiny_config(method, steps=24, device="cpu")

    def stop(now):
        if now.step == stop_at:
            os.kill(os.getpid(), signal.SIGTERM)

    if stop_at is not None:
        with pytest.raises(Interrupted, match="stopped at step 20 of 24"):
            fit(no_dropout, digits_task(), config, out=out / "run", progress=stop)
    if not only_stop:
        outcome = fit(no_dropout, digits_task(), config, out=out / "run")
        torch.save(outcome.model.state_dict(), out / f"model-{rank}.pt")
        np.savez(out / f"ledger-{rank}.npz", **outcome.ledger.table())
    torch.distributed.destroy_process_group()


def killed(rank, out, step):
    """Process 1 dies while the others wait for its part of the update."""
    out.mkdir(exist_ok=True)
    inner, taken = torch.optim.SGD.step, 0

    def counted(self, *args, **options):
        nonlocal taken
        taken += 1
        if rank == 1 and taken == step and not (out / "killed").exists():
            (out / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return inner(self, *args, **options)

    torch.optim.SGD.step = counted
    try:
        shared(rank, out, "reweigh", stop_at=None)
    except LostProcessError as error:
        (out / f"told-{rank}.txt").write_text(str(error))
        raise


if __name__ == "__main__":
    warnings.simplefilter("error", UserWarning)
    killed(int(os.environ["RANK"]), Path(sys.argv[1]), int(sys.argv[2]))
