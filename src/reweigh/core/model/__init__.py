"""The user's side of a step: model, loss, batches, parameters; and PyTorch as we look at it.

loss               the contract of a loss, and what a batch is
micro_batches      the batches between two optimizer steps, weighed as one
parameters         which parameters are aligned; the clean gradient as a `Direction`
dtensors           tensors of which each process holds a part
view               one look at the model per step, and the way back to its state
watch              which state passes write
holders            where a model and a loss keep state besides buffers
modes              evaluation, and settings under which every operation can be differentiated
randomness         where random numbers come from
autograd_graph     the graph of a pass: its leaves, its hooks, a gradient of our own
"""

# isort: off
from .autograd_graph import (
    REENTRANT_CHECKPOINT, coarsest, custom_function, hidden_parameters, leaves, unhooked, with_gradient,
)  # fmt: skip
from .dtensors import cut_along, is_spread, local, placed_like, shares
from .loss import (
    Batch, Loss, MicroBatches, OnCopies, batch_size, differentiable_losses, empty, evaluate, is_flat, leading_sizes,
    mapped, per_example, require_examples, require_finite, require_gradient, require_one_each,
    require_same_device, rows, same_layout, tensors_of,
)  # fmt: skip
from .micro_batches import clean_batches, micro_batches
from .modes import differentiable_kernels, eager, evaluating, muted
from .randomness import sources_of
from .parameters import Direction, Params, dot, norm_squared, on_host, select, trainable
from .view import ModelView, Snapshot, modules_of
from .watch import Watch
