"""JSON Lines: the same table as the objects, one value changed and all other bytes kept."""

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh.errors import DataError
from reweigh.tables import json_lines, open_table, spans, unreadable, words

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def columns(path):
    table = open_table(path)
    cells = {name: [] for name in table.columns}
    for piece in table.pieces():
        for name in table.columns:
            cells[name] += words(piece.column(name)).to_pylist()
    return cells


def test_the_columns_are_all_keys_and_the_cells_are_as_written(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(
        b'\xef\xbb\xbf{"a": 3.10, "b": "x"}\r\n\n'
        b'{"b": null, "c": true, "a": 123456789012345678901234567890}\n'
        b'{"c": "None", "a": NaN, "d": [1, 2.50, {"e": "z"}]}'
    )
    assert columns(path) == {
        "a": ["3.10", "123456789012345678901234567890", None],
        "b": ["x", None, None],
        "c": [None, "true", None],
        "d": [None, None, '[1, 2.50, {"e": "z"}]'],
    }


def test_lists_and_records_are_named_as_such(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": "x", "b": "y"}\n{"a": {"z": 1}, "b": "y"}\n')
    (piece,) = open_table(path).pieces()
    assert unreadable(piece.column("a")) == "holds lists or records"
    assert unreadable(piece.column("b")) is None


def test_pieces_of_a_packed_file_join_to_the_same_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(json_lines, "PIECE_ROWS", 7)
    path = tmp_path / "rows.ndjson.gz"
    path.write_bytes(gzip.compress("".join(f'{{"k": {k}}}\n' for k in range(50)).encode()))
    assert len(list(open_table(path).pieces())) == 8
    assert columns(path)["k"] == [str(k) for k in range(50)]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "has no rows"),
        (b"\n\n", "has no rows"),
        (b'[{"a": 1},\n{"a": 2}]', "one object per line"),
        (b'{"a": 1}\n{"a": \n', "line 2 of"),
        (b"1\n", "a single value"),
        (b"[" * 100_000, "not JSON"),
        (b'{"a": "\xff"}\n', "is not utf-8 text"),
        (b"".join(b'{"k%d": 1}\n' % k for k in range(20_001)), "different keys"),
    ],
)
def test_what_is_no_table_is_refused_by_name(tmp_path, content, said):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=said):
        open_table(path)


def test_half_a_character_is_replaced(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": "x\\ud800"}\n')
    assert columns(path) == {"a": ["x?"]}


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.text(), VALUES, max_size=5), st.sampled_from([None, 1]), st.booleans())
def test_spans_find_every_value(record, indent, ascii_only):
    record = {key.strip(): value for key, value in record.items()}
    line = json.dumps(record, ensure_ascii=ascii_only, indent=indent)
    found = spans(line)
    assert {name: json.loads(line[a:b]) for name, (a, b) in found.items()} == {
        name.encode("utf-8", "replace").decode(): value for name, value in record.items()
    }
