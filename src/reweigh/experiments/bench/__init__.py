"""What a reweighed step costs beside a plain one.

cases        the networks and batches it is measured on
timing       time, operations and memory of every method: `run_bench`
memory       the peak of what a step holds
peers        the same step as general meta-learning libraries take it
allocator    a setting of the process that the measured steps share
"""

from .allocator import keep_large_blocks
from .cases import CASES
from .memory import peak_bytes
from .timing import Measurement, machine, run_bench

__all__ = ["CASES", "Measurement", "keep_large_blocks", "machine", "peak_bytes", "run_bench"]
