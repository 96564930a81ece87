"""The page of a run: whole, self-contained, and nothing from the user's files runs in it."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from reweigh.app import Options, train
from reweigh.errors import DataError
from reweigh.report.run import render, write_report
from support.own_data import images, table, write_tables

EVIL = "<script>alert('x')</script>"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Of a run whose labels, cells and column names are an attack on the page."""
    folder = tmp_path_factory.mktemp("report")
    frame, _ = table(120, 0, noise=0.4)
    frame["label"] = frame["label"].replace("dog", EVIL)
    frame["town"] = frame["town"].replace("Ulm", '"><img src=x onerror=alert(1)>')
    frame = frame.rename(columns={"weight": EVIL, "length": "$x_{"})
    frame.to_csv(folder / "rows.csv", index=False)
    frame["$x_{"] += 0.01
    frame[:30].to_csv(folder / "checked.csv", index=False)
    options = Options(
        data=folder / "rows.csv", clean=folder / "checked.csv", target="label", method="reweigh", steps=30, compare=True
    )  # fmt: skip
    train(options, folder / "run")
    return write_report(folder / "run").read_text()


def test_everything_from_the_data_is_escaped(page):
    assert "<script" not in page
    assert "<img src=x" not in page
    assert "&lt;script&gt;alert" in page


def test_the_page_needs_nothing_else(page):
    assert not re.findall(r"""(?:src|href)=["'](?!data:)[^#"']""", page)
    assert "http" not in page.replace("http://www.w3.org", "")


def test_the_page_tells_what_the_summary_has(page):
    for part in ("Against plain training", "Before you trust this", "The most suspicious labels",
                 "Given against suggested labels", "random weights", "held out"):  # fmt: skip
        assert part in page


def test_pictures_stay_inside_the_data(tmp_path):
    images(tmp_path / "photos", 30, 0)
    images(tmp_path / "checked", 10, 1)
    options = Options(
        data=tmp_path / "photos",
        clean=tmp_path / "checked",
        method="reweigh",
        steps=3,
        image_size=8,
    )
    train(options, tmp_path / "run")

    def pictures():
        """How many suspects, and how many checked rows beside them, are shown."""
        page = render(tmp_path / "run")
        named = re.findall(r'<img src="data:image/png;base64,[^"]*" alt="([^"]*)"', page)
        assert len(named) == page.count("data:image")
        return sum(bool(name) for name in named), sum(not name for name in named)

    suspects, voices = pictures()
    assert suspects == 24
    assert 0 < voices <= 48
    # A run folder that names a picture outside the data shows none.
    source = json.loads((tmp_path / "run" / "source.json").read_text())
    source["data"] = str(tmp_path / "checked")
    (tmp_path / "run" / "source.json").write_text(json.dumps(source))
    assert pictures()[0] <= 10
    source["clean"] = str(tmp_path / "run")
    (tmp_path / "run" / "source.json").write_text(json.dumps(source))
    assert pictures()[1] == 0


def test_a_regression_has_a_page(tmp_path):
    draw = np.random.default_rng(0)
    write_tables(tmp_path, rows=60, clean=20)
    for name in ("rows", "checked"):
        frame, _ = table(60, 3 if name == "rows" else 4)
        frame.assign(label=draw.normal(size=60)).to_csv(tmp_path / f"{name}.csv", index=False)
    options = Options(data=tmp_path / "rows.csv", clean=tmp_path / "checked.csv", target="label", method="reweigh", steps=3, holdout=0.3)  # fmt: skip
    train(options, tmp_path / "run")
    assert "mean absolute error" in render(tmp_path / "run")


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(DataError, match="finished run"):
        render(tmp_path)
