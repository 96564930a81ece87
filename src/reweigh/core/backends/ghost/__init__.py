"""Scores without per-example gradients; three engines behind one contract.

    engine           what the engines share: the pass, its capture, the back-end; begin here
    contact          what an engine finds: operations in which parameters meet the batch
    example_rows     where the examples lie in a tensor
    coupling         whether they touch each other

The engines, in the order in which they are tried:

    one_pass         both batches in one forward, where that is the same and holds less
    from_graph       a plain forward; contacts are read off autograd's graph
    from_dispatch    a forward that is watched, operation by operation

and for parameters that `fully_shard` has spread:

    sharded          as from_graph; whole values come and go unit by unit
    sharded_one_pass both batches in one forward
    sharded_clean    the clean gradient, with factors where they are smaller
"""

from .contact import Contact
from .engine import Capture, Ghost, GhostPass, Layouts, SeveralLosses, without_autocast
from .from_dispatch import watched_pass
from .from_graph import CleanFactors, RecordedContact, plain_pass, read
from .one_pass import OnePass, alike, mixes_or_draws, row_wise
from .sharded import sharded_pass
from .sharded_clean import SharedFactors
from .sharded_one_pass import ShardedOnePass


def make_ghost(one_pass: bool | None = None) -> Ghost:
    """The back-end with all its engines, and nothing remembered yet."""
    engines = {
        "a plain forward, whose graph is read": plain_pass,
        "a forward that is watched, operation by operation": watched_pass,
    }
    sharded = {
        "a plain forward, whose graph is read, and a unit of fully_shard at a time": sharded_pass
    }
    return Ghost(
        OnePass(one_pass), CleanFactors().gradient, engines, sharded, SharedFactors().gradient,
        ShardedOnePass(one_pass),
    )  # fmt: skip
