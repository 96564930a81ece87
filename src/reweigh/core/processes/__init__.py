"""Several processes that share a batch: N of them do what one does on the joined batch.

group              who they are, sums over them, and the error when one is gone
parallel_models    models in DistributedDataParallel, spread by fully_shard, or exchanging data
"""

# isort: off
from .group import (
    ALONE, Arriving, Group, flattened, group_of, process_count, require_group, says_lost, unanswered,
    unflattened,
)  # fmt: skip
from .parallel_models import (
    Listener, barred, compute_types, gather_anew, inside, local, sharded_gradients, through,
    trainable_shards, wrapper_of,
)  # fmt: skip
