"""Small tables, texts and image folders with wrong labels, made from a seed."""

from __future__ import annotations

import numpy as np
import pandas as pd
from PIL import Image

NAMES = np.array(["cat", "dog", "eel"])


def table(rows, seed, *, noise=0.0):
    """Three classes that four columns tell apart; `noise` of them are called "cat"."""
    draw = np.random.default_rng(seed)
    truth = draw.integers(0, 3, rows)
    frame = pd.DataFrame({
        "length": draw.normal(truth * 3.0, 1.0),
        "weight": draw.normal((truth == 1) * 4.0, 1.0),
        "town": np.array(["Bonn", "Köln", "Ulm"])[np.where(draw.random(rows) < 0.8, truth, 0)],
        "seen_on": (pd.Timestamp("2024-01-01") + pd.to_timedelta(draw.integers(0, 365, rows), "D"))
        .strftime("%Y-%m-%d"),
        "label": NAMES[truth],
    })  # fmt: skip
    frame.loc[draw.random(rows) < 0.1, "weight"] = np.nan
    wrong = (draw.random(rows) < noise) & (truth != 0)
    frame.loc[wrong, "label"] = "cat"
    return frame, wrong


def write_tables(folder, *, rows=300, clean=30, test=0, noise=0.4, suffix="csv"):
    """rows.csv, checked.csv (and test.csv) in `folder`; which labels of rows.csv are wrong."""
    parts = {"rows": table(rows, 0, noise=noise), "checked": table(clean, 1)}
    if test:
        parts["test"] = table(test, 2)
    for name, (frame, _) in parts.items():
        path = folder / f"{name}.{suffix}"
        frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    return parts["rows"][1]


GOOD = ["great", "lovely", "perfect", "würdig", "bravo", "happy"]
BAD = ["awful", "broken", "refund", "schlecht", "never", "boring"]


def texts(rows, seed, *, noise=0.0):
    draw = np.random.default_rng(seed)
    truth = draw.integers(0, 2, rows)
    said = [
        " ".join([*draw.choice([BAD, GOOD][t], 3), *draw.choice(["the", "a", "it", "was"], 4)])
        for t in truth
    ]
    wrong = (draw.random(rows) < noise) & (truth == 1)
    stars = np.where(wrong, "bad", np.array(["bad", "good"])[truth])
    return pd.DataFrame({"review": said, "stars": stars}), wrong


def images(folder, rows, seed, *, noise=0.0, size=(16, 20)):
    """Squares that are dark left or dark right, as folder/left/0001.png and folder/right/..."""
    draw = np.random.default_rng(seed)
    wrong = []
    for k in range(rows):
        truth = int(draw.integers(0, 2))
        pixels = draw.integers(0, 60, (size[1], size[0], 3), dtype=np.uint8)
        half = slice(0, size[0] // 2) if truth == 0 else slice(size[0] // 2, None)
        pixels[:, half] += 150
        flipped = truth == 1 and draw.random() < noise
        name = "left" if truth == 0 or flipped else "right"
        (folder / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / name / f"{k:04d}.png")
        wrong.append((f"{name}/{k:04d}.png", flipped))
    return [flag for _, flag in sorted(wrong)]
