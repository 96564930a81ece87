"""Every form of a data set gives the same arrays; damaged and hostile files are refused by name."""

import gzip
import io
import lzma
import pickle
import stat
import tarfile
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh.data.sets import archives, decoders, layouts
from reweigh.data.sets.pickles import read_pickle
from reweigh.errors import DataError
from support import data_files as files

GREY = files.tiny_arrays((1, 28, 28))
COLOUR = files.tiny_arrays((3, 32, 32))
HUNDRED = files.tiny_arrays((3, 32, 32), train=200, test=100, classes=100)

FORMS = {
    "idx": (files.idx_files(GREY), (layouts.IDX,), GREY),
    "csv": (files.csv_files(GREY), (layouts.CSV,), GREY),
    "cifar10 binary": (files.cifar10_binary(COLOUR), (layouts.CIFAR10_BINARY,), COLOUR),
    "cifar10 pickle": (files.cifar10_pickle(COLOUR), (layouts.CIFAR10_PICKLE,), COLOUR),
    "cifar10 sheets": (files.cifar10_sheets(COLOUR), (layouts.SHEETS,), COLOUR),
    "cifar100 binary": (files.cifar100_binary(HUNDRED), (layouts.CIFAR100_BINARY,), HUNDRED),
    "cifar100 pickle": (files.cifar100_pickle(HUNDRED), (layouts.CIFAR100_PICKLE,), HUNDRED),
}


def packed(how: str, content: dict[str, bytes], folder: Path) -> Path:
    """The files as users have them: loose, compressed, in a sub-folder, in an archive."""
    if how == "folder":
        return files.write(folder / "sub" / "deep", content).parent
    if how == "gz":
        return files.write(folder, files.gzipped(content))
    if how == "xz":
        return files.write(
            folder, {f"{n}.xz": lzma.compress(c, preset=0) for n, c in content.items()}
        )
    if how == "tar.gz":
        return files.write(folder, {"set.tar.gz": files.tar_gz(content)}) / "set.tar.gz"
    if how == "folder with archive":
        return files.write(folder, {"mnist-or-cifar.tar.gz": files.tar_gz(content)})
    path = folder / "set.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            archive.writestr(f"set/{name}", data)
    return path


@pytest.mark.parametrize("how", ["folder", "gz", "xz", "tar.gz", "zip", "folder with archive"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_arrays(form, how, tmp_path):
    content, forms, expected = FORMS[form]
    (tmp_path / "in").mkdir()
    (tmp_path / "work").mkdir()
    decoded = layouts.decode(packed(how, content, tmp_path / "in"), forms, tmp_path / "work")
    for name, array in expected.items():
        assert decoded.arrays[name].dtype == np.uint8
        assert np.array_equal(decoded.arrays[name], array), name


@pytest.mark.parametrize("form", FORMS)
def test_a_truncated_file_is_named(form, tmp_path):
    content, forms, _ = FORMS[form]
    (tmp_path / "work").mkdir()
    for name in content:
        cut = {**content, name: content[name][: len(content[name]) * 2 // 3 - 1]}
        with pytest.raises(DataError, match=name.replace(".", r"\.")):
            layouts.decode(files.write(tmp_path / name, cut), forms, tmp_path / "work")


@pytest.mark.parametrize("how", ["gz", "xz"])
def test_a_truncated_compressed_file_is_named(how, tmp_path):
    content, forms, _ = FORMS["idx"]
    (tmp_path / "work").mkdir()
    folder = packed(how, content, tmp_path)
    victim = folder / f"train-images-idx3-ubyte.{how}"
    victim.write_bytes(victim.read_bytes()[:-100])
    with pytest.raises(DataError, match=f"train-images-idx3-ubyte.{how} is truncated"):
        layouts.decode(folder, forms, tmp_path / "work")


def test_a_missing_file_is_named(tmp_path):
    content, forms, _ = FORMS["idx"]
    content = {k: v for k, v in content.items() if "t10k-labels" not in k}
    with pytest.raises(DataError, match="lacks t10k-labels-idx1-ubyte of the idx form"):
        layouts.decode(files.write(tmp_path / "in", content), forms, tmp_path / "work")
    with pytest.raises(DataError, match="holds no form of this data set"):
        layouts.decode(tmp_path / "in", (layouts.SHEETS,), tmp_path / "work")
    with pytest.raises(DataError, match="does not exist"):
        layouts.decode(tmp_path / "nowhere", forms, tmp_path / "work")
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(DataError, match="no folder and no archive"):
        layouts.decode(tmp_path / "notes.txt", forms, tmp_path / "work")


@given(st.binary(max_size=80))
@settings(max_examples=200, deadline=None)
def test_readers_refuse_any_rubbish_with_one_kind_of_error(raw):
    for read in (
        decoders.read_idx,
        decoders.read_cifar_pickle,
        decoders.read_sheet,
        decoders.read_label_list,
        decoders.read_csv,
        lambda r, n: decoders.read_binary(r, n, label_bytes=1),
    ):
        with suppress(DataError):
            read(raw, "rubbish")


@pytest.mark.parametrize(
    "bad", ["1,2,3,4,999\n", "1,2,,4,5\n", "1,2,x,4,5\n", "1,2,3,4,5\n1,2,3\n", "1,2,-3,4,5\n", ""]
)
def test_a_csv_that_is_not_bytes_is_refused(bad):
    with pytest.raises(DataError, match=r"f\.csv"):
        decoders.read_csv(b"label,a,b,c,d\n" + bad.encode(), "f.csv")


@pytest.mark.parametrize("protocol", range(6))
def test_pickles_of_todays_numpy_are_read_too(protocol):
    images = COLOUR["test_images"].reshape(10, -1)
    content = {b"data": images, b"labels": COLOUR["test_labels"].tolist(), b"other": "text"}
    read = decoders.read_cifar_pickle(pickle.dumps(content, protocol=protocol), "batch")
    assert np.array_equal(read.images.reshape(10, -1), images)
    assert np.array_equal(read.labels, COLOUR["test_labels"])


class Attack:
    def __init__(self, function, *arguments):
        self.what = (function, arguments)

    def __reduce__(self):
        return self.what


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_runs_code_is_refused_before_it_runs(protocol, tmp_path):
    mark = tmp_path / "owned"
    for attack in (
        Attack(eval, f"open({str(mark)!r}, 'w').close()"),
        Attack(Path.touch, mark),
        Attack(np.load, str(mark)),
        Attack(getattr, mark, "touch"),
    ):
        raw = pickle.dumps({"data": attack}, protocol=protocol)
        with pytest.raises(DataError, match=r"the name .*; expected a dict of byte arrays"):
            read_pickle(raw, "batch")
    assert not mark.exists()


def test_a_pickled_array_of_objects_is_refused():
    raw = pickle.dumps({"data": np.array([{}, []], dtype=object)})
    with pytest.raises(DataError, match="neither of bytes nor of 64-bit numbers"):
        read_pickle(raw, "batch")


def tar_of(*members: tuple[str, dict]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, changes in members:
            info = tarfile.TarInfo(name)
            info.size = 1
            for key, value in changes.items():
                setattr(info, key, value)
            tar.addfile(info, io.BytesIO(b"x"))
    return out.getvalue()


HOSTILE = {
    "climbs": ("../evil", {}),
    "climbs later": ("set/../../evil", {}),
    "absolute": ("/tmp/evil", {}),
    "drive": ("C:/evil", {}),
    "backslashes": ("..\\evil", {}),
    "symlink": ("link", {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd", "size": 0}),
    "hard link": ("link", {"type": tarfile.LNKTYPE, "linkname": "../x", "size": 0}),
    "device": ("device", {"type": tarfile.CHRTYPE, "size": 0}),
    "fifo": ("pipe", {"type": tarfile.FIFOTYPE, "size": 0}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_tar_is_refused_whole(name, tmp_path):
    path = tmp_path / "evil.tar.gz"
    path.write_bytes(tar_of(("good", {}), HOSTILE[name]))
    with pytest.raises(DataError, match="nothing of it was unpacked"):
        archives.unpack(path, tmp_path / "a" / "b")
    assert [p.name for p in tmp_path.rglob("*")] == ["evil.tar.gz"]


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "a/../../evil", "symlink"])
def test_a_hostile_zip_is_refused_whole(name, tmp_path):
    path = tmp_path / "evil.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("good", b"x")
        info = zipfile.ZipInfo(name)
        if name == "symlink":
            info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, b"/etc/passwd")
    with pytest.raises(DataError, match="nothing of it was unpacked"):
        archives.unpack(path, tmp_path / "a")
    assert [p.name for p in tmp_path.rglob("*")] == ["evil.zip"]


def test_a_compression_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "LARGEST", 1000)
    path = tmp_path / "bomb.tar.gz"
    path.write_bytes(files.tar_gz({"big": bytes(2000)}))
    with pytest.raises(DataError, match="would unpack to 2,000 bytes"):
        archives.unpack(path, tmp_path / "a")


@pytest.mark.parametrize("name", ["x.tar.gz", "x.tar.xz", "x.zip", "x.deb", "x.tgz"])
@pytest.mark.parametrize(
    "content",
    [b"", b"rubbish", gzip.compress(b"rubbish", mtime=0), b"!<arch>\nxx"],
    ids=["nothing", "rubbish", "packed rubbish", "half a deb"],
)
def test_what_is_no_archive_is_named(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match="truncated or not an archive") as caught:
        archives.unpack(tmp_path / name, tmp_path / "a")
    assert "\n" not in str(caught.value)


def test_a_debian_package_is_read(tmp_path):
    payload = files.tar_gz({"f": b"hello"}, top="./usr/share")

    def member(name: bytes, content: bytes) -> bytes:
        head = name.ljust(16) + b"0".ljust(12) + b"0".ljust(6) * 2 + b"100644".ljust(8)
        padding = b"\n" * (len(content) % 2)
        return head + str(len(content)).encode().ljust(10) + b"`\n" + content + padding

    (tmp_path / "x.deb").write_bytes(
        b"!<arch>\n" + member(b"debian-binary", b"2.0") + member(b"data.tar.gz", payload)
    )
    archives.unpack(tmp_path / "x.deb", tmp_path / "out")
    assert (tmp_path / "out" / "usr" / "share" / "f").read_bytes() == b"hello"
