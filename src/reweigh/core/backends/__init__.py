"""Four ways to the scores, one contract. README.md beside this file says which, why, and the cost.

base           what every back-end takes and returns
table          the only list of them
order          which one is tried first
selection      which one runs: asked for, or the cheapest exact one that can
double_backward, forward_mode, ghost/, finite_difference
chunked        any of them, a chunk of the batch at a time
grouped        micro-batches of a window, several at a time
sharded_...    what is done otherwise where fully_shard has spread the parameters: proofs, tangents, parts
single_loss    a batch of one example, whose score needs none of them
empty_share    a process without examples
"""

from .base import Alignment, Backend, TrainPass
from .chunked import fitted, require_chunk
from .forward_mode import ForwardMode
from .grouped import numbers_at_once
from .selection import BackendSelection, Choice, Settled, same_number
from .table import BACKENDS, require_known
