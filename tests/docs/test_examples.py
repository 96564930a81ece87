"""Every example runs, is short, and is what its page of the documentation shows as a diff."""

from __future__ import annotations

import re
import runpy
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LONGEST = 80  # lines
# example, the module its framework is, the page that shows it, what it prints at the end
EXAMPLES = [
    ("sklearn_table", "skorch", "sklearn", r"of the 100 most suspicious rows, (9\d|100) are"),
    ("transformers_text", "transformers", "transformers", r"suspicious texts, ([7-9]\d|100) are"),
    ("lightning_images", "lightning", "lightning", r"suspicious images, (9\d|100) are"),
]


def diffs(page: str) -> list[str]:
    text = (ROOT / "docs" / "integrations" / f"{page}.md").read_text()
    return re.findall(r"```diff\n(.*?)```", text, flags=re.DOTALL)


@pytest.mark.parametrize(("name", "framework", "page", "printed"), EXAMPLES)
def test_runs(name, framework, page, printed, capsys, tmp_path, monkeypatch):
    pytest.importorskip(framework, reason=f"needs {framework}: pip install 'reweigh[{framework}]'")
    path = ROOT / "examples" / f"{name}.py"
    assert len(path.read_text().splitlines()) <= LONGEST
    monkeypatch.chdir(tmp_path)  # some write logs and checkpoints where they are run
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of the frameworks are theirs to mend
        warnings.filterwarnings("error", module="reweigh")
        runpy.run_path(str(path), run_name="__main__")
    assert re.search(printed, capsys.readouterr().out)


@pytest.mark.parametrize(("name", "framework", "page", "printed"), EXAMPLES)
def test_the_page_shows_what_the_example_does(name, framework, page, printed):
    code = [line.strip() for line in (ROOT / "examples" / f"{name}.py").read_text().splitlines()]
    found = diffs(page)
    assert found
    for diff in found:
        for line in diff.splitlines():
            if not line.startswith("-"):
                assert line[1:].strip() in code, line


def test_every_example_is_in_the_table():
    # The tutorial's, run by tests/app/test_own_docs.py; and one of minutes, run below for a few steps.
    elsewhere = {"noisy_table", "sft_noisy"}
    here = {name for name, *_ in EXAMPLES}
    assert {p.stem for p in (ROOT / "examples").glob("*.py")} == here | elsewhere


def test_the_small_language_model_runs(tmp_path, capsys, monkeypatch):
    """Two steps of each method; a second call prints what was kept."""
    path = ROOT / "examples" / "sft_noisy.py"
    monkeypatch.setattr("sys.argv", [path.name, "--steps", "2", "--out", str(tmp_path)])
    for _ in range(2):
        runpy.run_path(str(path), run_name="__main__")
    assert len((tmp_path / "sft.jsonl").read_text().splitlines()) == 5
    assert (
        len(
            re.findall(
                r"^   0  (plain|good only|filtered|by sequence|by token) ",
                capsys.readouterr().out,
                flags=re.M,
            )
        )
        == 10
    )
