"""What is sure comes first; many rows can be decided at once, and undone; the person sees how right the list is."""

import socket
import time

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("starlette")
pytest.importorskip("httpx")

from scipy.stats import binomtest
from test_review_cli import Review

from reweigh.review import export_run
from reweigh.review.decisions import Decision
from reweigh.review.precision import ListPrecision, list_precision
from reweigh.review.suspect_selection import SuspectSelection
from support.review_client import Client, text_of
from support.review_runs import image_run, sure_run, table_run, text_run, write_voices


@pytest.fixture
def client(tmp_path):
    with Client(sure_run(tmp_path)) as made:
        yield made


def group(client, action, *, source, count, query=""):
    body = {"action": action, "given": "calm", "suggested": "cross", "source": source,
            "count": count, "query": query}  # fmt: skip
    return client.post("/group", body)


def standing(client):
    return {index: (made.action, made.label) for index, made in client.desk.standing().items()}


# ---- what is sure comes first


def test_the_surest_come_first_wherever_the_file_has_them(client):
    assert client.rows() == list(range(11, -1, -1))
    assert client.rows("show=all&search=text+1") == [11, 10, 1]  # examples belong to their rows
    assert [client.desk.suspects.at(k).index for k in range(12)] == list(range(11, -1, -1))


def test_probabilities_are_shown_and_a_doubtful_suggestion_is_not_the_main_button(client):
    card = client.get("/card?row=11").json()["card"]
    assert "86% likely wrong" in text_of(card)
    assert "88% likely right" in text_of(card)
    assert 'class="main" data-do="accept"' in card
    card = client.get("/card?row=2").json()["card"]  # the model's own guess is the same label
    assert "16% likely right" in text_of(card)
    assert 'data-do="accept"' in card
    assert 'class="main"' not in card


def test_runs_without_probabilities_look_as_before(tmp_path):
    with Client(table_run(tmp_path)) as client:
        card = client.get("/card").json()["card"]
        assert "suspicion 0.990" in text_of(card)
        assert 'class="main" data-do="accept"' in card
        assert "speak against" not in card


def test_checked_rows_that_speak_against_it_are_shown(client):
    card = text_of(client.get("/card?row=11").json()["card"])
    assert "Checked texts that speak against this label cross a cross text" in card
    assert "a calm text" not in card  # it speaks for it


def test_their_images_are_sent_and_none_from_elsewhere(tmp_path):
    run = image_run(tmp_path)
    picture = next((tmp_path / "pictures").rglob("*.png")).relative_to(tmp_path / "pictures")
    source = (run / "source.json").read_text()
    (run / "source.json").write_text(
        source.replace('"clean": null', f'"clean": "{tmp_path}/pictures"')
    )
    write_voices(
        run, (1, -2.0, 0, "bird", picture.as_posix()), (1, -1.0, 1, "cat", "../run/source.json")
    )
    with Client(run) as client:
        assert 'src="/checked/1/0"' in client.get("/card?row=1").json()["card"]
        assert client.get("/checked/1/0").headers["content-type"] == "image/png"
        assert client.get("/checked/1/1").status_code == 422
        assert [client.get(f"/checked/{path}").status_code for path in ("1/2", "3/0", "99/0")] == [
            404
        ] * 3


def test_filters_by_source_and_flag(client):
    assert client.rows("source=anna&hinted=1") == [11, 9, 7, 5]
    page = client.get("/").text
    assert "Flagged only" in page
    assert '<select name="source">' in page


# ---- groups


def test_groups_are_flagged_rows_with_the_same_error_and_source(client):
    shown = text_of(client.get("/groups").json()["groups"])
    assert shown.count("Relabel") == 2
    for source in ("anna", "ben"):
        assert f"calm {source} cross" in shown
    found = client.desk.groups(SuspectSelection())
    assert [(each.source, each.rows) for each in found] == [
        ("anna", (11, 9, 7, 5)),
        ("ben", (10, 8, 6, 4)),
    ]
    assert found[0].p_wrong == pytest.approx((0.86 + 0.74 + 0.62 + 0.5) / 4)


def test_a_group_is_decided_and_undone_in_one_go(client):
    answer = group(client, "relabel", source="anna", count=4).json()
    assert "4 rows relabelled" in answer["said"]
    assert standing(client) == dict.fromkeys((5, 7, 9, 11), ("relabel", "cross"))
    client.decide(10, "keep")
    undone = client.post("/undo", {"group": answer["group"]}).json()
    assert "4 rows" in undone["said"]
    assert standing(client) == {10: ("keep", None)}


def test_undo_of_the_last_decision_takes_its_whole_group_even_after_a_restart(tmp_path):
    run = sure_run(tmp_path)
    with Client(run) as client:
        group(client, "drop", source="ben", count=4)
    with Client(run) as client:
        assert len(standing(client)) == 4
        client.post("/undo", {"index": None})
        assert standing(client) == {}


def test_one_row_of_a_group_can_be_undone_alone(client):
    name = group(client, "keep", source="ben", count=4).json()["group"]
    client.post("/undo", {"index": 8})
    assert sorted(standing(client)) == [4, 6, 10]
    client.decide(6, "drop")  # decided again, by itself: no longer of the group
    client.post("/undo", {"group": name})
    assert standing(client) == {6: ("drop", None)}


def test_decided_rows_stay_out_of_a_group(client):
    client.decide(11, "keep")
    assert group(client, "relabel", source="anna", count=4).status_code == 422  # not those shown
    assert group(client, "relabel", source="anna", count=3).status_code == 200
    assert standing(client)[11] == ("keep", None)


def test_a_group_respects_the_filter(client):
    assert group(client, "drop", source="anna", count=1, query="search=text+11").status_code == 200
    assert standing(client) == {11: ("drop", None)}


@pytest.mark.parametrize(
    "change", [{"action": "skip"}, {"action": "undo"}, {"given": 1}, {"count": "4"}, {"source": "eve"},
               {"suggested": None}]
)  # fmt: skip
def test_what_is_no_group_is_refused_and_nothing_is_written(client, change):
    body = {"action": "drop", "given": "calm", "suggested": "cross", "source": "anna", "count": 4}
    assert client.post("/group", body | change).status_code == 422
    assert standing(client) == {}


def test_groups_of_older_runs_have_no_source(tmp_path):
    with Client(text_run(tmp_path, ["a", "b", "c"])) as client:
        body = {
            "action": "relabel",
            "given": "calm",
            "suggested": "cross",
            "source": None,
            "count": 3,
        }
        assert client.post("/group", body).status_code == 200
        made = export_run(client.desk.run)
        assert made.relabelled == 3


# ---- how right the list is


def test_precision_counts_what_was_decided_one_by_one(client):
    group(client, "drop", source="ben", count=4)
    for row, action, label in ((11, "relabel", "cross"), (9, "drop", None), (7, "keep", None),
                               (5, "skip", None)):  # fmt: skip
        client.decide(row, action, label)
    assert client.desk.precision() == ListPrecision(looked=3, wrong=2, relabelled=1, taken=1)
    assert "wrong so far" not in client.get("/progress").json()["progress"]
    client.decide(3, "keep")
    client.decide(1, "drop")
    said = text_of(client.get("/progress").json()["progress"])
    assert "wrong so far: 3 of 5" in said
    assert "suggestion right 1 of 1" in said


def test_its_interval_is_wilsons():
    for wrong, looked in ((0, 5), (3, 5), (40, 41), (7, 100)):
        decided = [(Decision(k, "drop" if k < wrong else "keep"), None) for k in range(looked)]
        known = binomtest(wrong, looked).proportion_ci(method="wilson")
        assert list_precision(decided).interval == pytest.approx((known.low, known.high), abs=1e-4)


# ---- connections that ask nothing


def test_half_open_connections_do_not_shut_the_person_out(tmp_path):
    with Review(table_run(tmp_path)) as review:
        port = int(review.address.split(":")[2].split("/")[0])
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(300)]
        for each in idle[::2]:
            each.sendall(b"GET / HTTP/1.1\r\nHost: 127.0")  # and never the rest
        try:
            with review.client() as client:
                assert "Row 1" in client.get("/").text
                assert (
                    client.post("/decide", json={"index": 1, "action": "drop"}).status_code == 200
                )
            for _ in range(200):  # the first ones are closed to make room, each as the next came
                if closed(idle[0]):
                    break
                time.sleep(0.05)
            assert closed(idle[0])
            assert not closed(idle[-1])
        finally:
            for each in idle:
                each.close()


def closed(connection):
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
