"""Several processes that share a batch: N of them do what one does on the joined batch.

group                  who they are, sums over them, and the error when one is gone
ddp                    a step through DistributedDataParallel
fsdp                   parameters that fully_shard has spread
shards                 whole values from shards and back, unit by unit
split                  parameters that tensor parallelism has cut, alone or inside fully_shard
forward_collectives    models whose own forward talks between processes
"""

# isort: off
from .ddp import inside, through, wrapper_of
from .forward_collectives import Listener, barred
from .fsdp import (
    compute_types,
    copies_of,
    forget_pass,
    gather_anew,
    mesh_of,
    sharded_gradients,
    trainable_shards,
)
from .group import (
    ALONE, Arriving, Group, flattened, group_of, process_count, require_group, says_lost, unanswered,
    unflattened,
)  # fmt: skip
from .shards import Shard, ShardedUnit, as_shard_of, units_of
from .split import Holders, require_same_batch, require_same_losses, split_groups, split_mesh
