"""One process of a run that several share; called by test_training_processes.py.

RANK=r WORLD_SIZE=n python shared_run.py FOLDER METHOD [only stop]

The first process is asked to stop at step 13; then all go on to the end.
"""

import os
import signal
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from reweigh.errors import Interrupted
from reweigh.training import fit
from runs import digits_task, no_dropout, tiny_config


def main(out, method, only_stop):
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    config = tiny_config(method, steps=24, device="cpu")

    def stop(now):
        if now.step == 13:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted, match="stopped at step 20 of 24"):
        fit(no_dropout, digits_task(), config, out=out / "run", progress=stop)
    if only_stop:
        return
    outcome = fit(no_dropout, digits_task(), config, out=out / "run")
    torch.save(outcome.model.state_dict(), out / f"model-{rank}.pt")
    np.savez(out / f"ledger-{rank}.npz", **outcome.ledger.table())


if __name__ == "__main__":
    warnings.simplefilter("error", UserWarning)
    main(Path(sys.argv[1]), sys.argv[2], len(sys.argv) > 3)
