"""`reweigh fix`: corrected data in their own form, honest shares, and nobody's files touched."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from reweigh.app import Options, Signs, label_notes, plan_fix, train
from reweigh.errors import DataError, ReweighError, SettingError
from reweigh.report import write_report
from reweigh.review import write_fixed
from reweigh.runs import RunSummary, read
from support.own_data import table


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A table in which a third of the labels are wrong, mostly by one of two people; 120 rows checked."""
    folder = tmp_path_factory.mktemp("fix")
    frame, wrong = table(600, 0, noise=0.4)
    draw = np.random.default_rng(0)
    by_bob = np.where(wrong, draw.random(600) < 0.8, draw.random(600) < 0.3)
    frame["who"] = np.where(by_bob, "bob", "ann")
    checked = table(600, 0)[0].assign(who=frame["who"]).iloc[draw.choice(600, 120, replace=False)]
    frame.to_csv(folder / "rows.csv", index=False)
    checked.to_csv(folder / "checked.csv", index=False)
    options = Options(
        data=folder / "rows.csv", clean=folder / "checked.csv", target="label", source="who",
        method="linear_corrected", steps=60,
    )  # fmt: skip
    train(options, folder / "run")
    return folder


@pytest.fixture(scope="module")
def fixed(run):
    plan = plan_fix(run / "run", run / "fixed", false_alarms=0.1)
    write_fixed(plan.run, plan.fixes, plan.summary, run / "fixed")
    return run / "fixed"


def test_labels_come_out_right(run, fixed):
    given, truth = pd.read_csv(run / "rows.csv"), table(600, 0)[0]
    aside = pd.read_csv(fixed / "set_aside.csv")["index"]
    corrected, kept = pd.read_csv(fixed / "corrected.csv"), truth.drop(index=aside)
    before = (given["label"] == truth["label"]).mean()
    after = (corrected["label"].to_numpy() == kept["label"].to_numpy()).mean()
    assert before < 0.75
    assert after > 0.95
    # All but the labels is as it was.
    left = given.drop(index=aside).drop(columns="label").reset_index(drop=True)
    pd.testing.assert_frame_equal(corrected.drop(columns="label"), left)
    done = json.loads((fixed / "fix.json").read_text())
    low, high = done["right_before_interval"]
    assert low < before < high
    low, high = done["right_after_interval"]
    assert low - 0.02 < after < high + 0.02
    assert done["kept"] + done["relabelled"] + done["set_aside"] == done["rows"] == 480
    assert done["model_gain"] > done["model_gain_interval"] > 0


def test_every_change_is_listed_with_its_reason(run, fixed):
    given = pd.read_csv(run / "rows.csv")["label"]
    corrected = given.copy()
    with (fixed / "fixes.csv").open(newline="") as stream:
        for row in csv.DictReader(stream):
            assert given[int(row["index"])] == row["given_label"]
            assert row["why"]
            corrected[int(row["index"])] = row["new_label"] or None
    expected = corrected.dropna().to_numpy()
    assert (pd.read_csv(fixed / "corrected.csv")["label"].to_numpy() == expected).all()


def test_labels_that_people_checked_are_put_in(run, fixed):
    fixes = pd.read_csv(fixed / "fixes.csv")
    by_people = fixes[fixes["why"].str.contains("checked rows")]
    truth = table(600, 0)[0]["label"]
    assert len(by_people) > 20
    assert (truth[by_people["index"]].to_numpy() == by_people["new_label"].to_numpy()).all()


def test_the_users_files_stay_and_a_folder_is_not_written_over(run, fixed):
    before = {path: path.read_bytes() for path in (*run.glob("*.csv"), *fixed.iterdir())}
    with pytest.raises(DataError, match="--force"):
        plan_fix(run / "run", fixed, false_alarms=0.1, gain=False)
    with pytest.raises(DataError, match="not from `reweigh fix`"):
        plan_fix(run / "run", run, false_alarms=0.1, gain=False, force=True)
    with pytest.raises(SettingError, match="between 0 and 1"):
        plan_fix(run / "run", fixed, false_alarms=1.5)
    plan = plan_fix(run / "run", fixed, false_alarms=0.1, gain=False, force=True)
    write_fixed(plan.run, plan.fixes, plan.summary, fixed)
    after = {path: path.read_bytes() for path in before}
    assert {p.name for p in before if before[p] != after[p]} == {"fix.json"}  # no gain in it now
    assert not [path for path in run.iterdir() if path.name.startswith(".")]


def test_a_failure_leaves_no_folder(run, tmp_path):
    plan = plan_fix(run / "run", tmp_path / "out", false_alarms=0.1, gain=False)
    moved = run / "rows.csv"
    content = moved.read_text()
    moved.write_text(content.replace("cat", "cow"))  # other labels than the run had
    try:
        with pytest.raises(ReweighError, match="have changed"):
            write_fixed(plan.run, plan.fixes, plan.summary, tmp_path / "out")
    finally:
        moved.write_text(content)
    assert list(tmp_path.iterdir()) == []


def test_the_run_says_how_many_labels_are_wrong_and_whose(run):
    labels = read(run / "run" / "summary.json", RunSummary).labels
    assert labels is not None
    assert labels.pairs_known
    truth, given = (
        f["label"].to_numpy() for f in (table(600, 0)[0], pd.read_csv(run / "rows.csv"))
    )
    share = np.mean(truth != given)
    assert labels.wrong.low < share < labels.wrong.high
    assert {pair.given for pair in labels.pairs[:2]} == {"cat"}
    by_name = {each.source: each.wrong.share for each in labels.sources}
    who = pd.read_csv(run / "rows.csv")["who"].to_numpy()
    for name in ("ann", "bob"):
        assert abs(by_name[name] - np.mean((truth != given)[who == name])) < 0.1
    assert [each.source for each in labels.sources] == ["bob", "ann"]


def test_the_audit_says_what_cannot_be_promised(run):
    plenty, few = (label_notes(run / "run", rate) for rate in (0.1, 0.01))
    assert "at most 10% are expected to be right" in plenty[0]
    assert "too few" in few[0]
    assert "it would take about" in few[0]


def test_the_report_says_how_many_labels_are_wrong_and_whose(run):
    page = write_report(run / "run").read_text(encoding="utf-8")
    labels = read(run / "run" / "summary.json", RunSummary).labels
    assert labels is not None
    assert "How many labels are wrong" in page
    assert f"{480 * labels.wrong.share:,.0f} of 480" in page
    assert "By source" in page
    assert ">bob<" in page
    assert "reweigh fix run" in page


def test_sources_that_are_often_wrong_count_less_if_asked_for(run, tmp_path):
    options = replace(read(run / "run" / "options.json", Options), weigh_sources=True, steps=5)
    said = []
    train(options, tmp_path / "run", Signs(say=said.append))
    bob, ann = read(tmp_path / "run" / "summary.json", RunSummary).labels.sources
    assert (bob.source, ann.source) == ("bob", "ann")
    beyond = [1 - each.wrong.share * 3 / 2 for each in (bob, ann)]  # of three classes
    assert bob.weight / ann.weight == pytest.approx(beyond[0] / beyond[1])
    assert bob.weight < 0.8 < 1 < ann.weight
    assert (bob.rows * bob.weight + ann.rows * ann.weight) / 480 == pytest.approx(1)
    assert f"a row counts {bob.weight:.2f} to {ann.weight:.2f}, by its source" in said
    page = write_report(tmp_path / "run").read_text(encoding="utf-8")
    assert f"counts {bob.weight:.2f}" in page
    assert "what a row of it counted" in page
    # Without the option nothing is said of weights.
    assert read(run / "run" / "summary.json", RunSummary).labels.sources[0].weight is None
    assert "what a row of it counted" not in write_report(run / "run").read_text(encoding="utf-8")


def test_weights_of_sources_need_sources(run, tmp_path):
    options = replace(read(run / "run" / "options.json", Options), weigh_sources=True, source=None)
    with pytest.raises(SettingError, match="expected --source"):
        train(options, tmp_path / "run")


def test_checked_rows_are_found_among_the_data_by_their_content_or_it_is_said_that_they_are_not(
    run, tmp_path
):
    labels = read(run / "run" / "summary.json", RunSummary).labels
    assert (labels.pairs_known, labels.pairs_found) == (True, 120)
    assert not any("not known" in note for note in label_notes(run / "run", 0.1))
    given = pd.read_csv(run / "rows.csv")
    elsewhere = table(200, 7)[0].assign(who="ann")
    few = pd.concat([pd.read_csv(run / "checked.csv").head(7), elsewhere.head(60)])
    few.to_csv(tmp_path / "few.csv", index=False)
    given.to_csv(tmp_path / "rows.csv", index=False)
    options = replace(
        read(run / "run" / "options.json", Options), data=tmp_path / "rows.csv",
        clean=tmp_path / "few.csv", steps=5,
    )  # fmt: skip
    train(options, tmp_path / "run")
    labels = read(tmp_path / "run" / "summary.json", RunSummary).labels
    assert (labels.pairs_known, labels.pairs_found) == (False, 7)
    said = "only 7 of them are among the data, and 20 are needed"
    assert any(said in note for note in label_notes(tmp_path / "run", 0.1))
    assert said in write_report(tmp_path / "run").read_text(encoding="utf-8")
