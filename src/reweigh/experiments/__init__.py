"""Experiments: every table and figure of the paper as data, the runner of their grids, the demo.

Read in this order:

    training_setup        what decides a cell besides its method and its seed
    experiment            an experiment as data, and the cells its grid is made of
    catalog/              the paper's experiments, and the demonstration
    method_stages         what a method, as typed, is trained in
    cell_training         one cell: data, training, judgement
    weight_distribution   what Figure 3 measures besides
    label_audit           what `human-noise` measures besides
    grid                  all cells that are missing, several at a time
    workers, ray_workers  the processes they run on: of this machine, of a Ray cluster
    finished_elsewhere    cells that another experiment has run already
    results_folder        what is kept of finished cells, and of unfinished ones meanwhile
    provenance            versions and commit that a result was made with
    demo, demo_results    `reweigh demo`: its grid, its judgement, its results.json
    bench/                the cost of a step: `reweigh bench`
"""

from .bench import CASES, METHODS, keep_large_blocks, machine, run_bench
from .catalog import EXPERIMENTS, DemoSettings, find_experiment
from .cell_training import cell_steps, run_cell
from .demo import run_demo
from .experiment import SCALES, Block, Cell, Experiment, cells, described
from .grid import Watcher, run_grid
from .provenance import commit, versions
from .training_setup import Setup
