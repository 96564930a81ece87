"""Images as histograms of edges, for a linear model: a cheap rival of a network.

    grey image -> gradients -> 9 directions (without sign), each pixel's length shared by the two nearest
    -> sums over 8 x 8 cells (4 x 4 for small images) -> square root, each 2 x 2 cells of length one
    and the mean colour of 4 x 4 cells, from -1 to 1

Nothing is fitted (after Dalal and Triggs, 2005).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .columns import Features

DIRECTIONS = 9
AT_ONCE = 500


def edge_features(images: npt.NDArray[np.uint8]) -> Features:
    """[n, channels, size, size] bytes as float32 [n, width]."""
    parts = [_features(images[k : k + AT_ONCE]) for k in range(0, len(images), AT_ONCE)]
    return np.concatenate(parts) if parts else np.empty((0, 1), np.float32)


def _features(images: npt.NDArray[np.uint8]) -> Features:
    pixels = images.astype(np.float32) / 255
    grey = pixels.mean(1)
    down, across = np.gradient(grey, axis=1), np.gradient(grey, axis=2)
    length = np.sqrt(down**2 + across**2)
    angle = (np.arctan2(down, across) % np.pi) * (DIRECTIONS / np.pi)
    low = np.floor(angle).astype(np.int64)
    cells = 8 if grey.shape[1] >= 24 else 4
    histogram = np.zeros((len(grey), DIRECTIONS, cells, cells), dtype=np.float32)
    for step, share in ((0, 1 - (angle - low)), (1, angle - low)):
        direction = (low + step) % DIRECTIONS
        for k in range(DIRECTIONS):
            histogram[:, k] += _pooled(np.where(direction == k, share * length, 0), cells)
    root = np.sqrt(histogram)
    blocks = [root[:, :, i:, j:][:, :, : cells - 1, : cells - 1] for i in (0, 1) for j in (0, 1)]
    block = np.stack(blocks, axis=1).reshape(len(grey), -1, cells - 1, cells - 1)
    block /= np.sqrt((block**2).sum(1, keepdims=True)) + 0.1
    colour = 2 * np.stack([_pooled(c, 4) for c in np.moveaxis(pixels, 1, 0)], axis=1)
    colour = colour / (grey.shape[1] / 4) ** 2 - 1
    return np.concatenate([block.reshape(len(grey), -1), colour.reshape(len(grey), -1)], axis=1)


def _pooled(values: npt.NDArray[Any], cells: int) -> npt.NDArray[Any]:
    """Sums [n, cells, cells] over cells of about equal size."""
    edges = np.linspace(0, values.shape[1], cells + 1).round().astype(int)[:-1]
    return np.add.reduceat(np.add.reduceat(values, edges, axis=1), edges, axis=2)
