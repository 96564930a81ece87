"""Data for the tutorial in docs/own-data.md, from scikit-learn's biopsies.

    python examples/noisy_table.py            biopsies.csv, checked.csv, test.csv and truth.csv
    python examples/noisy_table.py --look RUN looks through the 60 most suspicious rows of a run, as
                                              you would, and writes RUN/confirmed.csv

569 rows, 30 measurements each, "malignant" or "benign". In biopsies.csv 45% of the malignant ones
are called benign: an error with a pattern, as one careless source would make it. truth.csv has the
right label of every row of biopsies.csv; nothing but --look reads it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer


def make(folder: Path) -> None:
    """Write the four files."""
    bunch = load_breast_cancer(as_frame=True)
    frame = bunch.data.rename(columns=lambda name: name.replace(" ", "_"))
    frame["diagnosis"] = np.array(["malignant", "benign"])[bunch.target]
    frame = frame.sample(frac=1, random_state=0, ignore_index=True)
    checked, test, rows = frame[:24], frame[24:174], frame[174:].reset_index(drop=True)
    rows[["diagnosis"]].to_csv(folder / "truth.csv", index_label="index")
    careless = np.random.default_rng(0).random(len(rows)) < 0.45
    wrong = careless & (rows["diagnosis"] == "malignant")
    rows = rows.assign(diagnosis=rows["diagnosis"].where(~wrong, "benign"))
    for name, part in (("biopsies", rows), ("checked", checked), ("test", test)):
        part.to_csv(folder / f"{name}.csv", index=False)
    print(f"{len(rows)} rows, {wrong.sum()} of them mislabelled; {len(checked)} checked rows")


def look(run: Path, truth: Path) -> None:
    """Confirm or correct the most suspicious rows."""
    suspects = pd.read_parquet(run / "suspects.parquet")[:60]
    right = pd.read_csv(truth)["diagnosis"]
    found = pd.DataFrame({"index": suspects["index"], "label": right[suspects["index"]].to_numpy()})
    found.to_csv(run / "confirmed.csv", index=False)
    wrong = (found["label"] != suspects["given_label"]).sum()
    print(f"looked at {len(found)} rows: {wrong} were mislabelled")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--look", type=Path, metavar="RUN")
    asked = parser.parse_args()
    if asked.look is None:
        make(Path("."))
    else:
        look(asked.look, Path("truth.csv"))
