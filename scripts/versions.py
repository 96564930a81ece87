"""Run the tests of core against several releases of PyTorch and Python: `make versions`.

Each cell gets an environment of its own, below `--folder`, with that release from the registry: 3 to 6 GB
each, since the registry's builds bring CUDA. The environments are kept, so that a second run installs
nothing; remove the folder when you are done. The interpreters must be there: as `python3.10` on the path,
or from pyenv.

Every file of tests is run by itself and leaves one line in `results/versions/results.jsonl`; the table
beside it is made from these. A file that has been run at this commit is not run again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "versions"
TESTS = sorted(ROOT.glob("tests/core/test_*.py"))
# The lowest release of the promised range, one from its middle, and the highest.
CELLS = {"3.10": "2.6.0", "3.12": "2.9.1", "3.13": "2.15.0"}
NEEDED = ["pytest>=8.3", "hypothesis>=6.120"]
LONGEST = 3600  # seconds for one file of tests; what takes longer hangs


def interpreter(version: str) -> str:
    """The interpreter of a version, such as "3.10"."""
    # pyenv first: its commands on the path are there for versions that it does not run.
    found = next(map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python")), None)
    found = found or shutil.which(f"python{version}")
    if found is None:
        raise SystemExit(f"no Python {version} found; install it, or leave it out with --cell")
    return found


def environment(folder: Path, python: str, torch: str) -> Path:
    """The interpreter of an environment with this release of PyTorch."""
    home = folder / f"python{python}-torch{torch}"
    done = home / "installed"
    if not done.exists():
        packages = [f"torch=={torch}", f"{ROOT}[app]", *NEEDED]
        subprocess.run([interpreter(python), "-m", "venv", home], check=True)
        subprocess.run([home / "bin/python", "-m", "pip", "install", "-q", *packages], check=True)
        done.touch()
    return home / "bin" / "python"


def run(python: Path, file: Path) -> dict[str, object]:
    """The outcome of one file of tests: counts, and the names of those that failed."""
    report = python.parents[1] / "report.xml"
    report.unlink(missing_ok=True)
    settings = {
        "PYTHONPATH": str(ROOT / "src"),
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", file]
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            command, cwd=ROOT, env={**os.environ, **settings}, check=False, timeout=LONGEST
        )
    if not report.exists():
        return {"tests": 0, "skipped": 0, "failed": [f"{file.name}: pytest did not end"]}
    suite = ET.parse(report).getroot()
    cases = suite.findall(".//testcase")
    return {
        "tests": len(cases),
        "skipped": sum(case.find("skipped") is not None for case in cases),
        "failed": [
            f"{case.get('classname')}::{case.get('name')}"
            for case in cases
            if case.find("failure") is not None or case.find("error") is not None
        ],
    }


def commit() -> str:
    """The commit under test, marked if the sources or the tests were changed since."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=True
        ).stdout.strip()

    changed = git("status", "--porcelain", "--", "src", "tests")
    return git("rev-parse", "HEAD") + ("+changes" if changed else "")


def table(lines: list[dict[str, object]]) -> str:
    """The newest outcome of each file, summed for each cell; commits: those it was run at."""
    newest = {(x["python"], x["torch"], x["file"]): x for x in lines}
    cells = defaultdict(list)
    for (python, torch, _), line in newest.items():
        cells[python, torch].append(line)
    rows = [
        "| Python | PyTorch | files | passed | skipped | failed | commits |",
        "|---|---|---|---|---|---|---|",
    ]
    for (python, torch), found in sorted(cells.items(), key=lambda cell: float(cell[0][0][2:])):
        skipped = sum(x["skipped"] for x in found)
        failed = sum(len(x["failed"]) for x in found)
        passed = sum(x["tests"] for x in found) - skipped - failed
        files = f"{len(found)} of {len(TESTS)}"
        commits = ", ".join(dict.fromkeys(str(x["commit"])[:7] for x in found))
        rows.append(
            f"| {python} | {torch} | {files} | {passed} | {skipped} | {failed} | {commits} |"
        )
    return "\n".join(rows) + "\n"


def main() -> None:
    """Run what is asked for and has not been run, then write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "versions")
    parser.add_argument(
        "--cell", action="append", choices=CELLS, help="this Python only; may be repeated"
    )
    parser.add_argument("files", nargs="*", type=Path, help="files of tests; those of core if none")
    chosen = parser.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    kept = RESULTS / "results.jsonl"
    here = commit()
    failed = 0
    for version in chosen.cell or CELLS:
        cell = {"python": version, "torch": CELLS[version], "commit": here}
        python = environment(chosen.folder, version, CELLS[version])
        for file in [x.resolve() for x in chosen.files] or TESTS:
            lines = _read(kept)
            key = {**cell, "file": file.relative_to(ROOT).as_posix()}
            if any(key.items() <= line.items() for line in lines):
                continue
            outcome = run(python, file)
            failed += len(outcome["failed"])  # type: ignore[arg-type]
            with kept.open("a") as target:
                target.write(json.dumps({**key, **outcome}) + "\n")
            (RESULTS / "table.md").write_text(table(_read(kept)))
    print((RESULTS / "table.md").read_text())
    sys.exit(bool(failed))


def _read(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


if __name__ == "__main__":
    main()
