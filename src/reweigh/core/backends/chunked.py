"""Large batches in small memory: the scores chunk by chunk, the update chunk by chunk.

Only the chunk at hand has a graph. Once all scores are known and normalised over the whole batch,
`backward()` runs each chunk's forward again, with the same random numbers, and adds its part of the
gradient. Chunks that got no weight are left out.

Cost: one more forward and backward than unchunked. The same weights as unchunked for models that do
not couple examples; BatchNorm sees each chunk as a batch of its own, as it does under gradient
accumulation.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...errors import SettingError
from ..model import (
    Batch,
    Direction,
    Loss,
    ModelView,
    Snapshot,
    batch_size,
    eager,
    evaluate,
    leaves,
    rows,
    trainable,
    unhooked,
    with_gradient,
)
from ..proof import Proof
from .base import Alignment, Backend, TrainPass


def require_chunk(chunk: int | None) -> int | None:
    """Return `chunk` if it is None or a positive whole number."""
    if chunk is not None and (not isinstance(chunk, int) or chunk < 1):
        raise SettingError(f"chunk={chunk!r}; expected a positive number of examples, or None")
    return chunk


@dataclass
class _Chunk:
    """A slice of the batch, and the state its forward pass started from."""

    start: int
    stop: int
    before: Snapshot


def align_in_chunks(
    backend: Backend, pass_: TrainPass, direction: Direction, *, chunk: int
) -> Alignment:
    """Align a batch chunk by chunk, all with one back-end."""
    model, n = pass_.view.model, batch_size(pass_.batch)
    chunks: list[_Chunk] = []
    losses: list[Tensor] = []
    scores: list[Tensor] = []
    proofs: list[Proof] = []
    used: set[int] = set()  # the ids of the parameters that some chunk has used
    for start in range(0, n, chunk):
        view, stop = pass_.view.again(), min(start + chunk, n)
        chunks.append(_Chunk(start, stop, view.start))
        part = TrainPass(view, pass_.loss, rows(pass_.batch, start, stop))
        alignment = backend.align(part, direction)
        whole = alignment.weighted(alignment.losses)  # kept: older PyTorch frees its node with it
        used.update(map(id, leaves(whole.grad_fn)))
        losses.append(alignment.losses)
        scores.append(alignment.scores)
        if alignment.proof is not None:
            proofs.append(alignment.proof)
        del alignment, whole  # and with them the graph of this chunk
    values = torch.cat(losses)
    autocast = _autocast(values.device.type)
    replay = _Replay(pass_.view.again(), pass_.loss, pass_.batch, chunks, used, autocast)

    def weighted(weights: Tensor) -> Tensor:
        parameters = list(trainable(model).values())
        return with_gradient(
            (weights * values).sum(),
            parameters,
            lambda scale: replay.gradient(weights * scale, parameters),
        )

    return Alignment(values, torch.cat(scores), weighted, _summed(proofs))


def _summed(proofs: Sequence[Proof]) -> Proof | None:
    """The proof of all chunks that were looked at."""
    if not proofs:
        return None
    return Proof(*torch.stack([proof.row() for proof in proofs]).sum(0))


def _autocast(device: str) -> torch.autocast:
    """The precision settings of now, to run a forward under them later."""
    return torch.autocast(
        device,
        dtype=torch.get_autocast_dtype(device),
        enabled=torch.is_autocast_enabled(device),
        cache_enabled=torch.is_autocast_cache_enabled(),
    )


@dataclass
class _Replay:
    view: ModelView
    loss: Loss
    batch: Batch
    chunks: list[_Chunk]
    used: set[int]
    autocast: torch.autocast

    def gradient(self, weights: Tensor, parameters: Sequence[Tensor]) -> list[Tensor | None]:
        """grad sum_i weights_i f_i, one chunk in memory at a time."""
        total: list[Tensor | None] = [None] * len(parameters)
        for chunk in self.chunks:
            share = weights[chunk.start : chunk.stop]
            # One chunk is always run, so that parameters in use get a gradient even if it is zero.
            if chunk is not self.chunks[0] and not share.any():
                continue
            with (
                self.view.again().isolated(own_stream=False),
                torch.enable_grad(),
                eager(),
                self.autocast,
            ):
                chunk.before.restore()
                part = rows(self.batch, chunk.start, chunk.stop)
                losses = evaluate(self.view.model, self.loss, part, which="train")
                with unhooked(parameters):  # backward() runs the user's hooks, once, on the sum
                    gradient = torch.autograd.grad(
                        losses, list(parameters), share, allow_unused=True
                    )
            for i, g in enumerate(gradient):
                if g is not None:
                    before = total[i]
                    total[i] = g if before is None else before + g
        # As in plain training: zero, not None, for what only examples without weight have used.
        return [
            torch.zeros_like(p) if g is None and id(p) in self.used else g
            for p, g in zip(parameters, total, strict=True)
        ]
