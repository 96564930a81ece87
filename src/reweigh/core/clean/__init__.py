"""The clean side of a step.

gradient    the mean loss of the clean batch and its gradient, on one process or several
low_rank    the same gradient of linear layers as two factors, where these are smaller
sharded     the same where fully_shard has spread the parameters: shards, or factors of all processes
"""

from .gradient import Cheaper, CleanSide, clean_gradient, shared_clean_gradient
from .low_rank import Factors, PartlyFactored, collected, paying
from .sharded import (
    ShardedGradient,
    collected_together,
    factored_together,
    on_stand_ins,
    whole_values,
)
