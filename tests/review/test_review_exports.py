"""Exports: the decisions carried out, every other byte as it was, and nothing that a spreadsheet runs."""

import csv
import gzip
import io
import json
import tracemalloc

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh.errors import DataError
from reweigh.review.decisions import Decision
from reweigh.review.delimited import records, with_cells
from reweigh.review.exports import export
from reweigh.review.suspects import Suspects
from reweigh.runs import open_run
from reweigh.text import harmless, is_formula
from support.review_runs import PETS, image_run, regression_run, suspect, table_run, write_run


def exported(folder, *decisions, **options):
    run = open_run(folder)
    standing = {made.index: made for made in sorted(decisions, key=lambda made: made.index)}
    return export(run, Suspects(run.suspects), standing, **options)


DECISIONS = (
    Decision(9, "drop"),
    Decision(1, "relabel", "dog"),
    Decision(3, "keep"),
    Decision(5, "skip"),
    Decision(7, "relabel", "bird"),
)


def test_a_table_keeps_every_byte_but_the_corrected_cells(tmp_path):
    folder = table_run(tmp_path)
    lines = (tmp_path / "pets.csv").read_text().splitlines(keepends=True)
    made = exported(folder, *DECISIONS)
    lines[1 + 1] = "pet 1,-4.5,dog\n"
    lines[1 + 7] = "pet 7,2.5,bird\n"
    del lines[1 + 9]
    assert (folder / "corrected.csv").read_text() == "".join(lines)
    assert (made.relabelled, made.dropped, made.confirmed, made.guarded) == (2, 1, 3, 0)
    assert [file.name for file in made.files] == [
        "corrected.csv",
        "confirmed.csv",
        "dropped.csv",
        "changes.diff",
    ]


def test_tabs_stay_tabs_in_a_file_of_that_name(tmp_path):
    text = (table_run(tmp_path / "first").parent / "pets.csv").read_text().replace(",", "\t")
    folder = table_run(tmp_path, text=text)
    (tmp_path / "pets.csv").rename(tmp_path / "pets.tsv")
    source = (folder / "source.json").read_text()
    (folder / "source.json").write_text(source.replace("pets.csv", "pets.tsv"))
    made = exported(folder, *DECISIONS)
    assert made.files[0].name == "corrected.tsv"
    assert made.files[0].read_text().splitlines()[1 + 1] == "pet 1\t-4.5\tdog"


def test_confirmed_rows_are_those_kept_or_relabelled(tmp_path):
    folder = table_run(tmp_path)
    exported(folder, *DECISIONS)
    assert (folder / "confirmed.csv").read_text() == "index,label\n1,dog\n3,cat\n7,bird\n"
    assert (folder / "dropped.csv").read_text() == "index\n9\n"


def test_the_changes_are_readable(tmp_path):
    folder = table_run(tmp_path)
    exported(folder, *DECISIONS)
    assert (folder / "changes.diff").read_text() == (
        "# 2 relabelled, 1 dropped\n1: cat -> dog\n7: cat -> bird\n9: cat -> (dropped)\n"
    )


def test_no_decisions_leave_the_data_as_they_are(tmp_path):
    folder = table_run(tmp_path)
    exported(folder)
    assert (folder / "corrected.csv").read_bytes() == (tmp_path / "pets.csv").read_bytes()
    assert (folder / "confirmed.csv").read_text() == "index,label\n"
    assert (folder / "dropped.csv").read_text() == "index\n"


DIALECTS = {
    "semicolons, windows ends, all quoted": (
        b'"name";"label";"note"\r\n"a;b";"cat";"x"\r\n"c ""d""";"cat";"y\r\nz"\r\n',
        b'"name";"label";"note"\r\n"c ""d""";"dog";"y\r\nz"\r\n',
    ),
    "tabs, no end of the last line": (
        b"name\tlabel\tnote\na\tcat\tx\nb\tcat\ty",
        b"name\tlabel\tnote\nb\tdog\ty",
    ),
    "bars, blank lines, spaces kept": (
        b"name|label|note\n\na| cat |x\n  \nb|cat | y \n\n",
        b"name|label|note\n\n  \nb|dog| y \n\n",
    ),
    "byte order mark, the target first": (
        b"\xef\xbb\xbflabel,name\ncat,a\ncat,\xc3\xa9\n",
        b"\xef\xbb\xbflabel,name\ndog,\xc3\xa9\n",
    ),
    "bytes that are not utf-8": (
        b"name,label\n\xe9t\xe9,cat\n\xe9,cat\n",
        b"name,label\n\xe9,dog\n",
    ),
    "quotes inside unquoted cells": (
        b'name,label\n5" nail,cat\n6" nail,cat\n',
        b'name,label\n6" nail,dog\n',
    ),
}


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
def test_dialects_are_kept(tmp_path, name, packed):
    before, after = DIALECTS[name]
    data = tmp_path / ("data.csv.gz" if packed else "data.csv")
    data.write_bytes(gzip.compress(before) if packed else before)
    suspects = [suspect(i, "cat", "dog", "{}") for i in range(2)]
    folder = write_run(tmp_path / "run", suspects, data=data, rows=2, columns=["name", "note"])
    exported(folder, Decision(0, "drop"), Decision(1, "relabel", "dog"))
    assert (folder / "corrected.csv").read_bytes() == after


cell = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(st.lists(cell, min_size=3, max_size=3), min_size=1, max_size=5),
    column=st.integers(0, 2),
    new=cell,
    delimiter=st.sampled_from(",;\t|"),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)
def test_one_cell_changes_and_the_csv_module_reads_the_rest_as_before(
    rows, column, new, delimiter, quoting
):
    stream = io.StringIO(newline="")
    csv.writer(stream, delimiter=delimiter, quoting=quoting).writerows(rows)
    stream.seek(0)
    written = [record for record, _ in records(stream, delimiter)]
    assert "".join(written) == stream.getvalue()
    changed = "".join(
        with_cells(record, {column: new}, delimiter=delimiter, count=3) for record in written
    )
    expected = [[*row[:column], new, *row[column + 1 :]] for row in rows]
    assert list(csv.reader(io.StringIO(changed, newline=""), delimiter=delimiter)) == expected


def test_formulas_in_any_cell_become_harmless_and_negative_numbers_stay(tmp_path):
    text = (
        "name,weight,label\n"
        "=1+1,-1.5,cat\n"
        "\"@SUM(A1,B1)\",+2,cat\n"
        "-2+cmd|' /C calc'!A0,-1e-7,cat\n"
        "\t=1,\"-1,234.50\",cat\n"
        "-,-inf,cat\n"
    )  # fmt: skip
    data = tmp_path / "data.csv"
    data.write_text(text)
    evil = '=HYPERLINK("http://x","y")'
    suspects = [suspect(i, "cat", evil, "{}") for i in range(5)]
    folder = write_run(tmp_path / "run", suspects, data=data, rows=5, columns=["name", "weight"],
                       classes=["cat", evil])  # fmt: skip
    made = exported(folder, Decision(4, "relabel", evil))
    with (folder / "corrected.csv").open(newline="") as stream:
        rows = list(csv.reader(stream))[1:]
    names, weights, labels = zip(*rows, strict=True)
    assert names == ("'=1+1", "'@SUM(A1,B1)", "'-2+cmd|' /C calc'!A0", "'\t=1", "-")
    assert weights == ("-1.5", "+2", "-1e-7", "-1,234.50", "-inf")
    assert labels[-1] == "'" + evil
    assert made.guarded == 5
    with (folder / "confirmed.csv").open(newline="") as stream:
        assert list(csv.reader(stream))[1] == ["4", "'" + evil]

    exact = exported(folder, Decision(0, "keep"), exact=True)
    assert exact.guarded == 0
    assert (folder / "corrected.csv").read_text() == text


@settings(deadline=None)
@given(st.floats(), st.sampled_from(["{:g}", "{:+.3e}", "{:,.2f}", "{:.1%}", "{!r}"]))
def test_no_number_is_taken_for_a_formula(number, form):
    assert harmless(form.format(number)) == form.format(number)


@settings(deadline=None)
@given(st.sampled_from("=+-@\t\r"), st.text(min_size=1, max_size=20))
def test_what_is_left_alone_has_no_letters_to_call_anything_with(first, rest):
    text = first + rest
    if not is_formula(text) and text.strip("+-").lower() not in ("inf", "infinity", "nan"):
        letters = "".join(part for part in text if part.isascii() and part.isalpha())
        assert letters.lower() in ("", "e")


def text_file(tmp_path, cells):
    data = tmp_path / "data.csv"
    with data.open("w") as stream:
        stream.write("text,label\n")
        stream.writelines(f'"{text}",cat\n' for text in cells)
    suspects = [suspect(0, "cat", "dog", "{}"), suspect(1, "cat", "dog", "{}")]
    return write_run(tmp_path / "run", suspects, data=data, rows=len(cells), columns=["text"])


def test_a_cell_of_ten_megabytes_passes(tmp_path):
    huge = "x" * 10_000_000
    folder = text_file(tmp_path, [huge, "y", huge])
    exported(folder, Decision(0, "relabel", "dog"), Decision(1, "drop"))
    assert (folder / "corrected.csv").read_text() == f'text,label\n"{huge}",dog\n"{huge}",cat\n'


def test_the_data_are_streamed(tmp_path):
    """20 MB of records pass in the memory of a few."""
    folder = text_file(tmp_path, ["y" * 20_000] * 1000)
    tracemalloc.start()
    exported(folder, Decision(0, "relabel", "dog"), Decision(1, "drop"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3_000_000
    assert (folder / "corrected.csv").stat().st_size > 19_000_000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name,weight,label\na,1,dog\nb,2,dog\n", "row 1 of the data has the label 'dog'"),
        ("name,weight,label\na,1,dog\nb,2,cat\nc,3,dog\n", "has 3 rows, but had 2"),
        ("name,weight,kind\na,1,dog\nb,2,cat\n", "no column 'label'"),
    ],
)
def test_data_that_changed_since_are_refused_and_nothing_is_written(tmp_path, text, words):
    folder = table_run(tmp_path, 2)
    (tmp_path / "pets.csv").write_text(text)
    with pytest.raises(DataError, match=words):
        exported(folder, Decision(1, "drop"))
    assert not list(folder.glob("*corrected*"))


def test_data_that_are_gone_are_named(tmp_path):
    folder = table_run(tmp_path, 2)
    (tmp_path / "pets.csv").unlink()
    with pytest.raises(DataError, match=r"pets\.csv, which the run was trained on"):
        exported(folder, Decision(1, "drop"))


COLUMNS = {
    "text": (pa.array(["cat"] * 6), "dog"),
    "dictionary": (pa.array(["cat"] * 6).dictionary_encode(), "dog"),
    "whole numbers": (pa.array([7] * 6), 3),
    "truth": (pa.array([True] * 6), False),
    "numbers": (pa.array([1.5] * 6), -2.25),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_parquet_stays_parquet_with_its_types(tmp_path, name):
    labels, new = COLUMNS[name]
    before = str(labels[0].as_py())
    table = pa.table({"x": [-1.0, None, 3, 4, 5, 6], "label": labels, "more": [["a"]] * 6})
    data = tmp_path / "data.parquet"
    pq.write_table(table, data, row_group_size=2)
    suspects = [suspect(i, before, str(new), "{}") for i in range(6)]
    folder = write_run(tmp_path / "run", suspects, data=data, rows=6, columns=["x", "more"],
                       classes=[before, str(new)])  # fmt: skip
    exported(folder, Decision(1, "drop"), Decision(4, "relabel", str(new)))
    written = pq.read_table(folder / "corrected.parquet")
    expected = table.to_pylist()
    expected[4]["label"] = new
    del expected[1]
    assert written.to_pylist() == expected
    assert written.schema == table.schema


def test_numbers_to_predict_are_replaced_as_typed(tmp_path):
    folder = regression_run(tmp_path)
    exported(folder, Decision(2, "relabel", "2.250"), Decision(0, "keep"), Decision(5, "drop"))
    assert (folder / "corrected.csv").read_text() == (
        "rooms;price\n0;-0.50\n1;-1.50\n2;2.250\n3;-3.50\n4;-4.50\n"
    )
    assert (folder / "confirmed.csv").read_text() == "index,label\n0,-0.50\n2,2.250\n"


def test_numbers_that_were_kept_are_confirmed_as_the_data_have_them(tmp_path):
    data = tmp_path / "data.csv"
    data.write_text("x,price\n1,123456.789\n2,0.1\n")
    suspects = [suspect(0, "123457", "9", "{}"), suspect(1, "0.0999999", "9", "{}")]
    folder = write_run(tmp_path / "run", suspects, data=data, rows=2, task="regression",
                       target="price", classes=[])  # fmt: skip
    exported(folder, Decision(0, "keep"), Decision(1, "keep"))
    assert (folder / "confirmed.csv").read_text() == "index,label\n0,123456.789\n1,0.1\n"


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-8-sig", "cp1252"])
def test_the_encoding_is_kept(tmp_path, encoding):
    text = "é,label\nö,café\nü,café\n"
    data = tmp_path / "data.csv"
    data.write_bytes(text.encode(encoding))
    suspects = [suspect(1, "café", "thé", "{}")]
    folder = write_run(tmp_path / "run", suspects, data=data, rows=2, encoding=encoding,
                       delimiter=",", classes=["café", "thé"])  # fmt: skip
    exported(folder, Decision(1, "relabel", "thé"))
    changed = text.replace("ü,café", "ü,thé")
    assert (folder / "corrected.csv").read_bytes() == changed.encode(encoding)


def test_images_are_listed_with_their_labels(tmp_path):
    folder = image_run(tmp_path, 6)
    exported(folder, Decision(1, "relabel", "bird"), Decision(3, "drop"), Decision(5, "keep"))
    assert (folder / "corrected.csv").read_text().splitlines() == [
        "path,label",
        "bird/000.png,bird",
        "cat/001.png,bird",
        "cat/004.png,cat",
        "dog/002.png,dog",
        "dog/005.png,dog",
    ]


def test_rows_of_an_earlier_audit_still_count(tmp_path):
    """The audit is made again and lists fewer suspects; what was decided about the others holds."""
    folder = table_run(tmp_path)
    ranked = pq.read_table(folder / "audit.parquet")
    kept = [row for row in pq.read_table(folder / "suspects.parquet").to_pylist()
            if row["index"] != 7]  # fmt: skip
    write_run(folder, kept, data=tmp_path / "pets.csv", rows=12, columns=["name", "weight"])
    pq.write_table(ranked, folder / "audit.parquet")
    exported(folder, Decision(7, "relabel", "bird"))
    assert "7: cat -> bird" in (folder / "changes.diff").read_text()
    assert "pet 7,2.5,bird" in (folder / "corrected.csv").read_text()


def test_labels_cannot_break_out_of_their_line_of_the_changes(tmp_path):
    sly = "cat\n99: dog -> wolf\u202e"
    data = tmp_path / "data.csv"
    data.write_text("x,label\n1,cat\n")
    folder = write_run(tmp_path / "run", [suspect(0, "cat", sly, json.dumps({"x": "1"}))],
                       data=data, rows=1, classes=[*PETS, sly])  # fmt: skip
    exported(folder, Decision(0, "relabel", sly))
    lines = (folder / "changes.diff").read_text().splitlines()
    assert lines[1:] == ["0: cat -> cat 99: dog -> wolf⟨U+202E⟩"]


def json_run(folder, lines, **source):
    data = folder / "pets.jsonl"
    data.write_bytes(b"".join(lines))
    suspects = [suspect(i, "cat", "dog", "{}") for i in (1, 3, 5, 7, 9)]
    return write_run(folder / "run", suspects, data=data, rows=12, **source)


def test_json_lines_keep_every_byte_but_the_corrected_values(tmp_path):
    lines = [
        f'{{"note":"n\\u00e4 {i}" , "label" :  "{"cat" if i % 2 else "dog"}","x":[{i}, 1.50]}}\r\n'.encode()
        for i in range(12)
    ]
    lines.insert(2, b" \n")  # a blank line is no row
    folder = json_run(tmp_path, lines)
    exported(folder, *DECISIONS)
    lines[1] = lines[1].replace(b'"cat"', b'"dog"')
    lines[8] = lines[8].replace(b'"cat"', b'"bird"')
    del lines[10]
    assert (folder / "corrected.jsonl").read_bytes() == b"".join(lines)


def test_a_number_in_json_lines_stays_a_number(tmp_path):
    lines = [b'{"label": %d, "label": %d}\n' % (7, i % 2) for i in range(12)]
    data = tmp_path / "rows.jsonl"
    data.write_bytes(b"".join(lines))
    suspects = [suspect(i, "1", "0", "{}") for i in (1, 3)]
    folder = write_run(tmp_path / "run", suspects, data=data, rows=12, classes=["0", "1"])
    exported(folder, Decision(1, "relabel", "0"))
    lines[1] = b'{"label": 7, "label": 0}\n'
    assert (folder / "corrected.jsonl").read_bytes() == b"".join(lines)


def test_other_json_lines_than_the_run_was_trained_on_are_refused(tmp_path):
    lines = [b'{"label": "cat"}\n'] * 12
    folder = json_run(tmp_path, lines)
    (tmp_path / "pets.jsonl").write_bytes(b"".join([b'{"label": "dog"}\n'] * 12))
    with pytest.raises(DataError, match="the data have changed"):
        exported(folder, *DECISIONS)
    (tmp_path / "pets.jsonl").write_bytes(b"".join(lines[:11]))
    with pytest.raises(DataError, match="11 rows"):
        exported(folder)


def excel_run(folder, rows, **source):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.active["A3"].data_type = "s"
    book.save(folder / "pets.xlsx")
    suspects = [suspect(i, str(rows[i + 1][1]), "dog", "{}") for i in (1, 3, 5, 7, 9)]
    return write_run(folder / "run", suspects, data=folder / "pets.xlsx", rows=12, **source)


def test_a_workbook_keeps_values_and_types_but_the_corrected_cells(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    rows = [
        ["note", "label", "x"],
        *([f"n{i}" if i != 1 else "=1+1", "cat" if i % 2 else "dog", i / 2] for i in range(12)),
    ]
    folder = excel_run(tmp_path, rows)
    made = exported(folder, *DECISIONS)
    assert made.files[0].name == "corrected.xlsx"
    book = openpyxl.load_workbook(folder / "corrected.xlsx")
    rows[1 + 1][1], rows[1 + 7][1] = "dog", "bird"
    del rows[1 + 9]
    assert [[cell.value for cell in row] for row in book.active.iter_rows()] == rows
    assert {cell.data_type for cell in book.active["A"]} == {"s"}  # no formula


def test_a_number_in_a_workbook_stays_a_number(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    rows = [["note", "label"], *([f"n{i}", i % 2] for i in range(12))]
    folder = excel_run(tmp_path, rows, classes=["0", "1"])
    exported(folder, Decision(1, "relabel", "0"))
    book = openpyxl.load_workbook(folder / "corrected.xlsx")
    assert [cell.value for cell in book.active["B"]] == [
        "label",
        0,
        0,
        *[i % 2 for i in range(2, 12)],
    ]


def test_a_folder_of_hugging_face_becomes_parquet_with_its_class_numbers(tmp_path):
    data = tmp_path / "pets"
    data.mkdir()
    table = pa.table({"x": range(12), "label": [i % 2 + 1 for i in range(12)]})
    table = table.replace_schema_metadata({"huggingface": '{"info": {}}'})
    with pa.ipc.new_stream(data / "data.arrow", table.schema) as stream:
        stream.write_table(table, max_chunksize=5)
    (data / "state.json").write_text('{"_data_files": [{"filename": "data.arrow"}]}')
    (data / "dataset_info.json").write_text(
        json.dumps({"features": {"label": {"names": ["bird", "dog", "cat"]}}})
    )
    suspects = [suspect(i, "cat", "dog", "{}") for i in (1, 3, 5, 7, 9)]
    folder = write_run(tmp_path / "run", suspects, data=data, rows=12)
    exported(folder, *DECISIONS)
    labels = table["label"].to_pylist()
    labels[1], labels[7] = 1, 0
    del labels[9]
    read = pq.read_table(folder / "corrected.parquet")
    assert read["label"].to_pylist() == labels
    assert read.schema.field("label").type == table.schema.field("label").type
    assert read.schema.metadata[b"huggingface"] == table.schema.metadata[b"huggingface"]


def test_a_label_with_a_decimal_comma_is_written_with_one(tmp_path):
    data = tmp_path / "rows.csv"
    data.write_text("x;label\n" + "".join(f"{i};{i},5\n" for i in range(12)))
    suspects = [suspect(i, f"{i}.5", "2.25", "{}") for i in (1, 3)]
    folder = write_run(
        tmp_path / "run", suspects, data=data, rows=12, task="regression", classes=[],
        delimiter=";", commas=["label"],
    )  # fmt: skip
    exported(folder, Decision(1, "relabel", "2.25"), Decision(3, "keep"))
    lines = data.read_text().splitlines()
    lines[2] = "1;2,25"
    assert (folder / "corrected.csv").read_text().splitlines() == lines
    assert (folder / "confirmed.csv").read_text() == "index,label\n1,2.25\n3,3.5\n"
