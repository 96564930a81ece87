"""Make docs/review.png: the review page on digits, some of whose labels were made wrong.

    make browser && .venv/bin/python docs/screenshot.py

The run is made up from the digits inside scikit-learn; the page is the real one, in Chromium.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))


def digits_run(folder: Path) -> Path:
    """60 digits, every one of them a suspect, and the true class as the suggestion."""
    from PIL import Image
    from sklearn.datasets import load_digits

    from support.review_runs import suspect, write_run, write_voices

    digits, draw, suspects = load_digits(), random.Random(4), []
    seen, voices = {digit: [] for digit in range(10)}, []  # earlier ones stand for checked rows
    for index in range(60):
        true = int(digits.target[index])
        given = draw.choice([other for other in range(10) if other != true])
        path = Path(str(given)) / f"{index:04}.png"
        (folder / "digits" / path).parent.mkdir(parents=True, exist_ok=True)
        pixels = (255 - digits.images[index] * 255 / 16).clip(0, 255).astype("uint8")
        Image.fromarray(pixels).save(folder / "digits" / path)
        steps, share = draw.randrange(40, 90), draw.randrange(86, 99)
        why = (
            f"It helped the checked rows in {draw.randrange(1, 6)}% of the {steps} steps it was in; "
            f"the model is {share}% sure of '{true}'."
        )
        suspects.append(
            suspect(
                index,
                str(given),
                str(true),
                path.as_posix(),
                why=why,
                suspicion=0.998 - index / 400,
                probability=share / 100,
                p_wrong=0.995 - index / 400,
                p_suggested=share / 100,
                flag=True,
            )
            | {"suggested": str(true)}
        )
        voices += [(index, -1.0, place, str(true), checked) for place, checked in seen[true][-3:]]
        seen[true].append((index, path.as_posix()))
    run = write_run(folder / "digits-run", suspects, data=folder / "digits", rows=60, kind="images",
                    clean=str(folder / "digits"), classes=[str(digit) for digit in range(10)])  # fmt: skip
    write_voices(run, *voices)
    return run


def main() -> None:
    """Decide about a few, then take the picture."""
    from PIL import Image

    from support.review_browser import chromium, served

    target = ROOT / "docs" / "review.png"
    with tempfile.TemporaryDirectory() as folder, served(digits_run(Path(folder))) as review:
        desk, address, _ = review
        with chromium() as browser:
            page = browser.new_page(viewport={"width": 1200, "height": 720})
            page.goto(address)
            page.wait_for_selector("#card article")
            for number, key in enumerate("aaakaaadaaaa", start=1):
                page.keyboard.press(key)
                page.wait_for_selector(f"#card article[data-row='{number}']")
            page.wait_for_function("document.querySelector('.example img').complete")
            page.screenshot(path=str(target))
        assert desk.progress().decided == 12
    # Few colours are needed: a palette makes the file a third as large.
    with Image.open(target) as image:
        image.convert("RGB").quantize(128).save(target, optimize=True)


if __name__ == "__main__":
    main()
