"""Suspects: any row by its place, filters and search as brute force would have them, in little memory."""

import json
import random
from dataclasses import replace
from types import SimpleNamespace

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq

from reweigh.errors import DataError, ReweighError
from reweigh.review import ReviewState as Desk
from reweigh.review.decisions import Decision
from reweigh.review.suspect_selection import SuspectSelection as Selection
from reweigh.review.suspects import Suspects
from reweigh.runs import open_run
from support.review_runs import PETS, suspect, table_run, text_run, write_run

ABSENT = next(row for row in range(1009) if row not in {7 * i % 1009 for i in range(500)})


@pytest.fixture(scope="module")
def mixed():
    """Suspects with all sorts of labels, in groups that do not divide evenly."""
    draw = random.Random(0)
    return [
        suspect(
            7 * i % 1009,
            draw.choice(PETS),
            draw.choice([*PETS, None]),
            json.dumps({"colour": draw.choice(["Red", "gréen"]), "size": str(draw.randrange(30))}),
            suspicion=round(1 - i / 1000, 3),
        )
        for i in range(500)
    ]


@pytest.fixture
def desk(mixed, tmp_path):
    folder = write_run(tmp_path / "run", mixed, data=tmp_path / "x.csv", rows=1009, group=70)
    made = Desk(open_run(folder))
    yield made
    made.close()


def rows(desk, selection):
    """All rows of a selection, by asking for the one after."""
    selection = replace(selection, show="all")
    found, position = [], desk.first(selection)
    while position is not None and position not in found:
        found.append(position)
        position = desk.after(selection, position)
    return [int(desk.suspects.index[position]) for position in found]


def test_every_position_reads_as_it_was_written(desk, mixed):
    for position in [0, 1, 31, 32, 69, 70, 71, 139, 140, 499, *range(3, 500, 53)]:
        read = desk.suspects.at(position)
        assert {name: getattr(read, name) for name in mixed[position]} == mixed[position]
        assert desk.suspects.position(mixed[position]["index"]) == position
    assert desk.suspects.position(ABSENT) is None


def contains(row, text):
    cells = json.loads(row["example"]).values()
    parts = [*cells, row["given_label"], row["suggested_label"] or ""]
    return any(text.casefold() in part.casefold() for part in parts) or text == str(row["index"])


@pytest.mark.parametrize(
    ("selection", "wanted"),
    [
        (Selection(), lambda row: True),
        (Selection(given="cat"), lambda row: row["given_label"] == "cat"),
        (Selection(given="wolf"), lambda row: False),
        (Selection(suggested="dog"), lambda row: row["suggested_label"] == "dog"),
        (Selection(least=0.6, most=0.8), lambda row: 0.6 <= row["suspicion"] <= 0.8),
        (Selection(search="red"), lambda row: contains(row, "red")),
        (Selection(search="GRÉ"), lambda row: contains(row, "gré")),
        (Selection(search="21"), lambda row: contains(row, "21")),
        (Selection(search="og"), lambda row: contains(row, "og")),
        (Selection(search="colour"), lambda row: False),  # the name of a column is not in the row
        (
            Selection(given="dog", least=0.7, search="red"),
            lambda row: (
                row["given_label"] == "dog" and row["suspicion"] >= 0.7 and contains(row, "red")
            ),
        ),
    ],
    ids=lambda value: value.query if isinstance(value, Selection) else "",
)
def test_a_selection_shows_what_brute_force_finds_in_the_order_of_suspicion(
    desk, mixed, selection, wanted
):
    assert rows(desk, selection) == [row["index"] for row in mixed if wanted(row)]


def test_the_arrows_walk_over_decided_rows_too_while_decisions_skip_them(desk):
    first, second, third = (int(desk.suspects.index[i]) for i in range(3))
    desk.decide(Decision(second, "keep"))
    place = desk.place(Selection(), 0)
    assert (place.number, place.count) == (1, 500)
    assert (place.previous, place.following, place.after) == (None, second, third)
    kept = desk.place(Selection(show="keep"), 1)
    assert (kept.number, kept.count, kept.following) == (1, 1, None)
    assert desk.place(Selection(show="drop"), 0).number == 0  # shown, but not of the selection
    assert desk.after(Selection(show="all"), 499) == 499  # "all" ends at the end
    assert desk.after(Selection(), 499) == 0  # "to do" begins again
    assert first == desk.place(Selection(), 1).previous


def test_progress_counts_what_stands(desk):
    index = [int(i) for i in desk.suspects.index[:4]]
    for row, action in zip(index, ("keep", "drop", "skip", "keep"), strict=True):
        desk.decide(Decision(row, action))
    desk.decide(Decision(index[0], "relabel", "bird"))
    progress = desk.progress()
    assert progress.total == 500
    assert progress.decided == 3
    assert progress.counts == {"open": 496, "keep": 1, "relabel": 1, "drop": 1, "skip": 1}
    assert desk.undo() == index[0]
    assert desk.progress().counts["keep"] == 2
    assert desk.undo(index[1]) == index[1]
    assert desk.undo(index[1]) is None
    assert desk.progress().decided == 2


def test_to_relabel_with_the_given_label_is_to_keep(desk, mixed):
    row = mixed[0]
    assert desk.decide(Decision(row["index"], "relabel", row["given_label"])).action == "keep"


def test_a_row_that_is_no_suspect_cannot_be_decided(desk):
    with pytest.raises(ReweighError, match="not among the suspects"):
        desk.decide(Decision(ABSENT, "keep"))


def test_decisions_are_found_again_by_a_new_desk(tmp_path):
    folder = table_run(tmp_path)
    for expected in range(3):
        desk = Desk(open_run(folder))
        assert desk.progress().decided == expected
        desk.decide(Decision(2 * expected + 1, "drop"))
        desk.close()


def test_no_suspects_at_all(tmp_path):
    desk = Desk(open_run(write_run(tmp_path / "run", [], data=tmp_path, rows=0)))
    assert desk.first(Selection()) is None
    assert desk.first(Selection(search="x", given="cat")) is None
    assert desk.progress().total == 0
    desk.close()


def test_examples_are_read_from_their_own_row_group_only(tmp_path, monkeypatch):
    """Of 20 MB of texts in 20 groups, looking at one takes about the memory of its group."""
    texts = [f"{i} " + "x" * 20_000 for i in range(1000)]
    folder = text_run(tmp_path, texts, group=50)
    suspects = Suspects(folder / "suspects.parquet")
    texts = None
    pool = pa.default_memory_pool()
    before, peak = pool.bytes_allocated(), 0
    asked = []
    really = suspects._cards.iter_batches

    def watched(**options):
        asked.append(options["row_groups"])
        for batch in really(**options):
            nonlocal peak
            peak = max(peak, pool.bytes_allocated() - before)
            yield batch

    monkeypatch.setattr(suspects, "_cards", SimpleNamespace(iter_batches=watched))
    assert suspects.at(999).example.startswith("999 ")
    assert asked == [[19]]
    assert 0 < peak < 4_000_000


@pytest.mark.parametrize(
    ("query", "same"),
    [
        ({"show": "nonsense", "least": "much", "most": "nan"}, Selection()),
        ({"least": "0.5", "search": "  a b "}, Selection(least=0.5, search="a b")),
        ({"search": "x" * 5000}, Selection(search="x" * 200)),
    ],
)
def test_what_makes_no_sense_in_an_address_counts_as_not_chosen(query, same):
    assert Selection.of(query) == same


def test_a_selection_survives_its_address():
    from urllib.parse import parse_qsl

    selection = Selection("skip", 'a&b="c"', "d e", True, 0.25, 1.5, "ü?#")
    assert Selection.of(dict(parse_qsl(selection.query))) == selection


def test_a_folder_that_is_no_run_is_explained(tmp_path):
    with pytest.raises(DataError, match=r"there is no .*source\.json"):
        open_run(tmp_path)
    (tmp_path / "source.json").write_text("{")
    with pytest.raises(DataError, match="not JSON"):
        open_run(tmp_path)
    (tmp_path / "source.json").write_text('{"version": 9}')
    with pytest.raises(DataError, match="version 9; expected 1"):
        open_run(tmp_path)
    folder = table_run(tmp_path)
    (folder / "suspects.parquet").rename(folder / "kept.parquet")
    with pytest.raises(DataError, match="finish the run"):
        open_run(folder)
    pq.write_table(pa.table({"index": [1]}), folder / "suspects.parquet")
    with pytest.raises(DataError, match="lacks given_label"):
        Desk(open_run(folder))
    (folder / "suspects.parquet").write_bytes(b"PAR1 but no more")
    with pytest.raises(DataError, match="not a parquet file"):
        Desk(open_run(folder))
