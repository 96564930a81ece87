"""The store under the benchmarks: what a cut leaves behind is run again, and nothing else is."""

import runpy
from pathlib import Path

STORE = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "cell_store.py"))["CellStore"]


def squared(cell):
    if cell["n"] == 3:
        raise ValueError("three")
    return {**cell, "square": cell["n"] ** 2}


def test_half_a_line_is_dropped_a_failure_is_told_and_finished_cells_stay(tmp_path, capsys):
    path = tmp_path / "results" / "cells.jsonl"
    path.parent.mkdir()
    path.write_text('{"n": 1, "square": 100}\n{"n": 2, "squ')
    store = STORE(path, ["n"])
    assert store.rows() == {(1,): {"n": 1, "square": 100}}
    store.run_missing([{"n": n} for n in range(1, 5)], squared, jobs=2)
    assert {key[0]: row["square"] for key, row in store.rows().items()} == {1: 100, 2: 4, 4: 16}
    told = capsys.readouterr().out
    assert "1 cells done, 3 to run with 2 jobs" in told
    assert "failed: ValueError('three')" in told
