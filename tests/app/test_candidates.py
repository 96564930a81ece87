"""`reweigh train` judges candidates and keeps one; prediction, audit and report take any kind of it."""

from __future__ import annotations

import json
import sys

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch

import reweigh
from reweigh.app import Options, Signs, contest, train, write_audit_list
from reweigh.candidates import recipes
from reweigh.cli import main
from reweigh.errors import DataError, MissingExtraError, ReweighError, SettingError
from reweigh.report.run import render
from support.own_data import images, table, texts, write_tables

SAME = ("audit.parquet", "summary.json", "winner.json", "winner.safetensors")


@pytest.fixture(autouse=True)
def few_trees(monkeypatch):
    """Small models: what is tested is which rows they get and where they go."""
    for name, small in (("Forest", {"trees": 10}), ("Boosting", {"rounds": 10})):
        kind = getattr(recipes, name)
        monkeypatch.setattr(
            recipes, name, lambda kind=kind, small=small, **more: kind(**small, **more)
        )


def tables(folder, **more):
    write_tables(folder, **more)
    test = {"test": folder / "test.csv"} if more.get("test") else {}
    return {"data": folder / "rows.csv", "clean": folder / "checked.csv", "target": "label", **test}


def test_all_candidates_are_judged_and_one_is_kept(tmp_path):
    lines = []
    options = Options(**tables(tmp_path), steps=40)
    summary = train(options, tmp_path / "run", Signs(say=lines.append))
    names = [each["name"] for each in summary["candidates"]]
    assert set(names) == {
        "reweigh", "fine_tuned", "plain", "blend", "linear_checked", "linear_all", "linear_weighted",
        "linear_corrected", "forest_checked", "forest_corrected", "boosting_checked", "boosting_all",
        "boosting_corrected", "linear_pruned", "forest_pruned", "boosting_pruned",
    }  # fmt: skip
    (kept,) = [each for each in summary["candidates"] if each["chosen"]]
    for each in summary["candidates"]:
        assert {"name", "accuracy", "balanced_accuracy", "macro_f1", "interval", "chosen"} <= set(
            each
        )
        assert 0 <= each["accuracy"] <= 1
        assert set(each["per_class"]) == {"cat", "dog", "eel"}
    # 40% of the labels are "cat" by mistake: what believes them is behind.
    accuracy = {each["name"]: each["accuracy"] for each in summary["candidates"]}
    assert accuracy["linear_corrected"] > accuracy["linear_all"]
    assert summary["judged_on"] == "checked"
    assert summary["judged_rows"] == 30
    assert summary["figure"] == pytest.approx(summary["expected"])
    assert kept["title"].lower()[:5] in summary["why_chosen"].lower()
    truth = table(200, 9)[0]
    assert (reweigh.load(tmp_path / "run").predict(truth) == truth["label"]).mean() > 0.85
    page = render(tmp_path / "run")
    assert "What was tried" in page
    assert "Macro-F1" in page
    audit = pq.read_table(tmp_path / "run" / "audit.parquet").to_pandas()
    assert audit["posterior"].between(0, 1).all()


def test_with_test_rows_these_judge_and_each_is_fitted_once(tmp_path, monkeypatch):
    fits = []
    monkeypatch.setattr(contest.all_candidates, "judge", lambda *a, **k: fits.append(a))
    summary = train(Options(**tables(tmp_path, test=150), steps=40), tmp_path / "run")
    assert not fits
    assert (summary["judged_by"], summary["judged_on"], summary["judged_rows"]) == (
        "test",
        "test",
        150,
    )
    (kept,) = [each for each in summary["candidates"] if each["chosen"]]
    assert kept["accuracy"] == pytest.approx(summary["figure"])
    winner = json.loads((tmp_path / "run" / "winner.json").read_text())
    assert kept["name"] == winner["name"] == "blend"
    # What is saved is the mean by weights of what each candidate said of these rows.
    parts, expected = winner["parts"], 0
    for part in parts:
        said = np.load(tmp_path / "run" / "candidates" / f"{part['name']}.npz")["probabilities"][0]
        powers = np.maximum(said, 1e-6) ** part["sharpness"]
        expected += part["weight"] * powers / powers.sum(1, keepdims=True)
    predicted = reweigh.load(tmp_path / "run").predict_proba(tmp_path / "test.csv")
    assert len(parts) > 1
    assert np.allclose(predicted, expected, atol=1e-3)


def test_wrong_labels_are_less_probable_by_the_posterior(tmp_path):
    asked = tables(tmp_path)
    wrong = table(300, 0, noise=0.4)[1]
    train(Options(**asked, steps=5, method="linear_corrected"), tmp_path / "run")
    audit = pq.read_table(tmp_path / "run" / "audit.parquet").to_pandas()
    given = audit.set_index("index")["posterior"].sort_index().to_numpy()
    assert given[wrong].mean() < 0.3 < 0.7 < given[~wrong].mean()


@pytest.mark.parametrize("method", ["fine_tuned", "plain", "linear_weighted", "forest_checked", "boosting_corrected"])  # fmt: skip
def test_one_can_be_forced_and_what_is_saved_predicts_the_same(tmp_path, method, monkeypatch):
    kept = []
    save = contest.save_winner
    monkeypatch.setattr(contest, "save_winner", lambda *a: (kept.append(a), save(*a)))
    asked = tables(tmp_path, test=60)
    summary = train(Options(**asked, steps=20, method=method), tmp_path / "run")
    assert [each["name"] for each in summary["candidates"]] == [method]
    predictor = reweigh.load(tmp_path / "run")
    p = predictor.predict_proba(tmp_path / "test.csv")
    judged = np.load(tmp_path / "run" / "candidates" / f"{method}.npz")["probabilities"][0]
    assert np.allclose(p, judged, atol=1e-4)
    assert kept[0][1] == method


def test_texts_keep_n_grams_and_images_edges(tmp_path):
    texts(200, 0, noise=0.4)[0].to_csv(tmp_path / "rows.csv", index=False)
    texts(30, 1)[0].to_csv(tmp_path / "checked.csv", index=False)
    new = texts(80, 2)[0]
    options = Options(
        data=tmp_path / "rows.csv", clean=tmp_path / "checked.csv", text="review", target="stars",
        steps=20, method="linear_corrected",
    )  # fmt: skip
    train(options, tmp_path / "run")
    predictor = reweigh.load(tmp_path / "run")
    assert (predictor.predict(new) == new["stars"]).mean() > 0.9
    assert (predictor.predict(new["review"].tolist()) == predictor.predict(new)).all()
    images(tmp_path / "photos", 60, 0, noise=0.3)
    images(tmp_path / "looked", 20, 1)
    asked = Options(
        data=tmp_path / "photos", clean=tmp_path / "looked", steps=3, method="linear_checked"
    )
    train(asked, tmp_path / "pictures")
    files = sorted((tmp_path / "looked").rglob("*.png"))
    named = [file.parent.name for file in files]
    assert (reweigh.load(tmp_path / "pictures").predict(files) == named).mean() > 0.9


def test_a_run_that_is_stopped_goes_on_to_the_same_files(tmp_path, monkeypatch):
    options = Options(**tables(tmp_path), steps=15, threads=1)
    train(options, tmp_path / "run")

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(contest, "save_winner", stop)
        with pytest.raises(KeyboardInterrupt):
            train(options, tmp_path / "stopped")
    judged = []
    monkeypatch.setattr(contest.all_candidates, "judge", lambda *a, **k: judged.append(a))
    train(options, tmp_path / "stopped")
    assert not judged
    for name in SAME:
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()


def test_quick_tries_three(tmp_path, capsys):
    asked = tables(tmp_path)
    arguments = [f"--{name}={value}" for name, value in asked.items()]
    with pytest.raises(SystemExit) as stopped:
        main(["train", *arguments, "--quick", "--steps", "10", "--out", str(tmp_path / "run")])
    assert stopped.value.code == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert {each["name"] for each in summary["candidates"]} == {*contest.QUICK, "blend"}
    said = capsys.readouterr().out
    assert "checked (cross-validated) rows" in said
    assert "was kept" in said


def test_where_networks_are_judged_on_one_part_the_figure_says_what_it_is_worth(
    tmp_path, monkeypatch, capsys
):
    """As for images: 10 of 50 checked rows judge the blend, and the quick candidates say how easy they are."""
    monkeypatch.setattr(contest, "network_folds", lambda plan, prepared: 1)
    asked = tables(tmp_path, clean=50)
    summary = train(Options(**asked, steps=40, quick=True), tmp_path / "run")
    rows = {each["name"]: each["rows"] for each in summary["candidates"]}
    assert rows == {"blend": 10, "reweigh": 10, "linear_checked": 50, "linear_all": 50}
    assert (summary["judged_on"], summary["judged_rows"]) == ("checked", 10)
    assert summary["expected"] == summary["figure"]
    p = (summary["figure"] * 50 + 2) / 54
    assert summary["interval"] > 1.96 * (p * (1 - p) / 54) ** 0.5  # that of all fifty
    assert any("10 of the 50 checked rows judged" in each["what"] for each in summary["warnings"])
    arguments = [f"--{name}={value}" for name, value in asked.items()]
    with pytest.raises(SystemExit):
        main(["train", *arguments, "--quick", "--steps", "40", "--out", str(tmp_path / "run")])
    assert "network, reweighed (10 rows)" in capsys.readouterr().out


def test_few_checked_rows_judge_nothing(tmp_path):
    lines = []
    asked = tables(tmp_path, clean=8)
    summary = train(Options(**asked, steps=5), tmp_path / "run", Signs(say=lines.append))
    assert summary["candidates"] == []
    assert "cannot judge" in "\n".join(lines)
    assert not (tmp_path / "run" / "winner.json").exists()


def test_bad_requests_are_refused(tmp_path):
    asked = tables(tmp_path)
    with pytest.raises(ReweighError, match="did you mean 'linear_all'"):
        train(Options(**asked, method="linear_al"), tmp_path / "run")
    assert not (tmp_path / "run" / "options.json").exists()
    with pytest.raises(SettingError, match="one of the two"):
        Options(**asked, method="linear_all", quick=True)


def test_a_damaged_winner_is_an_error_with_a_name(tmp_path):
    train(Options(**tables(tmp_path), steps=5, method="linear_all"), tmp_path / "run")
    path = tmp_path / "run" / "winner.safetensors"
    content = path.read_bytes()
    for damaged in (b"", content[:40], b"x" * 100):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"winner\.safetensors is damaged"):
            reweigh.load(tmp_path / "run")
    path.unlink()
    with pytest.raises(DataError, match="there is no"):
        reweigh.load(tmp_path / "run")


def test_a_regression_has_candidates(tmp_path):
    draw = np.random.default_rng(0)
    x = draw.normal(size=(300, 2))
    y = 100 + 20 * x[:, 0] - 10 * x[:, 1] + draw.normal(0, 1, 300)
    frame = pd.DataFrame(
        {"a": x[:, 0], "b": x[:, 1], "price": np.where(np.arange(300) % 4, y, y + 90)}
    )
    frame[:200].to_csv(tmp_path / "rows.csv", index=False)
    frame.assign(price=y)[200:240].to_csv(tmp_path / "checked.csv", index=False)
    new = frame.assign(price=y)[240:]
    asked = {"data": tmp_path / "rows.csv", "clean": tmp_path / "checked.csv", "target": "price"}
    summary = train(Options(**asked, steps=40), tmp_path / "run")
    errors = {each["name"]: each["error"] for each in summary["candidates"]}
    assert {
        "blend",
        "reweigh",
        "fine_tuned",
        "linear_checked",
        "forest_pruned",
        "boosting_weighted",
    } <= set(errors)
    assert errors["linear_pruned"] < errors["linear_weighted"] < errors["linear_all"]
    predictor = reweigh.load(tmp_path / "run")
    predicted = predictor.predict(new)
    exported = predictor.module()(torch.from_numpy(predictor.encoded(new)))
    assert exported.detach().numpy() == pytest.approx(predicted, rel=1e-4)
    off = np.abs(predicted - new["price"]).mean()
    assert off < 4  # prices spread by 22, and networks have 40 steps
    assert summary["judged_on"] == "checked"
    assert summary["figure"] == pytest.approx(summary["expected"])
    assert 0.5 < summary["figure"] < 5  # prices spread by 22
    assert "root mean square" in summary["why_chosen"]
    assert "Error, root mean square" in render(tmp_path / "run")
    new.to_csv(tmp_path / "test.csv", index=False)
    one = train(
        Options(**asked, test=tmp_path / "test.csv", steps=5, method="boosting_pruned"),
        tmp_path / "one",
    )
    off = reweigh.load(tmp_path / "one").predict(new) - new["price"]
    assert one["figure"] == pytest.approx(np.abs(off).mean(), rel=1e-3)
    assert one["candidates"][0]["error"] == pytest.approx(np.sqrt(np.mean(off**2)), rel=1e-3)


def test_trees_of_lightgbm_are_read_without_it(tmp_path, monkeypatch):
    """The saved model is arrays: a machine without LightGBM predicts, audits and exports the same."""
    pytest.importorskip("lightgbm", reason="lightgbm is not installed: reweigh[trees]")
    write_tables(tmp_path, rows=60, clean=20)
    asked = {"data": tmp_path / "rows.csv", "clean": tmp_path / "checked.csv", "target": "label"}
    options = Options(**asked, steps=3, method="boosting_corrected", trees="lightgbm")
    summary = train(options, tmp_path / "run")
    assert summary["candidates"][0]["title"].startswith("gradient boosting (LightGBM)")
    before = reweigh.load(tmp_path / "run").predict_proba(tmp_path / "rows.csv")
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    predictor = reweigh.load(tmp_path / "run")
    np.testing.assert_array_equal(predictor.predict_proba(tmp_path / "rows.csv"), before)
    write_audit_list(tmp_path / "run", tmp_path / "audit.csv")
    with torch.no_grad():
        said = predictor.module()(torch.from_numpy(predictor.encoded(tmp_path / "rows.csv")))
    np.testing.assert_allclose(said.numpy(), before, atol=1e-5)
    with pytest.raises(MissingExtraError, match=r"reweigh\[trees\]"):
        train(options, tmp_path / "again")
