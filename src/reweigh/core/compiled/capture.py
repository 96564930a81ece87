"""The graph of `loss(model, batch)`, as PyTorch's compiler sees it.

TorchDynamo reads the user's Python code, writes the tensor operations down as a graph, and keeps guards:
conditions on everything that the code depended on (modes, attributes, shapes, types). It checks these in
every call, and reads the code again where one of them fails. So a graph never outlives what it was made
of, unlike one from a recorded run.

Here Dynamo only captures and guards. Its graph is not run: the call ends in `_Stash`, which keeps the
graph with its present inputs (parameters, buffers, tensors of the batch) for `traced_step.py`.

Cost per call: the guards, some tens of microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from ...errors import UnsupportedModelError
from ..model import Batch, Loss
from ..torch_internals import reading_recurrence


@dataclass(frozen=True, eq=False)
class CapturedPass:
    """One call of the loss. graph: its operations, the same object as long as the guards hold.
    inputs: what the graph reads, in its order."""

    graph: GraphModule
    inputs: Sequence[Tensor]


class LossCapture:
    """Captures calls of `loss(model, batch)`; one object per side, since each has shapes of its own."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        self.graphs = 0
        self._last: CapturedPass | None = None
        recurrent = any(isinstance(module, nn.RNNBase) for module in model.modules())
        self._reading = reading_recurrence if recurrent else nullcontext

        def losses(batch: Batch) -> Tensor:
            return loss(model, batch)

        # Dynamo keeps its graphs, and counts them, per code object: this one shares none.
        own = FunctionType(
            losses.__code__.replace(), losses.__globals__, "losses", None, losses.__closure__
        )
        self._call = torch.compile(own, backend=self._keep, fullgraph=True, dynamic=False)

    def __call__(self, batch: Batch) -> CapturedPass | None:
        """The graph for this batch; None where the compiler is switched off. Raises what Dynamo raises."""
        self._last = None
        with self._reading():
            self._call(batch)
        captured, self._last = self._last, None
        return captured

    def _keep(self, graph: GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        """The "back-end" that Dynamo hands a new graph to."""
        (result,) = graph.graph.find_nodes(op="output")
        if len(result.args[0]) != 1:
            raise UnsupportedModelError(
                "the forward keeps tensors besides its losses (in attributes or lists)"
            )
        self.graphs += 1
        nothing = (torch.zeros(0),)

        def stash(*inputs: Any) -> Any:
            self._last = CapturedPass(graph, inputs)
            return nothing  # for Dynamo, which returns it to __call__

        return stash
