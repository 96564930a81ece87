"""A ranking goes into other tools and comes back, without a word lost."""

import csv
import json
import xml.etree.ElementTree as ET

import pytest

pytest.importorskip("typer")
pytest.importorskip("pyarrow")

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reweigh.app import write_audit_list
from reweigh.cli import main
from reweigh.errors import DataError, SettingError, UnknownNameError
from reweigh.exchange import FORMATS
from reweigh.review import export_run, import_answers
from reweigh.runs import open_run
from support.review_runs import image_run, regression_run, table_run, text_run

EIGHT = tuple("abcdefgh")  # one image each, so that the index is the place in the listing
ODD = ("a b", "c&d?", "d#", "e%20", "f+", "g=1", "h;", "é")
TEXTS = ["=1+1", 'say "hi",\nor not', "größer \u05e9\u05dc\u05d5\u05dd", "plain"]


def finished(folder):
    """The last file of a run is there; what is in it does not matter here."""
    (folder / "summary.json").write_text("{}")
    return folder


@pytest.fixture
def texts(tmp_path):
    folder = finished(text_run(tmp_path, TEXTS))
    lines = [json.dumps({"text": text, "label": "calm"}) + "\n" for text in TEXTS]
    (tmp_path / "texts.jsonl").write_text("".join(lines))  # quotes inside a cell are no matter here
    source = json.loads((folder / "source.json").read_text())
    source["data"] = str(tmp_path / "texts.jsonl")
    (folder / "source.json").write_text(json.dumps(source))
    return folder


def with_columns(folder, **columns):
    """The ranking as newer versions write it."""
    table = pq.read_table(folder / "audit.parquet")
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values))
    pq.write_table(table, folder / "audit.parquet")


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        main([str(each) for each in arguments])
    printed = capsys.readouterr()
    return stopped.value.code, printed.out, printed.err


def written(folder, name, form=None, **options):
    out = folder.parent / name
    write_audit_list(folder, out, form=form, **options)
    return out


# ---- a table


def test_a_list_has_the_text_or_the_path_beside_the_index(tmp_path, texts):
    table = pq.read_table(written(texts, "list.parquet")).to_pylist()
    assert {row["index"]: row["text"] for row in table} == dict(enumerate(TEXTS))
    with written(texts, "list.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["text"] for row in rows] == ["'=1+1", *TEXTS[1:]]  # what would run is made harmless
    pictures = finished(image_run(tmp_path / "images", classes=EIGHT))
    for row in pq.read_table(written(pictures, "list.parquet")).to_pylist():
        assert (pictures.parent / "pictures" / row["path"]).is_file()
        assert row["path"].split("/")[0] == row["given_label"]


def test_without_the_data_a_list_has_no_texts_and_says_so(capsys, texts):
    (texts.parent / "texts.jsonl").unlink()
    code, _, said = call(capsys, "audit", texts, "--out", texts.parent / "list.csv")
    assert code == 0
    assert "no texts" in said
    assert "texts.jsonl" in said
    with (texts.parent / "list.csv").open(newline="") as stream:
        assert [row["index"] for row in csv.DictReader(stream)] == ["0", "1", "2", "3"]


@pytest.mark.parametrize("change", ["fewer", "relabelled"])
def test_rows_of_changed_data_are_never_shown(texts, change):
    data = texts.parent / "texts.jsonl"
    lines = data.read_text().splitlines(keepends=True)
    changed = lines[:-1] if change == "fewer" else [lines[0].replace("calm", "cross"), *lines[1:]]
    data.write_text("".join(changed))
    with pytest.raises(DataError, match="changed since"):
        written(texts, "tasks.json", "label-studio")
    assert not (texts.parent / "tasks.json").exists()


def test_more_rows_than_are_read_at_a_time(texts, monkeypatch):
    monkeypatch.setattr("reweigh.app.audit_list.CHUNK", 3)
    table = pq.read_table(written(texts, "list.parquet")).to_pylist()
    assert [(row["index"], row["text"]) for row in table] == list(enumerate(TEXTS))
    assert pq.read_table(written(texts, "few.parquet", rows=2))["index"].to_pylist() == [0, 1]


# ---- cleanlab


def test_the_columns_of_cleanlab(tmp_path):
    folder = finished(table_run(tmp_path))
    table = pq.read_table(written(folder, "issues.parquet", "cleanlab"))
    assert table.schema.names == [
        "index", "is_label_issue", "label_quality", "given_label", "predicted_label",
    ]  # fmt: skip
    rows = {row["index"]: row for row in table.to_pylist()}
    assert list(rows) == [1, 3, 5, 7, 9, 11]  # in the order of the data
    assert [rows[i]["predicted_label"] for i in (1, 3, 5)] == ["dog", "bird", "cat"]
    assert [rows[i]["is_label_issue"] for i in (1, 3, 5)] == [True, True, False]
    assert rows[3]["label_quality"] == pytest.approx(0.03)  # 1 - suspicion, where no more is known


def test_probabilities_and_flags_count_where_a_run_has_them(tmp_path):
    folder = finished(table_run(tmp_path))
    with_columns(
        folder, p_wrong=[0.7, 0.6, None, 0.4, 0.3, 0.2], flag=[True, False, False, False, False, False],
        suggested=["bird", "dog", "dog", "dog", "dog", "dog"], p_suggested=[0.65] + [0.1] * 5,
    )  # fmt: skip
    # Columns that AuditRow does not name yet are read once it does.
    names = pq.read_schema(folder / "audit.parquet").names
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reweigh.app.audit_list.AUDIT_COLUMNS", tuple(names))
        rows = pq.read_table(written(folder, "issues.parquet", "cleanlab")).to_pylist()
    assert [row["is_label_issue"] for row in rows] == [True, *[False] * 5]
    assert [row["predicted_label"] for row in rows] == ["bird", *["dog"] * 5]
    quality = [row["label_quality"] for row in rows]
    assert quality == pytest.approx(
        [0.3, 0.4, 0.05, 0.6, 0.7, 0.8]
    )  # the third has a suspicion only


def test_cleanlab_takes_its_own_columns_back(tmp_path):
    learning = pytest.importorskip("cleanlab.classification")
    pandas, linear = pytest.importorskip("pandas"), pytest.importorskip("sklearn.linear_model")
    folder = finished(table_run(tmp_path, 200))
    frame = pandas.read_csv(written(folder, "issues.csv", "cleanlab"))
    issues = frame[["is_label_issue", "label_quality"]]  # it wants given labels as its own numbers
    labels = np.array([0] * 50 + [1] * 50)
    model = learning.CleanLearning(linear.LogisticRegression())
    model.fit(np.random.default_rng(0).normal(size=(100, 2)), labels, label_issues=issues)
    assert model.get_label_issues()["is_label_issue"].tolist() == issues["is_label_issue"].tolist()


# ---- Label Studio


def tasks_of(folder, name="tasks.json"):
    return json.loads(written(folder, name, "label-studio").read_text())


def test_tasks_of_label_studio_sort_by_suspicion(texts):
    tasks = tasks_of(texts)
    assert [task["data"]["text"] for task in tasks] == TEXTS
    scores = [task["predictions"][0]["score"] for task in tasks]
    assert scores == sorted(scores, reverse=True)
    interface = ET.parse(texts.parent / "tasks.xml").getroot()
    names = {each.get("name"): each for each in interface.iter() if each.get("name")}
    for task in tasks:
        (result,) = task["predictions"][0]["result"]
        control = names[result["from_name"]]
        assert control.tag.lower() == result["type"]
        assert control.get("toName") == result["to_name"]
        choices = [each.get("value") for each in control]
        assert result["value"]["choices"][0] in choices
    shown = names[result["to_name"]].get("value")
    assert shown.removeprefix("$") in tasks[0]["data"]


def test_images_are_named_as_label_studio_serves_them(tmp_path):
    from urllib.parse import parse_qs, urlsplit

    folder = finished(image_run(tmp_path, classes=ODD))
    for task in tasks_of(folder):
        address = urlsplit(task["data"]["image"])
        (path,) = parse_qs(address.query)["d"]
        assert address.path == "/data/local-files/"
        assert (tmp_path / path).is_file()


def test_label_studio_takes_its_tasks_and_interface(texts):
    interface = pytest.importorskip("label_studio_sdk.label_interface").LabelInterface
    tasks = tasks_of(texts)
    studio = interface((texts.parent / "tasks.xml").read_text())
    studio.validate()
    for task in tasks:
        assert studio.validate_task({"data": task["data"]})
        assert studio.validate_prediction(task["predictions"][0], return_errors=True) == []


def annotated(task, *annotations):
    """A task as Label Studio exports it; an annotation is a label, or what to put into it."""
    made = []
    for label in annotations:
        name, kind = ("drop", "choices") if label == "drop this row" else ("label", "choices")
        value = {"choices": [label]}
        if isinstance(label, float):
            kind, value = "number", {"number": label}
        result = [{"from_name": name, "to_name": "row", "type": kind, "value": value}]
        made.append(
            {"id": len(made), "was_cancelled": label is None, "result": result if label else []}
        )
    return task | {"id": 7, "annotations": made, "predictions": []}


def test_decisions_of_label_studio_come_back(capsys, tmp_path, texts):
    tasks = tasks_of(texts)
    answers = [("cross",), ("calm",), ("drop this row",), (None,)]
    export = [annotated(task, *answer) for task, answer in zip(tasks, answers, strict=True)]
    (tmp_path / "export.json").write_text(json.dumps(export))
    code, said, _ = call(capsys, "review", texts, "--import", tmp_path / "export.json", "--export")
    assert code == 0
    assert "3 decisions taken over" in said
    kept = (texts / "corrected.jsonl").read_text().splitlines()
    assert [json.loads(line)["label"] for line in kept] == ["cross", "calm", "calm"]
    assert (texts / "confirmed.csv").read_text() == "index,label\n0,cross\n1,calm\n"
    again = import_answers(open_run(texts), tmp_path / "export.json")
    assert (again.new, again.known) == (0, 3)
    assert len((texts / "decisions.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize("ending", ["json", "csv"])
def test_short_exports_come_back(tmp_path, texts, ending):
    short = [task["data"] | {"label": label, "annotator": 1}
             for task, label in zip(tasks_of(texts), ("cross", "calm", "", None), strict=True)]  # fmt: skip
    short[2]["drop"] = "drop this row"
    path = tmp_path / f"export.{ending}"
    if ending == "json":
        path.write_text(json.dumps(short))
    else:
        with path.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, sorted({key for task in short for key in task}))
            writer.writeheader()
            writer.writerows(short)
    assert import_answers(open_run(texts), path).new == 3
    made = export_run(open_run(texts))
    assert (made.relabelled, made.dropped, made.confirmed) == (1, 1, 2)


def test_rows_about_which_people_disagree_are_left_to_do(tmp_path, texts):
    first, second, *_ = tasks_of(texts)
    export = [annotated(first, "cross", "calm"), annotated(second, "cross", "cross", None)]
    (tmp_path / "export.json").write_text(json.dumps(export))
    done = import_answers(open_run(texts), tmp_path / "export.json")
    assert (done.new, done.known, done.disagreed) == (1, 0, 1)


def test_numbers_come_back(tmp_path):
    folder = finished(regression_run(tmp_path))
    task = tasks_of(folder)[0]
    assert isinstance(task["predictions"][0]["result"][0]["value"]["number"], float)
    (tmp_path / "export.json").write_text(json.dumps([annotated(task, 4.25)]))
    import_answers(open_run(folder), tmp_path / "export.json")
    assert f"{task['data']['index']},4.25" in _confirmed(folder)


def _confirmed(folder):
    export_run(open_run(folder))
    return (folder / "confirmed.csv").read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"given_label": "cross"}, "was given 'cross' there and 'calm'"),
        ({"index": 99}, "not among the suspects"),
        ({"index": "x"}, "expected a row number"),
    ],
)
def test_decisions_of_another_run_are_refused_whole(tmp_path, texts, change, message):
    first, second, *_ = tasks_of(texts)
    second["data"] |= change
    (tmp_path / "e.json").write_text(
        json.dumps([annotated(first, "cross"), annotated(second, "cross")])
    )
    with pytest.raises(DataError, match=message):
        import_answers(open_run(texts), tmp_path / "e.json")
    assert not (texts / "decisions.jsonl").exists() or not (texts / "decisions.jsonl").read_bytes()


def test_an_unknown_label_is_refused_whole(tmp_path, texts):
    first, second, *_ = tasks_of(texts)
    export = [annotated(first, "cross"), annotated(second, "angry")]
    (tmp_path / "e.json").write_text(json.dumps(export))
    with pytest.raises(UnknownNameError, match="angry"):
        import_answers(open_run(texts), tmp_path / "e.json")
    assert not (texts / "decisions.jsonl").read_bytes()


@pytest.mark.parametrize("content", ["nonsense", '{"a": 1}', "[1]", "\ufeff[]"])
def test_a_file_that_is_no_export(tmp_path, texts, content):
    (tmp_path / "e.json").write_text(content, encoding="utf-8")
    if content.endswith("[]"):
        assert import_answers(open_run(texts), tmp_path / "e.json").new == 0
    else:
        with pytest.raises(DataError, match=r"expected|export"):
            import_answers(open_run(texts), tmp_path / "e.json")


# ---- Hugging Face, FiftyOne


def test_the_files_of_a_hugging_face_data_set(tmp_path, texts):
    out = written(texts, "set", "huggingface")
    with (out / "data-00000-of-00001.arrow").open("rb") as stream:
        table = pa.ipc.open_stream(stream).read_all()
    assert table["text"].to_pylist() == TEXTS
    assert table["label"].to_pylist() == [0] * 4
    assert table["suggested"].to_pylist() == [1] * 4
    state = json.loads((out / "state.json").read_text())
    assert [each["filename"] for each in state["_data_files"]] == ["data-00000-of-00001.arrow"]
    features = json.loads((out / "dataset_info.json").read_text())["features"]
    assert list(features) == table.schema.names
    assert not list(texts.parent.glob(".writing-*"))


def test_hugging_face_opens_its_data_set(tmp_path, texts):
    datasets = pytest.importorskip("datasets")
    opened = datasets.load_from_disk(str(written(texts, "set", "huggingface")))
    assert opened["text"][:] == TEXTS
    assert opened.features["label"].int2str(opened[0]["suggested"]) == "cross"
    pictures = finished(image_run(tmp_path / "images", classes=EIGHT))
    first = datasets.load_from_disk(str(written(pictures, "set", "huggingface")))[0]
    assert first["image"].size == (32, 32)


def test_columns_of_the_data_keep_their_names(tmp_path):
    text = "index,label\n" + "".join(f"{i * 10},{'cat' if i % 2 else 'dog'}\n" for i in range(12))
    folder = finished(table_run(tmp_path, text=text))
    out = written(folder, "set", "huggingface")
    with (out / "data-00000-of-00001.arrow").open("rb") as stream:
        rows = pa.ipc.open_stream(stream).read_all().to_pylist()
    assert [(row["index"], row["reweigh_index"]) for row in rows[:2]] == [("10", 1), ("30", 3)]


def test_samples_of_fiftyone(tmp_path, texts):
    folder = finished(image_run(tmp_path / "images", classes=EIGHT))
    out = written(folder, "samples", "fiftyone")
    images = json.loads((out / "data.json").read_text())
    labels = json.loads((out / "labels.json").read_text())
    assert set(images) == set(labels["labels"]) == {"1", "3", "5", "7"}
    for name, path in images.items():
        said = labels["labels"][name]
        assert path.endswith(f"/{said['label']}/{int(name):03}.png")
        assert said["attributes"]["suggested"] in labels["classes"]
        assert said["attributes"]["p_wrong"] == pytest.approx(1 - int(name) / 100)
    with pytest.raises(SettingError, match="label-studio"):
        written(texts, "samples", "fiftyone")


def test_fiftyone_reads_its_samples(tmp_path):
    types = pytest.importorskip("fiftyone.types")
    folder = finished(image_run(tmp_path, classes=EIGHT))
    out = written(folder, "samples", "fiftyone")
    reader = types.FiftyOneImageClassificationDataset().get_dataset_importer_cls()
    with reader(dataset_dir=str(out), data_path="data.json") as samples:
        found = {label["index"]: (path, label.label, label.p_wrong) for path, _, label in samples}
    assert sorted(found) == [1, 3, 5, 7]
    for index, (path, label, wrong) in found.items():
        assert path.endswith(f"/{label}/{index:03}.png")
        assert wrong == pytest.approx(1 - index / 100)


# ---- places


def test_what_is_there_is_not_replaced(capsys, texts):
    there = texts.parent / "set"
    there.mkdir()
    (there / "mine.txt").write_text("precious")
    (texts.parent / "tasks.xml").write_text("precious")
    for form, name in (("huggingface", "set"), ("label-studio", "tasks.json")):
        out = texts.parent / name
        code, _, said = call(capsys, "audit", texts, "--format", form, "--out", out)
        assert code == 2
        assert "is there already" in said
    assert (
        (there / "mine.txt").read_text() == (texts.parent / "tasks.xml").read_text() == "precious"
    )


@pytest.mark.parametrize("form", [name for name in FORMATS if name != "table"])
def test_a_form_needs_a_place(capsys, texts, form):
    code, _, said = call(capsys, "audit", texts, "--format", form)
    assert code == 2
    assert "--out" in said


def test_an_unknown_form_is_answered_with_the_nearest(capsys, texts):
    code, _, said = call(capsys, "audit", texts, "--format", "label-studios", "--out", "x.json")
    assert code == 2
    assert "did you mean 'label-studio'" in said
    code, _, said = call(capsys, "audit", texts, "--format", "label-studio", "--out", "x.csv")
    assert code == 2
    assert "expected .json" in said
