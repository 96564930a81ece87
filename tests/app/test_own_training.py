"""Own data from end to end: a table, texts, images; audit, prediction, resuming."""

from __future__ import annotations

import csv
import json

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from PIL import Image
from sklearn.metrics import roc_auc_score

import reweigh
from reweigh.app import Options, Signs, train, write_predictions
from reweigh.app import write_audit_list as write_listing
from reweigh.app.labelled_rows import read_confirmed
from reweigh.cli import main
from reweigh.errors import DataError, SettingError
from reweigh.runs import open_run
from support.own_data import images, table, texts, write_tables


def said(options, out):
    """Train; the summary, and the lines that were said."""
    lines = []
    return train(options, out, Signs(say=lines.append)), "\n".join(lines)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run on a table whose labels are 40% wrong, all of them "cat"."""
    folder = tmp_path_factory.mktemp("own")
    wrong = write_tables(folder, test=200)
    options = Options(
        data=folder / "rows.csv", clean=folder / "checked.csv", test=folder / "test.csv",
        target="label", method="reweigh", compare=True, steps=200,
    )  # fmt: skip
    summary, lines = said(options, folder / "run")
    return folder, wrong, options, summary, lines


def test_the_run_beats_plain_training(run):
    _, _, _, summary, lines = run
    plain = next(line for line in summary["comparison"] if line["method"] == "uniform")
    assert summary["figure"] > 0.85
    assert plain["gain"] > plain["interval"] > 0
    assert "3 classes; 300 training rows, 30 clean" in lines


def test_the_audit_finds_the_wrong_labels(run):
    folder, wrong, *_ = run
    audit = pq.read_table(folder / "run" / "audit.parquet").to_pandas()
    assert list(audit.columns) == [
        "index", "given_label", "suggested_label", "suspicion", "mean_weight", "zero_share", "seen",
        "posterior", "p_wrong", "suggested", "p_suggested", "flag", "flagged_from", "source",
        "against_share",
    ]  # fmt: skip
    assert sorted(audit["index"]) == list(range(300))
    assert (audit["suspicion"].diff().dropna() <= 0).all()
    assert roc_auc_score(wrong[audit["index"]], audit["suspicion"]) > 0.95
    given = table(300, 0, noise=0.4)[0]["label"].to_numpy()
    assert (audit["given_label"].to_numpy() == given[audit["index"]]).all()
    assert set(audit["suggested_label"].dropna()) <= {"cat", "dog", "eel"}
    assert (audit["suggested_label"].dropna() != audit["given_label"][audit["suggested_label"].notna()]).all()  # fmt: skip


def test_the_audit_says_how_probable_errors_are(run):
    folder, wrong, *_ = run
    audit = pq.read_table(folder / "run" / "audit.parquet").to_pandas()
    is_wrong = wrong[audit["index"]]
    assert roc_auc_score(is_wrong, audit["p_wrong"]) > 0.95
    assert abs(audit["p_wrong"].mean() - is_wrong.mean()) < 0.08
    assert (audit["suggested"] != audit["given_label"]).all()
    assert (audit["p_suggested"] <= audit["p_wrong"] + 1e-12).all()
    assert (audit["flag"] == (audit["flagged_from"] <= 0.1)).all()
    truth = table(300, 0)[0]["label"].to_numpy()[audit["index"]]
    sure = audit["p_suggested"] > 0.8
    assert (audit["suggested"][sure] == truth[sure]).mean() > 0.8


def test_suspects_show_the_row_and_say_why(run):
    folder, *_ = run
    file = pq.ParquetFile(folder / "run" / "suspects.parquet")
    first = file.read_row_group(0).to_pylist()[0]
    frame = table(300, 0, noise=0.4)[0]
    cells = json.loads(first["example"])
    assert cells["town"] == frame["town"][first["index"]]
    assert float(cells["length"]) == frame["length"][first["index"]]
    assert first["why"].endswith(".")
    assert 0.5 <= first["probability"] <= 1


def test_a_suspect_that_helped_most_of_the_time_is_explained(run):
    """A high mean weight and a suspect label seem to contradict each other; the sentence says why not."""
    suspects = pq.read_table(run[0] / "run" / "suspects.parquet").to_pandas()
    suspects = suspects[suspects["seen"] > 0]
    helped = suspects["zero_share"] < 0.5
    assert helped.any()
    assert not helped.all()
    alone = suspects["why"].str.contains("suspect for its label alone")
    assert (alone == helped).all()


def test_source_json_is_what_was_agreed(run):
    folder, *_ = run
    source = json.loads((folder / "run" / "source.json").read_text())
    assert source["version"] == 1
    assert (source["kind"], source["task"], source["target"]) == ("table", "classes", "label")
    assert source["classes"] == ["cat", "dog", "eel"]
    assert source["rows"] == 300
    assert source["data"] == str((folder / "rows.csv").resolve())
    assert source["columns"] == ["length", "weight", "town", "seen_on", "label"]


def test_predictions_are_the_same_from_a_file_a_frame_and_the_command(run, tmp_path):
    folder, *_ = run
    predictor = reweigh.load(folder / "run")
    frame = pd.read_csv(folder / "test.csv")
    from_file = predictor.predict_proba(folder / "test.csv")
    from_frame = predictor.predict_proba(frame.drop(columns="label"))
    assert np.allclose(from_file, from_frame, atol=1e-5)
    assert np.allclose(from_file.sum(1), 1)
    assert (predictor.predict(frame) == frame["label"]).mean() > 0.85
    assert write_predictions(folder / "run", folder / "test.csv", tmp_path / "p.csv") == 200
    written = pd.read_csv(tmp_path / "p.csv")
    assert list(written.columns) == ["index", "predicted", "p_cat", "p_dog", "p_eel"]
    assert np.allclose(written[["p_cat", "p_dog", "p_eel"]], from_file, atol=1e-5)
    assert write_predictions(folder / "run", folder / "test.csv", tmp_path / "p.parquet") == 200
    assert pd.read_parquet(tmp_path / "p.parquet")["predicted"].tolist() == written["predicted"].tolist()  # fmt: skip


def test_a_prediction_without_a_needed_column_is_refused(run):
    folder, *_ = run
    with pytest.raises(DataError, match="no column 'town'"):
        reweigh.load(folder / "run").predict(pd.DataFrame({"length": [1.0], "weight": [1.0]}))


def test_the_same_command_again_reads_the_finished_run(run):
    folder, _, options, summary, _ = run
    again, lines = said(options, folder / "run")
    assert again == summary
    assert "is finished" in lines


def test_other_options_do_not_touch_a_run(run):
    folder, _, options, *_ = run
    with pytest.raises(SettingError, match="--steps there 200, here 10"):
        train(Options.of(options.json(), steps=10), folder / "run")


def test_the_listing_is_safe_to_open_in_a_spreadsheet(tmp_path):
    frame, _ = table(60, 0)
    frame["label"] = frame["label"].replace({"cat": "=cmd()", "dog": "-1", "eel": "@x"})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.assign(length=frame["length"] + 0.1)[:20].to_csv(tmp_path / "checked.csv", index=False)
    options = Options(data=tmp_path / "rows.csv", clean=tmp_path / "checked.csv", target="label", method="reweigh", steps=5)  # fmt: skip
    train(options, tmp_path / "run")
    path, rows, _ = write_listing(tmp_path / "run", None)
    with path.open(newline="") as stream:
        lines = list(csv.DictReader(stream))
    assert rows == len(lines) == 60
    assert {line["given_label"] for line in lines} == {"'=cmd()", "-1", "'@x"}
    # What was made safe for a spreadsheet is understood when it comes back.
    (tmp_path / "confirmed.csv").write_text("index,label\n4,'=cmd()\n5,-1\n")
    confirmed = read_confirmed([tmp_path / "confirmed.csv"], ("-1", "=cmd()", "@x"), 60)
    assert confirmed.labels.tolist() == [1, 0]


def test_checked_rows_speak_against_wrong_labels(run):
    folder, wrong, *_ = run
    opened = open_run(folder / "run")
    found = opened.voices()
    suspects = {s.index: s for s in opened.first_suspects(100)}
    assert list(found) == list(suspects)
    checked = pd.read_csv(folder / "checked.csv")
    against = []
    for index, voices in found.items():
        assert [w.product for w in voices] == sorted(w.product for w in voices)
        for voice in voices:
            assert voice.file == "clean"
            assert voice.label == checked["label"][voice.row]
            cells = json.loads(voice.example)
            assert float(cells["length"]) == pytest.approx(checked["length"][voice.row])
        if wrong[index] and voices[0].product < 0:
            against.append(voices[0].label != suspects[index].given_label)
    assert len(against) > 50
    assert np.mean(against) > 0.9  # a wrong "cat" hurts checked dogs, not checked cats


def test_a_wrong_checked_row_is_named_first_of_all(tmp_path):
    write_tables(tmp_path, rows=200, clean=40)
    checked = pd.read_csv(tmp_path / "checked.csv")
    length = checked["length"].where(checked["label"] == "eel")
    spoilt = int(length.idxmax())  # plainly an eel
    checked.loc[spoilt, "label"] = "cat"
    checked.to_csv(tmp_path / "checked.csv", index=False)
    options = Options(data=tmp_path / "rows.csv", clean=tmp_path / "checked.csv", target="label", method="reweigh", steps=5)  # fmt: skip
    summary, _ = said(options, tmp_path / "run")
    first = summary["checked_doubts"][0]
    assert (first["file"], first["row"], first["label"], first["rival"]) == (
        "clean",
        spoilt,
        "cat",
        "eel",
    )
    assert (
        f"row {spoilt} of the clean file, checked as 'cat', looks like 'eel'"
        in summary["warnings"][0]["what"]
    )
    assert len(summary["checked_doubts"]) <= 3


def test_checked_rows_may_be_marked_in_the_table(tmp_path):
    frame, _ = table(200, 0, noise=0.3)
    frame["checked"] = 0
    frame.loc[:19, "checked"] = 1
    frame.loc[:19, "label"] = table(200, 0)[0]["label"][:20]
    frame.to_parquet(tmp_path / "rows.parquet")
    options = Options(data=tmp_path / "rows.parquet", clean_where="checked == 1", target="label", method="reweigh", steps=20)  # fmt: skip
    summary, _ = said(options, tmp_path / "run")
    assert (summary["train_rows"], summary["clean_rows"]) == (180, 20)
    # The mark says which rows are clean, so nothing may be learnt from it.
    assert "checked" not in reweigh.load(tmp_path / "run").encoder.needs
    audit = pq.read_table(tmp_path / "run" / "audit.parquet")
    assert sorted(audit["index"].to_pylist()) == list(range(20, 200))


def test_confirmed_rows_join_the_clean_set(tmp_path):
    write_tables(tmp_path)
    (tmp_path / "confirmed.csv").write_text("index,label\n3,dog\n5,eel\n3,dog\n")
    options = Options(
        data=tmp_path / "rows.csv", clean=tmp_path / "checked.csv", target="label", method="reweigh", steps=5,
        also_clean=(tmp_path / "confirmed.csv",),
    )  # fmt: skip
    summary, lines = said(options, tmp_path / "run")
    assert (summary["train_rows"], summary["clean_rows"]) == (298, 32)
    assert "2 confirmed rows join the clean set" in lines


def test_resuming_with_confirmed_rows_takes_everything_else_from_the_run(tmp_path, capsys):
    write_tables(tmp_path)
    asked = ["train", "--data", tmp_path / "rows.csv", "--clean", tmp_path / "checked.csv"]
    asked += ["--target", "label", "--method", "reweigh", "--steps", "5", "--out", tmp_path / "run"]
    with pytest.raises(SystemExit) as stopped:
        main([str(a) for a in asked])
    assert stopped.value.code == 0
    (tmp_path / "run" / "confirmed.csv").write_text("index,label\n7,dog\n")
    with pytest.raises(SystemExit) as stopped:
        main(["train", "--resume-with", str(tmp_path / "run" / "confirmed.csv")])
    assert stopped.value.code == 0
    summary = json.loads((tmp_path / "run-2" / "summary.json").read_text())
    assert (summary["train_rows"], summary["clean_rows"]) == (299, 31)
    assert (tmp_path / "run-2" / "report.html").exists()
    # A second round adds to the first, and leaves out what was dropped.
    (tmp_path / "run-2" / "confirmed.csv").write_text("index,label\n9,cat\n")
    (tmp_path / "run-2" / "dropped.csv").write_text("index\n11\n12\n")
    with pytest.raises(SystemExit) as stopped:
        main(["train", "--resume-with", str(tmp_path / "run-2" / "confirmed.csv")])
    assert stopped.value.code == 0
    summary = json.loads((tmp_path / "run-2-2" / "summary.json").read_text())
    assert (summary["train_rows"], summary["clean_rows"]) == (296, 32)
    audit = pq.read_table(tmp_path / "run-2-2" / "audit.parquet")
    assert not {7, 9, 11, 12} & set(audit["index"].to_pylist())


def test_rows_of_the_clean_file_are_taken_out_of_the_training_rows(tmp_path):
    frame, _ = table(120, 0, noise=0.4)
    truth = table(120, 0)[0]
    frame.to_csv(tmp_path / "rows.csv", index=False)
    truth[:25].to_csv(tmp_path / "checked.csv", index=False)
    options = Options(data=tmp_path / "rows.csv", clean=tmp_path / "checked.csv", target="label", method="reweigh", steps=5)  # fmt: skip
    summary, lines = said(options, tmp_path / "run")
    assert summary["train_rows"] == 95
    assert "25 training rows are clean or test rows too" in lines


def test_a_regression(tmp_path):
    draw = np.random.default_rng(0)
    x = draw.normal(size=(400, 2))
    y = 100 + 20 * x[:, 0] - 10 * x[:, 1] + draw.normal(0, 1, 400)
    given = np.where(np.arange(400) % 5 == 0, y + 90, y)
    given[5] = 1234567.5  # too far to be trained on as it is
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "price": given})
    frame[:300].to_csv(tmp_path / "rows.csv", index=False)
    sound = frame.assign(price=y)
    sound[300:340].to_csv(tmp_path / "checked.csv", index=False)
    sound[340:].to_csv(tmp_path / "test.csv", index=False)
    options = Options(
        data=tmp_path / "rows.csv", clean=tmp_path / "checked.csv", test=tmp_path / "test.csv",
        target="price", method="reweigh", compare=True, steps=300,
    )  # fmt: skip
    summary, lines = said(options, tmp_path / "run")
    plain = next(line for line in summary["comparison"] if line["method"] == "uniform")
    assert "regression" in lines
    assert summary["figure"] < plain["figure"]
    audit = pq.read_table(tmp_path / "run" / "audit.parquet").to_pandas()
    assert roc_auc_score(audit["index"] % 5 == 0, audit["suspicion"]) > 0.98
    assert audit["given_label"].astype(float).tolist() == pytest.approx(given[audit["index"]])
    predicted = reweigh.load(tmp_path / "run").predict(tmp_path / "test.csv")
    assert np.abs(predicted - y[340:]).mean() == pytest.approx(summary["figure"], rel=1e-3)


def test_texts_in_any_language(tmp_path):
    rows, wrong = texts(300, 0, noise=0.5)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    texts(40, 1)[0].to_csv(tmp_path / "checked.csv", index=False)
    texts(100, 2)[0].to_csv(tmp_path / "test.csv", index=False)
    options = Options(
        data=tmp_path / "rows.csv", clean=tmp_path / "checked.csv", test=tmp_path / "test.csv",
        text="review", target="stars", method="reweigh", steps=150,
    )  # fmt: skip
    summary, _ = said(options, tmp_path / "run")
    assert summary["figure"] > 0.9
    suspects = pq.read_table(tmp_path / "run" / "suspects.parquet").to_pandas()
    assert roc_auc_score(wrong[suspects["index"]], suspects["suspicion"]) > 0.95
    assert suspects["example"][0] == rows["review"][suspects["index"][0]]
    predictor = reweigh.load(tmp_path / "run")
    assert predictor.predict(["great lovely bravo it was", "awful broken refund"]).tolist() == ["good", "bad"]  # fmt: skip


def test_a_local_encoder_reads_the_texts(tmp_path):
    transformers = pytest.importorskip("transformers")
    rows, _ = texts(60, 0)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted({w for r in rows["review"] for w in r.split()})]  # fmt: skip
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary))
    encoder = tmp_path / "encoder"
    transformers.BertTokenizer(str(tmp_path / "vocab.txt")).save_pretrained(encoder)
    transformers.BertModel(transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16,
    )).save_pretrained(encoder)  # fmt: skip
    rows.to_csv(tmp_path / "rows.csv", index=False)
    texts(20, 1)[0].to_csv(tmp_path / "checked.csv", index=False)
    options = Options(
        data=tmp_path / "rows.csv", clean=tmp_path / "checked.csv", text="review", target="stars",
        encoder=encoder, method="reweigh", steps=5,
    )  # fmt: skip
    said(options, tmp_path / "run")
    found = reweigh.load(tmp_path / "run").predict_proba(rows[:3])
    assert found.shape == (3, 2)


def test_image_folders(tmp_path):
    wrong = images(tmp_path / "photos", 120, 0, noise=0.4)
    images(tmp_path / "checked", 20, 1, size=(30, 24))
    images(tmp_path / "test", 60, 2)
    (tmp_path / "photos" / "left" / "9998.png").write_bytes(b"no image")
    (tmp_path / "photos" / "left" / "9999.jpg").write_bytes(b"")
    (tmp_path / "photos" / "notes.txt").write_text("not an image")
    options = Options(
        data=tmp_path / "photos", clean=tmp_path / "checked", test=tmp_path / "test", method="reweigh", steps=60,
        batch=30, image_size=8,
    )  # fmt: skip
    summary, lines = said(options, tmp_path / "run")
    assert "2 files cannot be read and are left out" in lines
    assert (tmp_path / "run" / "unreadable.txt").read_text() == "left/9998.png\nleft/9999.jpg\n"
    assert summary["figure"] > 0.9
    suspects = pq.read_table(tmp_path / "run" / "suspects.parquet").to_pandas()
    names = sorted(p.relative_to(tmp_path / "photos").as_posix() for p in (tmp_path / "photos").rglob("*.[pj]*g"))  # fmt: skip
    assert [names[i] for i in suspects["index"]] == suspects["example"].tolist()
    flags = dict(zip([n for n in names if "999" not in n], wrong, strict=True))
    assert roc_auc_score([flags[n] for n in suspects["example"]], suspects["suspicion"]) > 0.9
    predictor = reweigh.load(tmp_path / "run")
    assert len(predictor.predict(tmp_path / "test")) == 60
    Image.new("L", (50, 40)).save(tmp_path / "one.png")
    assert predictor.predict_proba([tmp_path / "one.png"]).shape == (1, 2)


class Cut(Exception):
    """The power went."""


def test_a_run_that_was_cut_goes_on_to_the_same_model(tmp_path):
    write_tables(tmp_path, rows=200)
    options = Options(data=tmp_path / "rows.csv", clean=tmp_path / "checked.csv", target="label", method="reweigh", steps=100)  # fmt: skip

    def cut(method, now):
        if now.step == 70:
            raise Cut

    def forbidden(what, done, total):
        raise AssertionError("encoded again")

    with pytest.raises(Cut):
        train(options, tmp_path / "broken", Signs(step=cut))
    assert not (tmp_path / "broken" / "summary.json").exists()
    with pytest.raises(DataError, match="not finished"):
        reweigh.load(tmp_path / "broken")
    train(options, tmp_path / "broken", Signs(encoding=forbidden))
    train(options, tmp_path / "straight")
    for name in ("model.safetensors", "audit.parquet"):
        assert (tmp_path / "broken" / name).read_bytes() == (tmp_path / "straight" / name).read_bytes()  # fmt: skip
    assert not (tmp_path / "straight" / "encoded").exists()


def test_an_encoding_that_was_cut_leaves_nothing_that_looks_whole(tmp_path):
    write_tables(tmp_path, rows=200)
    options = Options(data=tmp_path / "rows.csv", clean=tmp_path / "checked.csv", target="label", method="reweigh", steps=5)  # fmt: skip

    def cut(what, done, total):
        raise Cut

    with pytest.raises(Cut):
        train(options, tmp_path / "run", Signs(encoding=cut))
    assert list((tmp_path / "run" / "encoded").iterdir()) == []
    assert train(options, tmp_path / "run")["train_rows"] == 200
