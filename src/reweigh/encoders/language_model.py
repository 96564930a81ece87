"""Texts through a transformers encoder from a local folder: the mean of its last hidden states.

The features of each text are scaled to mean 0 and variance 1. Only the first 256 tokens are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import DataError
from ..optional import optional
from ..tables import Piece
from .columns import Features
from .hashed_text import text_digests, text_of

LENGTH = 256


@dataclass(frozen=True, eq=False)
class LanguageModelEncoder:
    """A transformers encoder from a local folder; nothing is downloaded, no code of it runs."""

    column: str
    path: str
    width: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one encoded text."""
        return (self.width,)

    @property
    def needs(self) -> tuple[str, ...]:
        """The columns a table must have."""
        return (self.column,)

    def encode(self, piece: Piece) -> Features:
        """[n, width]."""
        import torch

        tokenizer, model = _language_model(self.path)
        parts = []
        texts = text_of(piece, self.column)
        for start in range(0, len(texts), 32):
            tokens = tokenizer(
                texts[start : start + 32],
                padding=True,
                truncation=True,
                max_length=LENGTH,
                return_tensors="pt",
            )
            with torch.no_grad():
                hidden = model(**tokens).last_hidden_state
            there = tokens["attention_mask"].unsqueeze(2)
            mean = (hidden * there).sum(1) / there.sum(1).clamp(min=1)
            parts.append(torch.nn.functional.layer_norm(mean, mean.shape[1:]).numpy())
        return np.concatenate(parts).astype(np.float32)

    def digests(self, piece: Piece) -> npt.NDArray[np.uint64]:
        """One number per text."""
        return text_digests(piece, self.column)

    def state(self) -> dict[str, Any]:
        """All that is kept, as JSON: the model itself stays in its folder."""
        return {"column": self.column, "path": self.path, "width": self.width}


def open_language_model(column: str, path: Path) -> LanguageModelEncoder:
    """Open a local encoder."""
    _, model = _language_model(str(path))
    return LanguageModelEncoder(column, str(path.resolve()), int(model.config.hidden_size))


_loaded: dict[str, tuple[Any, Any]] = {}


def _language_model(path: str) -> tuple[Any, Any]:
    if path not in _loaded:
        if not Path(path).is_dir():
            raise DataError(f"there is no folder {path}; expected a saved transformers encoder")
        transformers = optional(
            "transformers", package="transformers", extra="transformers", needed_for="--encoder"
        )
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(path, local_files_only=True)
            model = transformers.AutoModel.from_pretrained(path, local_files_only=True)
        except (OSError, ValueError) as error:
            why = (str(error).splitlines() or ["unknown"])[0]
            raise DataError(f"{path} is no encoder that transformers can load ({why})") from error
        _loaded[path] = tokenizer, model.eval()
    return _loaded[path]
