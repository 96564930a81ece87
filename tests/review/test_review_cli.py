"""`reweigh review`: loopback only, a clear end, and nothing lost when it is killed."""

import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager

import pytest

pytest.importorskip("typer")
pytest.importorskip("pyarrow")
pytest.importorskip("starlette")
pytest.importorskip("httpx")

import httpx

from reweigh.cli import main
from reweigh.review.serving import bound
from support.review_runs import table_run


class Review:
    """`reweigh review` as a process of its own."""

    def __init__(self, folder, *options):
        code = "import sys; from reweigh.cli import main; main(sys.argv[1:])"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, "review", str(folder), "--no-browser", *options],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # fmt: skip
        self.printed = ""
        while "Ctrl-C" not in self.printed:
            line = self.process.stdout.readline()
            assert line, self.printed
            self.printed += line
        self.address = re.search(r"http://\S+", self.printed)[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    @contextmanager
    def client(self):
        """A browser that opened the printed address."""
        base = self.address.split("/?")[0]
        with httpx.Client(base_url=base, headers={"Origin": base}) as client:
            client.get(self.address).raise_for_status()
            yield client

    def end(self, how):
        self.process.send_signal(how)
        rest, _ = self.process.communicate(timeout=60)
        return self.process.returncode, rest


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    printed = capsys.readouterr()
    return stopped.value.code, printed.out, printed.err


def test_a_kill_loses_nothing_and_ctrl_c_ends_cleanly(tmp_path):
    folder = table_run(tmp_path)
    with Review(folder) as review, review.client() as client:
        assert "6 suspects, 0 decided" in review.printed
        for row in (1, 3):
            client.post("/decide", json={"index": row, "action": "drop"}).raise_for_status()
        review.end(signal.SIGKILL)
    with (folder / "decisions.jsonl").open("a") as stream:
        stream.write('{"at": "20')  # as a kill in the middle of a write would leave it
    with Review(folder) as review, review.client() as client:
        assert "6 suspects, 2 decided" in review.printed
        assert "was torn" in review.printed
        client.post("/decide", json={"index": 5, "action": "keep"}).raise_for_status()
        code, rest = review.end(signal.SIGINT)
    assert code == 0
    assert "3 of 6 decided" in rest
    assert "Traceback" not in rest


def test_it_listens_on_loopback_only_and_a_second_start_is_refused(tmp_path):
    with Review(folder := table_run(tmp_path)) as review:
        port = int(re.search(r":(\d+)/", review.address)[1])
        assert review.address.startswith("http://127.0.0.1:")
        with socket.socket() as probe:
            probe.settimeout(2)
            assert probe.connect_ex(("127.0.0.2", port)) != 0
        code = "import sys; from reweigh.cli import main; main(sys.argv[1:])"
        again = subprocess.run([sys.executable, "-c", code, "review", str(folder), "--no-browser"],
                               capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
        assert again.returncode == 2
        assert "another `reweigh review`" in again.stderr
        assert again.stderr.count("\n") == 1


def test_a_port_that_was_asked_for_and_is_taken_is_an_error(tmp_path, capsys):
    with bound(None) as taken:
        port = str(taken.getsockname()[1])
        code, out, err = call(capsys, "review", str(table_run(tmp_path)), "--port", port)
    assert (code, out) == (2, "")
    assert f"port {port} cannot be used" in err
    assert err.count("\n") == 1


def test_without_a_wish_a_free_port_is_found():
    with bound(None) as first, bound(None) as second:
        assert first.getsockname()[1] != second.getsockname()[1]
        assert first.getsockname()[0] == second.getsockname()[0] == "127.0.0.1"


def test_export_needs_no_page(tmp_path, capsys):
    folder = table_run(tmp_path)
    (folder / "decisions.jsonl").write_text('{"at": "x", "index": 3, "action": "drop"}\n')
    code, out, _ = call(capsys, "review", str(folder), "--export")
    assert code == 0
    assert "0 relabelled, 1 dropped, 0 rows confirmed" in out
    assert "pet 3" not in (folder / "corrected.csv").read_text()


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["nowhere"], "there is no nowhere/source.json"),
        (["nowhere", "--port", "70000"], "65535"),
        (["nowhere", "--exact"], "--exact goes with --export"),
    ],
)
def test_bad_input_is_one_line(tmp_path, monkeypatch, capsys, arguments, part):
    monkeypatch.chdir(tmp_path)
    code, out, err = call(capsys, "review", *arguments)
    assert (code, out) == (2, "")
    assert part in err
    assert err.count("\n") == 1


def test_no_browser_is_opened_where_there_is_no_screen(monkeypatch):
    import webbrowser

    from reweigh.review.serving import open_browser

    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or True)
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    assert not open_browser("http://127.0.0.1:1/")
    monkeypatch.setenv("DISPLAY", ":0")
    assert open_browser("http://127.0.0.1:1/")
    monkeypatch.setenv("SSH_CONNECTION", "far away")
    assert not open_browser("http://127.0.0.1:1/")
    assert opened == ["http://127.0.0.1:1/"]
