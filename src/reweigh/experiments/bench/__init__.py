"""What a reweighed step costs beside a plain one.

cases           the networks and batches it is measured on
timing          time, operations and memory of every method: `run_bench`
memory          the peak of what a step holds; what a process keeps of freed memory
peers           the same step as general meta-learning libraries take it
compiled_peers  the same, compiled where that runs and gives the same numbers
"""

from .cases import CASES
from .memory import keep_large_blocks, peak_bytes
from .timing import METHODS, Measurement, machine, run_bench
