"""Shards that are missing, unlike, empty or damaged end in one line that names them."""

from __future__ import annotations

import itertools
import tarfile

import numpy as np
import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("PIL")

import pyarrow as pa
import pyarrow.parquet as pq

from reweigh.data import Fields, ImageEncoder, Stream, open_shards, stream_part
from reweigh.errors import DataError
from support import shard_files
from support.shard_files import FIELDS, UNEVEN, WRITERS


@pytest.mark.parametrize("kind", FIELDS)
def test_a_folder_a_pattern_and_a_list_are_the_same_shards(tmp_path, kind):
    folder = shard_files.write(tmp_path, kind)
    ending = {"npy": ".*.npy"}.get(kind, f".{kind}")
    found = open_shards(folder)
    assert found.rows == UNEVEN
    assert open_shards(f"{folder}/part-{{000..004}}{ending}") == found
    assert open_shards(f"{folder}/part-*{ending}") == found
    assert open_shards(sorted(folder.iterdir())) == found
    assert found.where(7) == f"{found.paths[1]}, row 0"


def refused(source, *parts):
    with pytest.raises(DataError) as caught:
        open_shards(source)
    one_line(caught, *parts)


def one_line(caught, *parts):
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


@pytest.mark.parametrize("kind", FIELDS)
def test_a_missing_shard_is_named(tmp_path, kind):
    ending = {"npy": ".*.npy"}.get(kind, f".{kind}")
    shard_files.write(tmp_path, kind)
    refused(f"{tmp_path}/part-{{000..005}}{ending}", f"there is no {tmp_path}/part-005", "one of")
    refused(f"{tmp_path}/other-*", "no shards at")


@pytest.mark.parametrize("kind", FIELDS)
def test_a_shard_that_vanishes_is_named(tmp_path, kind):
    shards = open_shards(shard_files.write(tmp_path, kind, (20, 20)))
    for file in tmp_path.glob("part-001*"):
        file.unlink()
    with pytest.raises(DataError) as caught:
        list(Stream(shards, FIELDS[kind], size=10).epoch(0))
    one_line(caught, "part-001")


@pytest.mark.parametrize("kind", FIELDS)
def test_an_empty_shard_is_named(tmp_path, kind):
    WRITERS[kind](tmp_path / "part-000", np.arange(3))
    WRITERS[kind](tmp_path / "part-001", np.arange(0))
    refused(tmp_path, "part-001", "is empty", "take it out")


def test_unlike_columns_are_named(tmp_path):
    shard_files.write(tmp_path, "parquet", (4,))
    other = tmp_path / "part-001.parquet"
    good = {"a": [1.0], "b": [1.0], "label": [1]}
    for change, part in (
        ({"b": None}, "it has no field 'b'"),
        ({"c": [1]}, "it has a field 'c' more"),
        ({"b": ["word"]}, "its 'b' is string; expected double"),
    ):
        columns = {k: v for k, v in {**good, **change}.items() if v is not None}
        pq.write_table(pa.table(columns), other)
        refused(tmp_path, "part-001.parquet is unlike", part)


def test_unlike_arrays_are_named(tmp_path):
    shard_files.write(tmp_path, "npy", (4, 4))
    np.save(tmp_path / "part-001.x.npy", np.zeros((4, 3), np.float32))
    refused(tmp_path, "part-001 is unlike", "float32[3]; expected float32[2]")
    np.save(tmp_path / "part-001.x.npy", np.zeros((5, 2), np.float32))
    refused(tmp_path, "differ in length", "label 4, x 5")
    np.save(tmp_path / "loose.npy", np.zeros(3))
    refused(tmp_path, "names no field", "SHARD.FIELD.npy")


def test_unlike_examples_of_a_tar_are_named(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name in ("1.png", "1.cls", "2.png", "3.png", "3.cls"):
            shard_files.add(archive, name, b"1")
    refused(tmp_path, "example 2 has png; expected cls, png")


@pytest.mark.parametrize("cut", [100, 512, 1600, 5000])
def test_a_truncated_tar_is_named_wherever_it_was_cut(tmp_path, cut):
    shard_files.write(tmp_path, "tar", (20,))
    path = tmp_path / "part-000.tar"
    whole = path.read_bytes()
    # As long as its examples and the two empty blocks of its end, without the padding.
    content = whole.rstrip(b"\0")
    content += bytes(-len(content) % 512 + 1024)
    path.write_bytes(content)
    assert open_shards(path).rows == (20,)
    path.write_bytes(content[:-cut])
    refused(path, "part-000.tar is truncated")


@pytest.mark.parametrize(("kind", "file"), [("parquet", "part-000.parquet"), ("npy", "part-000.x.npy")])  # fmt: skip
def test_other_truncated_files_are_named(tmp_path, kind, file):
    path = shard_files.write(tmp_path, kind, (40,)) / file
    path.write_bytes(path.read_bytes()[:-50])
    refused(tmp_path, file, "truncated")


def test_formats_do_not_mix(tmp_path):
    shard_files.write(tmp_path, "tar", (2,))
    shard_files.write(tmp_path, "parquet", (2,))
    refused(tmp_path, "parquet, tar", "one format")
    refused(__file__, "expected shards of one format")


@pytest.mark.parametrize("workers", [0, 1])
def test_an_unreadable_image_is_named_with_its_shard_and_row(tmp_path, workers):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for k in range(12):
            content = b"no image" if k == 7 else shard_files.picture(k)
            shard_files.add(archive, f"{k}.png", content)
            shard_files.add(archive, f"{k}.cls", b"0")
    stream = Stream(open_shards(tmp_path), FIELDS["tar"], size=8)
    with pytest.raises(DataError) as caught:
        list(itertools.islice(stream.batches(workers=workers), 2))
    one_line(caught, "a.tar, row 7: 'png' cannot be decoded as an image")


def test_images_in_parquet_and_names_of_classes(tmp_path):
    names = ["cat", "dog", "cat", "cow"]
    pixels = [shard_files.picture(k) for k in range(4)]
    pq.write_table(pa.table({"image": pixels, "kind": names}), tmp_path / "a.parquet")
    fields = Fields("image", "kind", classes=("cat", "cow", "dog"), images=ImageEncoder(4, 3))
    (batch,) = Stream(open_shards(tmp_path), fields, size=4, lanes=1).epoch(0)
    assert batch.inputs.shape == (4, 3, 4, 4)
    assert batch.inputs[:, 0, 0, 0].tolist() == batch.ids.tolist()
    assert [fields.classes[k] for k in batch.targets] == [names[i] for i in batch.ids]
    with pytest.raises(DataError, match=r"row 3: 'kind' is 'cow', none of the classes"):
        stream_part(tmp_path, Fields("image", "kind", classes=("cat", "dog")))


def test_lists_are_inputs_and_their_lengths_are_equal(tmp_path):
    pq.write_table(pa.table({"x": [[1.0, 2.0], [3.0, 4.0]], "y": [0.5, 1.5]}), tmp_path / "a.pq")
    (batch,) = Stream(open_shards(tmp_path), Fields("x", "y"), size=2, lanes=1).epoch(0)
    assert batch.inputs[batch.ids.argsort()].tolist() == [[1, 2], [3, 4]]
    assert batch.targets.is_floating_point()
    pq.write_table(pa.table({"x": [[1.0, 2.0], [3.0]], "y": [0.5, 1.5]}), tmp_path / "a.pq")
    with pytest.raises(DataError, match="different lengths"):
        list(Stream(open_shards(tmp_path), Fields("x", "y"), size=2, lanes=1).epoch(0))


@pytest.mark.parametrize(
    ("column", "part"),
    [([1.0, None], "row 1: 'y' is missing"), (["1", "two"], "row 1: 'y' is 'two', no whole number")],
)  # fmt: skip
def test_a_bad_label_is_named(tmp_path, column, part):
    pq.write_table(pa.table({"x": [1.0, 2.0], "y": column}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=part):
        stream_part(tmp_path, Fields("x", "y"))


def test_words_are_no_inputs(tmp_path):
    pq.write_table(pa.table({"x": ["word"] * 2, "y": [0, 1]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"row \d: 'x' is no number: 'word'"):
        list(Stream(open_shards(tmp_path), Fields("x", "y"), size=2, lanes=1).epoch(0))
