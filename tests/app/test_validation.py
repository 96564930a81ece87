"""--validation: its rows choose the candidate; those of --test have no part in it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import reweigh
from reweigh.app import Options, network_candidates, networks, train
from reweigh.errors import DataError
from reweigh.report.run import render
from support.own_data import table, texts

QUICK = {"steps": 6, "hidden": 4, "threads": 1}


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("validation")
    sizes = {"rows": (80, 0), "checked": (20, 1), "validation": (30, 2), "test": (25, 3)}
    for name, (rows, seed) in sizes.items():
        frame = table(rows, seed, noise=0.3 if name == "rows" else 0.0)[0]
        frame.to_csv(folder / f"{name}.csv", index=False)
    return folder


def asked(folder, *roles, **changes):
    files = {role: folder / f"{role}.csv" for role in roles}
    usual = {"data": folder / "rows.csv", "clean": folder / "checked.csv", "target": "label"}
    return Options(**{**usual, **QUICK, **files, **changes})


def right(folder, run, name):
    frame = pd.read_csv(folder / f"{name}.csv")
    return float((reweigh.load(run).predict(folder / f"{name}.csv") == frame["label"]).mean())


def test_the_validation_rows_choose_and_the_test_rows_judge(here, tmp_path, monkeypatch):
    monkeypatch.setattr(network_candidates, "FINE_TUNE_STEPS", 3)
    summary = train(asked(here, "validation", "test", quick=True), tmp_path / "run")
    assert summary["judged_by"] == "validation"
    assert {each["rows"] for each in summary["candidates"]} == {30}
    assert (summary["judged_on"], summary["judged_rows"]) == ("test", 25)
    assert summary["figure"] == pytest.approx(right(here, tmp_path / "run", "test"))
    assert "of the validation rows" in summary["why_chosen"]
    assert "Each was judged on the validation rows" in render(tmp_path / "run")


def test_without_test_rows_the_figure_is_that_of_the_validation_rows(here, tmp_path):
    summary = train(asked(here, "validation", method="plain"), tmp_path / "run")
    assert (summary["judged_on"], summary["judged_rows"]) == ("validation", 30)
    assert summary["figure"] == pytest.approx(right(here, tmp_path / "run", "validation"))
    assert "validation rows" in render(tmp_path / "run")


def test_texts_are_validated_too(tmp_path):
    for name, rows in (("rows", 50), ("checked", 16), ("validation", 20)):
        frame = texts(rows, rows)[0].rename(columns={"stars": "label"})
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    options = asked(tmp_path, "validation", text="review", method="linear_all")
    summary = train(options, tmp_path / "run")
    assert summary["figure"] == pytest.approx(right(tmp_path, tmp_path / "run", "validation"))


def test_rows_that_are_checked_too_are_left_out(here, tmp_path):
    said = []
    frames = [pd.read_csv(here / f"{name}.csv") for name in ("validation", "checked")]
    pd.concat([frames[0], frames[1].head(4)]).to_csv(tmp_path / "both.csv", index=False)
    signs = reweigh.app.Signs(say=said.append)
    options = asked(here, validation=tmp_path / "both.csv", method="plain")
    summary = train(options, tmp_path / "run", signs)
    assert "4 validation rows are clean rows too: left out of the validation" in said
    assert summary["judged_rows"] == 30
    frames[0].head(9).to_csv(tmp_path / "few.csv", index=False)
    with pytest.raises(DataError, match="9 validation rows are left; expected 10 or more"):
        train(asked(here, validation=tmp_path / "few.csv"), tmp_path / "few")
    with pytest.raises(DataError, match="there is no"):
        train(asked(here, validation=tmp_path / "none.csv"), tmp_path / "none")
    assert np.isfinite(summary["figure"])


def test_early_stopping_by_validation_rows_or_by_some_of_the_checked(here, tmp_path, monkeypatch):
    monkeypatch.setattr(network_candidates, "FINE_TUNE_STEPS", 3)
    monkeypatch.setattr(networks, "PATIENCE", 1)
    for name, roles in (("file", ("validation",)), ("held", ())):
        said: list[str] = []
        signs = reweigh.app.Signs(say=said.append)
        changes = {"early_stop": True, "steps": 60, "learning_rate": 2.0, "quick": name == "held"}
        method = {} if name == "held" else {"method": "reweigh"}
        summary = train(asked(here, *roles, **changes, **method), tmp_path / name, signs)
        curve = [p for p in summary["curves"]["reweigh"] if p["step"]]
        best = min(curve, key=lambda p: p["hyper_loss"])["step"]
        assert f"the network was best after {best} of 60 steps" in said
        assert len(curve) < 20  # of 20 evaluations
        if name == "held":
            assert "3 of 20 clean rows tell when to stop, and guide nothing" in said
            assert summary["clean_rows"] == 17
            assert summary["judged_by"] == "cross-validation"
    few = tmp_path / "few.csv"
    pd.read_csv(here / "checked.csv").groupby("label").head(2).to_csv(few, index=False)
    with pytest.raises(DataError, match="are too few for that"):
        train(asked(here, clean=few, early_stop=True), tmp_path / "few")
