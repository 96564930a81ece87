"""Build the wheel, and try it where nothing else is installed: `make wheel`.

An empty environment gets the wheel with what it asks for, torch and numpy, and runs the example at the head
of the README as it is printed. Then the same environment gets the extra [app] and runs `reweigh demo`, with
few steps. Needs the package registry.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INSTALL = ["-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt"]


def example() -> str:
    """The code at the head of the README."""
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]


def problems(wheel: Path) -> list[str]:
    """What a wheel lacks of the package, and what it holds besides."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    source = ROOT / "src"
    kept = {
        path.relative_to(source).as_posix()
        for path in (source / "reweigh").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    inside = {name for name in names if ".dist-info/" not in name}
    files = {name.partition(".dist-info/")[2] for name in names - inside}
    wanted = {"METADATA", "licenses/LICENSE", "entry_points.txt"}
    return [
        *(f"lacks {name}" for name in sorted(kept - inside)),
        *(f"holds {name}" for name in sorted(inside - kept)),
        *(f"lacks {name} in its description" for name in sorted(wanted - files)),
    ]


def environment(folder: Path) -> Path:
    """The interpreter of a new, empty environment."""
    run(sys.executable, "-m", "venv", folder)
    return folder / "bin" / "python"


def run(*command: object, folder: Path | None = None) -> None:
    """Run a command; its failure is ours."""
    words = [str(word) for word in command]
    print("$", *(word if "\n" not in word else "..." for word in words), flush=True)
    subprocess.run(words, cwd=folder, check=True)


def main() -> None:
    """Build, look inside, install, run."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        builder = environment(folder / "builder")
        run(builder, "-m", "pip", "install", "--quiet", "build")
        run(builder, "-m", "build", "--outdir", folder / "dist", ROOT)
        (wheel,) = (folder / "dist").glob("*.whl")
        if found := problems(wheel):
            raise SystemExit(f"{wheel.name} {'; '.join(found)}")
        empty = environment(folder / "empty")
        run(empty, *INSTALL, wheel, folder=folder)
        run(empty, "-m", "pip", "list", "--format=freeze", folder=folder)
        run(empty, "-I", "-c", example(), folder=folder)  # -I: not the sources beside this script
        run(empty, *INSTALL, f"{wheel}[app]", folder=folder)
        demo = [empty.with_name("reweigh"), "demo", "--seeds", "1", "--steps", "100"]
        run(*demo, "--out", folder / "demo", folder=folder)
        for name in ("report.html", "results.json"):
            if not (folder / "demo" / name).stat().st_size:
                raise SystemExit(f"the demo left an empty {name}")
        print(f"{wheel.name}: installs and runs")


if __name__ == "__main__":
    main()
