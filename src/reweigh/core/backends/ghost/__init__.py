"""Scores without per-example gradients; three engines behind one contract.

    engine           what the engines share: the pass, its capture, the back-end; begin here
    contact          what an engine finds: operations in which parameters meet the batch
    example_rows     where the examples lie in a tensor
    coupling         whether they touch each other

The engines, in the order in which they are tried:

    one_pass         both batches in one forward, where that is the same and holds less
    from_graph       a plain forward; contacts are read off autograd's graph
    from_dispatch    a forward that is watched, operation by operation
"""

from .contact import Contact
from .engine import Capture, Ghost, GhostPass, Layouts, SeveralLosses, without_autocast
from .from_dispatch import watched_pass
from .from_graph import CleanFactors, RecordedContact, plain_pass, read
from .one_pass import OnePass


def make_ghost(one_pass: bool | None = None) -> Ghost:
    """The back-end with all its engines, and nothing remembered yet."""
    engines = {
        "a plain forward, whose graph is read": plain_pass,
        "a forward that is watched, operation by operation": watched_pass,
    }
    return Ghost(OnePass(one_pass), CleanFactors().gradient, engines)
