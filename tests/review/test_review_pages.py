"""The review's answers: cards, decisions, undo, progress, exports; one order of events for all tabs."""

import json

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("starlette")
pytest.importorskip("httpx")

from support.review_client import Client, text_of
from support.review_runs import image_run, regression_run, suspect, table_run, text_run, write_run

KINDS = {
    "table": table_run,
    "images": image_run,
    "text": lambda folder: text_run(folder, [f"text {i}" for i in range(5)]),
    "regression": regression_run,
}


@pytest.fixture
def client(tmp_path):
    with Client(table_run(tmp_path)) as made:
        yield made


def lines(client):
    """What was written, without the times."""
    written = client.desk.run.decisions.read_text().splitlines()
    return [tuple(json.loads(line)[name] for name in ("index", "action", "label"))
            for line in written]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_can_be_gone_through(tmp_path, kind):
    with Client(KINDS[kind](tmp_path)) as client:
        assert client.get("/").status_code == 200
        wanted = client.desk.suspects.index.tolist()
        assert client.rows(action="keep") == wanted
        assert lines(client) == [(index, "keep", None) for index in wanted]
        answer = client.get("/card").json()
        assert answer["row"] is None
        assert "That was the last one" in answer["card"]


def test_the_page_shows_the_first_suspect_its_labels_and_why(client):
    page = text_of(client.get("/").text)
    for part in ("Row 1", "1 of 6", "Given cat", "Suggested 80% sure dog", "pet 1", "-4.5",
                 "The clean examples were never helped by it.", "0 of 6 decided",
                 "Relabel to dog"):  # fmt: skip
        assert part in page
    assert "label cat" not in page  # the target is not a clue


def test_without_a_suggestion_none_is_offered(client):
    card = client.get("/card?row=5").json()["card"]
    assert "Relabel to" not in card
    assert "Suggested none" in text_of(card)


def test_a_decision_leads_to_the_next_open_row_and_is_written_at_once(client):
    answer = client.decide(1, "relabel", "bird").json()
    assert answer["row"] == 3
    assert answer["said"] == "Row 1: Relabelled to bird."
    assert "<b>1</b> of 6 decided" in answer["progress"]
    assert lines(client) == [(1, "relabel", "bird")]
    assert "Relabelled to bird" in text_of(client.get("/card?row=1").json()["card"])


def test_undo_takes_back_and_shows_the_row(client):
    client.decide(1, "keep")
    client.decide(3, "drop")
    answer = client.post("/undo", {"index": None}).json()
    assert (answer["row"], answer["said"]) == (3, "Undone. Row 3: to do again.")
    assert client.post("/undo", {}).json()["row"] == 1
    assert client.post("/undo", {}).json() == {"said": "There is nothing to undo."}
    assert "<b>0</b> of 6" in client.get("/progress").json()["progress"]


def test_two_tabs_the_last_decision_wins_and_each_undoes_its_own(client):
    client.decide(1, "keep")  # one tab
    client.decide(1, "relabel", "dog")  # the other, on the same row
    client.decide(3, "drop")
    assert client.get("/progress?row=1").json()["state"] == "Relabelled to dog"
    answer = client.post("/undo", {"index": 1}).json()
    assert answer["said"] == "Undone. Row 1: Kept."
    assert client.get("/progress?row=3").json()["state"] == "Dropped"
    assert "<b>2</b> of 6 decided" in client.get("/progress").json()["progress"]


def test_decisions_of_many_clients_at_once_are_all_written(client):
    from concurrent.futures import ThreadPoolExecutor

    rows = [1, 3, 5, 7, 9, 11] * 4
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda row: client.decide(row, "keep"), rows))
    assert {answer.status_code for answer in answers} == {200}
    assert sorted(line[0] for line in lines(client)) == sorted(rows)
    assert client.desk.progress().decided == 6


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("suggested=dog", [1, 7]),
        ("given=cat&suggested=bird", [3, 9]),
        ("given=dog", []),
        ("least=0.95", [1, 3, 5]),
        ("search=pet+11", [11]),
        ("search=7", [7]),
        ("hinted=1", [1, 3, 7, 9]),
    ],
)
def test_filters_narrow_what_comes(client, query, rows):
    assert client.rows(query) == rows
    assert "Nothing left here" in client.get(f"/card?{query}").json()["card"]


def test_progress_is_that_of_the_filter(client):
    client.decide(1, "keep")
    answer = client.decide(5, "drop", query="given=cat&suggested=dog").json()
    assert "<b>1</b> of 2 here decided" in answer["progress"]
    assert "<b>1</b> of 2 here" in client.get("/progress?suggested=dog").json()["progress"]
    assert "<b>2</b> of 6 decided" in client.get("/progress").json()["progress"]


def test_skipped_rows_can_be_gone_through_again(client):
    client.rows(action="skip")
    done = client.get("/card").json()["card"]
    assert "6 skipped" in text_of(done)
    assert client.rows("show=skip", action="keep") == [1, 3, 5, 7, 9, 11]


def test_no_suspects_is_said(tmp_path):
    with Client(write_run(tmp_path / "run", [], data=tmp_path, rows=0)) as client:
        assert "No suspects" in client.get("/").text


def test_a_row_that_is_no_suspect_shows_the_first(client):
    assert client.get("/card?row=2").json()["row"] == 1
    assert client.get("/card?row=-1").json()["row"] == 1
    assert client.get("/card?row=" + "9" * 50).json()["row"] == 1


@pytest.mark.parametrize("body", [
    {}, [], 3, {"index": 1}, {"index": "1", "action": "keep"}, {"index": True, "action": "keep"},
    {"index": 1.5, "action": "keep"}, {"index": [1], "action": "keep"},
    {"index": 2, "action": "keep"}, {"index": 12, "action": "keep"},
    {"index": 10**30, "action": "keep"}, {"index": 1, "action": "undo", "label": "x"},
    {"index": 1, "action": "burn"}, {"index": 1, "action": {"a": 1}},
    {"index": 1, "action": "relabel"}, {"index": 1, "action": "relabel", "label": "wolf"},
    {"index": 1, "action": "relabel", "label": ["dog"]},
    {"index": 1, "action": "drop", "label": "dog"},
], ids=str)  # fmt: skip
def test_what_is_no_decision_is_refused_with_a_reason_and_not_written(client, body):
    answer = client.post("/decide", body)
    assert answer.status_code == 422
    assert "expected" in answer.json()["error"] or "known" in answer.json()["error"]
    assert lines(client) == []


def test_undo_cannot_be_smuggled_in_as_a_decision(client):
    client.decide(1, "keep")
    assert client.decide(1, "undo").status_code == 422
    assert len(lines(client)) == 1


@pytest.mark.parametrize("label", ["nan", "inf", "1_000", "", "three", "1e999", "٣", "0x10"])
def test_only_plain_finite_numbers_are_labels_of_a_regression(tmp_path, label):
    with Client(regression_run(tmp_path)) as client:
        assert client.decide(1, "relabel", label).status_code == 422
        assert client.decide(1, "relabel", " -3.5e2 ").status_code == 200
        assert lines(client) == [(1, "relabel", "-3.5e2")]


def test_a_few_classes_have_keys_and_digits_are_their_own(tmp_path):
    suspects = [suspect(0, "3", "7", "x")]
    digits = [str(digit) for digit in range(10)]
    folder = write_run(tmp_path / "run", suspects, data=tmp_path, rows=1, kind="text",
                       classes=digits)  # fmt: skip
    with Client(folder) as client:
        page = client.get("/").text
        for digit in digits:
            assert f'data-label="{digit}" data-key="{digit}"' in page


def test_many_classes_are_chosen_by_typing(tmp_path):
    names = [f"class {i}" for i in range(300)]
    folder = text_run(tmp_path, ["x"], classes=names, given="class 1", suggested="class 2")
    with Client(folder) as client:
        assert "data-key" not in client.get("/").text
        assert client.get("/classes").json() == [[name, name] for name in names]
        assert client.decide(0, "relabel", "class 299").status_code == 200


def test_exports_are_written_and_can_be_saved(client):
    client.decide(1, "relabel", "dog")
    client.decide(3, "drop")
    assert client.get("/files/changes.diff").status_code == 404
    answer = client.post("/export", {"exact": False}).json()
    assert "1 relabelled, 1 dropped; confirmed: 1." in text_of(answer["exported"])
    saved = client.get("/files/changes.diff")
    assert saved.text.splitlines()[1:] == ["1: cat -> dog", "3: cat -> (dropped)"]
    assert saved.headers["content-disposition"].startswith("attachment")


def test_an_export_that_cannot_be_made_says_why(client, tmp_path):
    (tmp_path / "pets.csv").unlink()
    answer = client.post("/export", {})
    assert answer.status_code == 422
    assert "was it moved" in answer.json()["error"]


def test_small_images_are_enlarged_and_sent_as_they_are(tmp_path):
    with Client(image_run(tmp_path)) as client:
        assert 'class="small"' in client.get("/").text
        sent = client.get("/image/1")
        assert sent.headers["content-type"] == "image/png"
        assert sent.content == (tmp_path / "pictures" / "cat" / "001.png").read_bytes()
        assert client.get("/image/2").status_code == 404  # no suspect


@pytest.mark.parametrize("form", ["BMP", "TIFF", "PPM"])
def test_forms_that_browsers_do_not_show_are_converted(tmp_path, form):
    import io

    from PIL import Image

    folder = image_run(tmp_path)
    path = tmp_path / "pictures" / "cat" / "001.png"
    Image.new("RGB", (5, 4), (1, 2, 3)).save(path, format=form)
    with Client(folder) as client:
        sent = client.get("/image/1")
        assert sent.headers["content-type"] == "image/png"
        assert Image.open(io.BytesIO(sent.content)).getpixel((2, 2)) == (1, 2, 3)
