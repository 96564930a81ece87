"""Large batches in small memory: the scores chunk by chunk, the update chunk by chunk.

Only the chunk at hand has a graph. Once all scores are known and normalised over the whole batch,
`backward()` runs each chunk's forward again, with the same random numbers, and adds its part of the
gradient; chunks that got no weight are left out.

Cost: one more forward and backward than unchunked. The same weights as unchunked for models that do
not couple examples; BatchNorm sees each chunk as a batch of its own, as it does under gradient
accumulation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...errors import SettingError
from ..model.autograd_graph import with_gradient
from ..model.loss import Batch, Loss, batch_size, evaluate, rows
from ..model.parameters import Direction, trainable
from ..model.snapshot import Snapshot, eager, isolated
from .base import Alignment, Memory, Proof
from .table import run


def require_chunk(chunk: int | None) -> None:
    """Raise unless `chunk` is None or a positive whole number."""
    if chunk is not None and (not isinstance(chunk, int) or chunk < 1):
        raise SettingError(f"chunk={chunk!r}; expected a positive number of examples, or None")


@dataclass
class _Piece:
    """A slice of the batch, and the state its forward pass started from."""

    start: int
    stop: int
    before: Snapshot


def run_in_chunks(
    backend: str,
    model: nn.Module,
    loss: Loss,
    train: Batch,
    direction: Direction,
    memory: Memory,
    *,
    chunk: int,
) -> Alignment:
    """Align a batch piece by piece, all with one back-end."""
    n = batch_size(train)
    pieces: list[_Piece] = []
    losses: list[Tensor] = []
    scores: list[Tensor] = []
    proofs: list[Proof] = []
    for start in range(0, n, chunk):
        piece = _Piece(start, min(start + chunk, n), Snapshot(model))
        part = rows(train, piece.start, piece.stop)
        alignment = run(backend, model, loss, part, direction, memory)
        pieces.append(piece)
        losses.append(alignment.losses)
        scores.append(alignment.scores)
        if alignment.proof is not None:
            proofs.append(alignment.proof)
        del alignment  # and with it the graph of this piece
    values = torch.cat(losses)
    replay = _Replay(model, loss, train, pieces, _autocast(values.device.type))

    def weighted(weights: Tensor) -> Tensor:
        parameters = list(trainable(model).values())
        return with_gradient(
            (weights * values).sum(),
            parameters,
            lambda scale: replay.gradient(weights * scale, parameters),
        )

    return Alignment(values, torch.cat(scores), weighted, _together(proofs))


def _together(proofs: Sequence[Proof]) -> Proof | None:
    """Of all pieces that were looked at."""
    if not proofs:
        return None
    gaps, sizes = (
        torch.stack(x).sum() for x in zip(*((p.gap, p.size) for p in proofs), strict=True)
    )
    return Proof(gaps, sizes)


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
    model: nn.Module
    loss: Loss
    train: Batch
    pieces: list[_Piece]
    autocast: torch.autocast

    def gradient(self, weights: Tensor, parameters: Sequence[Tensor]) -> list[Tensor | None]:
        """grad sum_i weights_i f_i, one piece in memory at a time."""
        total: list[Tensor | None] = [None] * len(parameters)
        for piece in self.pieces:
            share = weights[piece.start : piece.stop]
            # One piece is always run, so that parameters in use get a gradient even if it is zero.
            if piece is not self.pieces[0] and not share.any():
                continue
            with (
                isolated(self.model, own_stream=False),
                torch.enable_grad(),
                eager(),
                self.autocast,
            ):
                piece.before.restore()
                part = rows(self.train, piece.start, piece.stop)
                losses = evaluate(self.model, self.loss, part, which="train")
                found = torch.autograd.grad(losses, list(parameters), share, allow_unused=True)
            for i, gradient in enumerate(found):
                if gradient is not None:
                    before = total[i]
                    total[i] = gradient if before is None else before + gradient
        return total
