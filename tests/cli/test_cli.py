"""The command line: instant help, one line for every bad input, honest exit codes."""

import os
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("typer")

from reweigh.cli import main
from reweigh.cli.commands import COMMANDS

HEAVY = {"torch", "numpy", "sklearn", "matplotlib", "pandas", "scipy", "jinja2"}


def call(capsys, *arguments):
    """Exit code, standard output and standard error of `reweigh arguments`."""
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    printed = capsys.readouterr()
    return stopped.value.code, printed.out, printed.err


def run(code):
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["demo", "--help"], ["nonsense"]])
def test_what_needs_no_training_imports_nothing_heavy(arguments):
    code = (
        "import sys, reweigh.cli\n"
        f"try: reweigh.cli.main({arguments})\n"
        "except SystemExit: pass\n"
        f"print('heavy:', sorted({HEAVY} & set(sys.modules)))"
    )
    assert run(code).stdout.rstrip().endswith("heavy: []")


def test_the_package_runs_as_a_module():
    command = [sys.executable, "-m", "reweigh"]
    version = subprocess.run([*command, "--version"], check=True, capture_output=True, text=True)
    assert version.stdout == run("import reweigh; print('reweigh', reweigh.__version__)").stdout
    wrong = subprocess.run([*command, "trian"], check=False, capture_output=True, text=True)
    assert wrong.returncode == 2
    assert "did you mean 'train'?" in wrong.stderr


def test_help_names_every_command(capsys):
    code, out, _ = call(capsys, "--help")
    assert code == 0
    assert all(name in out for name in COMMANDS)


def test_no_arguments_show_the_help(capsys):
    code, out, _ = call(capsys)
    assert code == 0
    assert "Usage" in out


def test_version_is_the_package_version(capsys):
    import reweigh

    assert call(capsys, "--version") == (0, f"reweigh {reweigh.__version__}\n", "")


def assert_one_line(code, out, err, *parts):
    assert code == 2
    assert out == ""
    assert err.startswith("reweigh: error: ")
    assert err.count("\n") == 1
    for part in parts:
        assert part in err


def test_a_mistyped_command_gets_a_suggestion(capsys):
    assert_one_line(*call(capsys, "dmeo"), "did you mean 'demo'?")


def test_a_mistyped_option_gets_a_suggestion(capsys):
    assert_one_line(*call(capsys, "demo", "--seed", "3"), "--seeds")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--seeds", "many"], "--seeds"),
        (["--seeds", "0"], "seeds is 0"),
        (["--steps", "0"], "steps is 0"),
        (["--jobs", "0"], "jobs is 0"),
        (["--noise", "1.5"], "noise is 1.5"),
        (["--noise", "nan"], "noise is nan"),
        (["--out"], "--out"),
        (["surplus"], "surplus"),
    ],
)
def test_a_bad_option_ends_in_one_line(capsys, tmp_path, monkeypatch, arguments, part):
    monkeypatch.chdir(tmp_path)
    assert_one_line(*call(capsys, "demo", *arguments), part)


def test_a_file_as_out_ends_in_one_line(capsys, tmp_path):
    file = tmp_path / "taken"
    file.write_text("precious")
    assert_one_line(*call(capsys, "demo", "--out", str(file)), "taken is a file")
    assert_one_line(*call(capsys, "demo", "--out", str(file / "below")), "file")
    assert file.read_text() == "precious"


def test_an_unwritable_out_ends_in_one_line(capsys, tmp_path, monkeypatch):
    # Permissions do not stop a privileged user, so the refusal is played.
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("reweigh.files.tempfile.TemporaryFile", refuse)
    assert_one_line(
        *call(capsys, "demo", "--out", str(tmp_path)), "Permission denied", "cannot write"
    )


def test_without_the_extra_one_line_names_it():
    code = "import sys; sys.modules['typer'] = None; import reweigh.cli; reweigh.cli.main(['demo'])"
    done = run(code)
    assert_one_line(done.returncode, done.stdout, done.stderr, "pip install 'reweigh[app]'")


def test_a_bug_is_not_hidden_as_bad_input(monkeypatch):
    def broken():
        raise ZeroDivisionError

    monkeypatch.setattr("reweigh.cli.commands.root", broken)
    with pytest.raises(ZeroDivisionError):
        main(["demo"])


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
@pytest.mark.parametrize("jobs", [1, 2])
def test_an_interrupt_ends_in_one_line_and_leaves_no_process(tmp_path, jobs):
    command = ["demo", "--out", str(tmp_path), "--steps", "20000", "--jobs", str(jobs)]
    with subprocess.Popen(
        [sys.executable, "-c", f"from reweigh.cli import main; main({command})"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # the signal goes to the whole group, as from a terminal
    ) as process:
        deadline = time.monotonic() + 180
        while not (tmp_path / ".unfinished").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(0.5)  # workers are starting: the worst moment
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert err == "reweigh: interrupted\n"
    assert out == ""
    assert not (tmp_path / "results.json").exists()
    deadline = time.monotonic() + 20  # Python's own tracker of shared memory ends a little later
    while group_exists(process.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not group_exists(process.pid)


def group_exists(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_help_flows_with_the_terminal_and_keeps_words_in_brackets(capsys, monkeypatch):
    """No line of a paragraph ends early, and `reweigh[trees]` is not taken for markup."""
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = call(capsys, "train", "--help")
    assert "reweigh[trees]" in out
    paragraph = out[out.index("Several ways") : out.index("Leaves a run")].strip().splitlines()
    assert all(len(line.strip()) > 65 for line in paragraph[:-1])
    _, out, _ = call(capsys, "audit", "--help")
    assert "[default: RUN/audit.csv]" in out
