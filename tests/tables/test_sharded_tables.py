"""Several files as one table: which they are, their order, and what is refused."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reweigh.errors import DataError
from reweigh.tables import is_shards, is_table, open_table, shard_files

FRAME = pd.DataFrame({"x": range(12), "label": list("abcabcabcabc")})


def write(path, frame):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        frame.to_parquet(path, index=False)
    elif path.suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_csv(path, index=False)


def rows_of(path, columns=None):
    return pa.Table.from_batches(open_table(path).pieces(columns)).to_pandas()


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_shards_are_one_table_in_the_order_of_their_numbers(tmp_path, ending):
    for number, part in ((10, FRAME[8:]), (2, FRAME[3:8]), (0, FRAME[:3])):
        write(tmp_path / f"part-{number}.{ending}", part)
    (tmp_path / "README.md").write_text("about")
    (tmp_path / "_SUCCESS").write_text("")
    assert is_table(tmp_path)
    assert rows_of(tmp_path).astype(str).equals(FRAME.astype(str))
    assert rows_of(tmp_path, ["label"])["label"].tolist() == FRAME["label"].tolist()
    names = {f"part-{k}.{ending}": rows for k, rows in ((0, 3), (2, 5), (10, 4))}
    assert list(open_table(tmp_path).shards.items()) == list(names.items())


def test_the_folder_above_is_a_data_set_of_hugging_face(tmp_path):
    for k in range(2):
        write(tmp_path / "data" / f"train-0000{k}-of-00002.parquet", FRAME[6 * k : 6 * k + 6])
    assert shard_files(tmp_path) == shard_files(tmp_path / "data")
    assert rows_of(tmp_path).equals(FRAME)


def test_splits_beside_each_other_ask_for_a_pattern(tmp_path):
    for split, part in (("train", FRAME[:8]), ("test", FRAME[8:])):
        write(tmp_path / f"{split}-00000-of-00001.parquet", part)
    with pytest.raises(DataError, match=r"several tables: test-\*-of-\*.parquet, train-\*-of-\*"):
        open_table(tmp_path)
    assert is_table(tmp_path / "train-*.parquet")
    assert rows_of(tmp_path / "train-*.parquet").equals(FRAME[:8])


def test_files_of_other_names_are_not_joined(tmp_path):
    """Checked rows beside the data have the same columns, and are no part of them."""
    write(tmp_path / "rows.csv", FRAME)
    write(tmp_path / "checked.csv", FRAME[:3])
    with pytest.raises(DataError, match=r"several tables: checked.csv, rows.csv; .* give a file"):
        open_table(tmp_path)


def test_a_shard_that_is_missing_is_named(tmp_path):
    write(tmp_path / "train-00000-of-00003.parquet", FRAME)
    write(tmp_path / "train-00002-of-00003.parquet", FRAME)
    with pytest.raises(DataError, match=r"no .*train-00001-of-00003.parquet; copy all 3 shards"):
        open_table(tmp_path)
    write(tmp_path / "train-00000-of-00002.parquet", FRAME)
    with pytest.raises(DataError, match="a set of 2 and of a set of 3"):
        open_table(tmp_path)


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_other_columns_are_refused_by_name(tmp_path, ending):
    write(tmp_path / f"a0.{ending}", FRAME)
    write(tmp_path / f"a1.{ending}", FRAME.rename(columns={"x": "size"}))
    with pytest.raises(DataError, match=rf"a1.{ending} has no column 'x', but .*a0.{ending} has"):
        open_table(tmp_path)
    write(tmp_path / f"a1.{ending}", FRAME.assign(more=1))
    with pytest.raises(DataError, match=rf"a0.{ending} has no column 'more', but .*a1.{ending}"):
        open_table(tmp_path)


def test_the_order_of_columns_counts_in_text_only(tmp_path):
    for ending in ("csv", "parquet"):
        write(tmp_path / ending / f"0.{ending}", FRAME[:5])
        write(tmp_path / ending / f"1.{ending}", FRAME.loc[5:, ["label", "x"]])
    with pytest.raises(DataError, match="in another order"):
        open_table(tmp_path / "csv")
    assert rows_of(tmp_path / "parquet").equals(FRAME)


def test_types_of_parquet_are_made_one_or_refused(tmp_path):
    write(tmp_path / "0.parquet", FRAME[:5])
    write(tmp_path / "1.parquet", FRAME[5:].assign(x=[5.5, *range(6, 12)]))
    assert rows_of(tmp_path)["x"].tolist() == [*range(5), 5.5, *range(6, 12)]
    write(tmp_path / "1.parquet", FRAME.assign(x="word"))
    with pytest.raises(
        DataError, match=r"'x' is .*string in .*1.parquet, but int64 in .*0.parquet"
    ):
        open_table(tmp_path)


def test_a_table_of_one_type_in_a_small_shard_of_missing_cells(tmp_path):
    write(tmp_path / "0.parquet", FRAME)
    pq.write_table(pa.table({"x": [1], "label": pa.nulls(1)}), tmp_path / "1.parquet")
    labels = rows_of(tmp_path)["label"]
    assert labels[:12].tolist() == FRAME["label"].tolist()
    assert labels[12:].isna().tolist() == [True]


def test_forms_and_delimiters_are_not_mixed(tmp_path):
    write(tmp_path / "a0.csv", FRAME)
    write(tmp_path / "a1.jsonl", FRAME)
    with pytest.raises(DataError, match=r".csv and .jsonl files"):
        open_table(tmp_path / "a*")
    (tmp_path / "a1.csv").write_text("x;label\n1;a\n")
    with pytest.raises(DataError, match=r"by ';', but .*a0.csv by ','"):
        open_table(tmp_path / "a*.csv")


def test_decimal_commas_that_one_shard_tells_are_those_of_all(tmp_path):
    (tmp_path / "0.csv").write_text("x;label\n1,234;a\n2,345;b\n")
    (tmp_path / "1.csv").write_text("x;label\n3,5;a\n")
    assert open_table(tmp_path).commas == {"x"}
    assert rows_of(tmp_path)["x"].tolist() == ["1.234", "2.345", "3.5"]


def test_folders_of_images_stay_folders_of_images(tmp_path):
    write(tmp_path / "labels.csv", FRAME)
    (tmp_path / "cat" / "young").mkdir(parents=True)
    (tmp_path / "cat" / "young" / "1.jpg").write_bytes(b"")
    assert not is_shards(tmp_path)


def test_several_folders_of_tables_are_listed(tmp_path):
    for name in ("de", "en"):
        write(tmp_path / name / "0.parquet", FRAME)
    with pytest.raises(DataError, match=r"tables in .*de, .*en; .* give one of these folders"):
        open_table(tmp_path)


def test_no_match_is_no_table(tmp_path):
    assert not is_shards(tmp_path / "part-*.csv")
    with pytest.raises(DataError, match=r"there is no .*part-\*.csv; expected .* a pattern"):
        open_table(tmp_path / "part-*.csv")
