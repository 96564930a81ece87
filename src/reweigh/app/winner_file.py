"""The candidate that was kept, in a run folder: winner.json, and its arrays in winner.safetensors.

Numbers only: reading a run executes no code, unless its network is the user's own (own_model.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from ..candidates import Fitted, Member, Reals, RidgeModel, SoftmaxModel, TreesModel, mixed
from ..data import BatchOptions, Part
from ..encoders import NgramEncoder, edge_features
from ..errors import DataError
from ..files import write_whole
from ..runs import Network, RunFile, Winner, WinnerPart, read, write
from .final_outputs import outputs, said
from .networks import make_model

KINDS: Mapping[str, Any] = {"softmax": SoftmaxModel, "ridge": RidgeModel, "trees": TreesModel}
Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class KeptPart:
    """A model, its place in the blend, and what it takes: see `WinnerPart`."""

    member: Member
    features: str
    model: Fitted | nn.Module


def save_winner(
    folder: Path, name: str, parts: Sequence[KeptPart], ngrams: NgramEncoder | None
) -> None:
    """Write it; the JSON last, so that what is there is whole."""
    from safetensors.numpy import save

    arrays: dict[str, npt.NDArray[Any]] = {}
    for k, part in enumerate(parts):
        of_part = (
            {key: value.numpy() for key, value in part.model.state_dict().items()}
            if isinstance(part.model, nn.Module)
            else part.model.arrays()
        )
        # Not `ascontiguousarray`: it makes a number without dimensions, as a count of batches, a row.
        arrays |= {f"{k}/{key}": np.array(value, order="C") for key, value in of_part.items()}
    if ngrams is not None and any(part.features == "ngrams" for part in parts):
        arrays |= {f"ngrams/{key}": value for key, value in ngrams.arrays().items()}
    write_whole(folder / RunFile.WINNER_ARRAYS, save(arrays))
    kinds = ["network" if isinstance(p.model, nn.Module) else p.model.kind for p in parts]
    described = [
        WinnerPart(
            p.member.name, kind, p.features, p.member.weight, p.member.sharpness, p.member.shift
        )
        for p, kind in zip(parts, kinds, strict=True)
    ]
    write(folder / RunFile.WINNER, Winner(name, tuple(described)))


@dataclass(frozen=True, eq=False)
class WinnerModel:
    """The parts of a winner: `probabilities` are the mean of theirs, by their weights."""

    parts: tuple[KeptPart, ...]
    ngrams: NgramEncoder | None
    batch: BatchOptions

    def probabilities(self, encoded: npt.NDArray[Any], texts: Sequence[str] | None) -> Reals:
        """[n, classes], or scaled numbers [n, 1], for encoded rows; `texts` are the rows themselves where they are texts."""
        rows: dict[str, Any] = {"encoded": encoded}
        kinds = {part.features for part in self.parts}
        if "edges" in kinds:
            rows["edges"] = edge_features(encoded)
        if "ngrams" in kinds:
            assert self.ngrams is not None, "saved with its encoder"
            assert texts is not None, "n-grams are of texts"
            rows["ngrams"] = self.ngrams.encode(texts)
        each = {part.member.name: self._of(part, rows[part.features]) for part in self.parts}
        return mixed([part.member for part in self.parts], each)

    def _of(self, part: KeptPart, rows: Any) -> Reals:
        if not isinstance(part.model, nn.Module):
            return part.model.probabilities(rows)
        inputs = torch.from_numpy(rows)
        nothing = torch.zeros(len(inputs))
        all_rows = Part(inputs, torch.arange(len(inputs)), nothing, nothing)
        return said(torch.cat(list(outputs(part.model, all_rows, self.batch))))


def load_winner(folder: Path, network: Network, batch: BatchOptions) -> WinnerModel | None:
    """Read it; None if the run kept none but its own network."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    path = folder / RunFile.WINNER_ARRAYS
    if not (folder / RunFile.WINNER).exists():
        return None
    winner = read(folder / RunFile.WINNER, Winner)
    try:
        arrays = load_file(path)
        parts = [_part(k, part, arrays, network) for k, part in enumerate(winner.parts)]
        ngrams = _under("ngrams", arrays)
        return WinnerModel(tuple(parts), NgramEncoder.of(ngrams) if ngrams else None, batch)
    except FileNotFoundError:
        raise DataError(f"there is no {path}; expected a finished run folder") from None
    except (SafetensorError, RuntimeError, KeyError, ValueError, OSError) as error:
        raise DataError(f"{path} is damaged ({error}); train again") from error


def _part(k: int, part: WinnerPart, arrays: Arrays, network: Network) -> KeptPart:
    mine = _under(str(k), arrays)
    member = Member(part.name, part.weight, part.sharpness, part.shift)
    if part.kind != "network":
        return KeptPart(member, part.features, KINDS[part.kind].of(mine))
    model = make_model(network)
    model.load_state_dict({key: torch.from_numpy(value) for key, value in mine.items()})
    return KeptPart(member, part.features, model.eval())


def _under(prefix: str, arrays: Arrays) -> dict[str, npt.NDArray[Any]]:
    start = f"{prefix}/"
    return {key.removeprefix(start): v for key, v in arrays.items() if key.startswith(start)}
