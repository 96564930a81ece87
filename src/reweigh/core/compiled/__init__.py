"""A whole step as one compiled graph: clean pass, scores, rule, safeguard and gradient.

capture        the graph of `loss(model, batch)`, and the guards under which it stays valid
traced_step    the formula: a back-end run on those graphs, written down as one graph
channels_last  that graph with images in the memory order of convolutions on the host
late_update    the gradient, without the examples that have no weight
agreement      compiled numbers compared with those of the eager step
route          builds, proves, counts and runs compiled steps; begin here
"""

from .route import CompiledRoute, CompileLog, Reference, require_options
