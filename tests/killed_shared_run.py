"""One process of a run that torchrun starts, and starts again; called by test_training_processes.py.

    torchrun ... killed_shared_run.py FOLDER [STEP]

With a step, process 1 kills itself there, once. The others write down what they were told.
"""

import os
import signal
import sys
import warnings
from pathlib import Path

import torch

from reweigh.errors import LostProcessError
from reweigh.training import fit
from runs import digits_task, no_dropout, tiny_config


def main(out, killed_at):
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    config = tiny_config("reweigh", steps=24, device="cpu")
    inner = torch.optim.SGD.step
    taken = 0

    def step(self, *args, **options):
        nonlocal taken
        taken += 1
        if rank == 1 and taken == killed_at and not (out / "killed").exists():
            (out / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return inner(self, *args, **options)

    torch.optim.SGD.step = step
    try:
        fit(no_dropout, digits_task(), config, out=out / "run")
    except LostProcessError as error:
        (out / f"told-{rank}.txt").write_text(str(error))
        raise
    (out / f"done-{rank}.txt").write_text(str(taken))


if __name__ == "__main__":
    warnings.simplefilter("error", UserWarning)
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
