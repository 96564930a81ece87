"""`reweigh.load(run)` in a notebook: its figures, candidates and suspects, and nothing that runs."""

from __future__ import annotations

from html.parser import HTMLParser

import pandas as pd

import reweigh
from reweigh.app import Options, network_candidates, train
from support.own_data import images, table

EVIL = '<script>alert("1")</script>'
VOID = {"img", "path", "polyline"}


class Page(HTMLParser):
    """Checks that tags are closed; collects their names and the text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.text = [], set(), ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert tag in VOID or self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_it_shows_metrics_candidates_and_suspects(tmp_path, monkeypatch):
    monkeypatch.setattr(network_candidates, "FINE_TUNE_STEPS", 3)
    for name, (frame, _) in {"rows": table(80, 0, noise=0.4), "checked": table(20, 1)}.items():
        evil = frame.assign(town=frame["town"] + EVIL).replace({"label": {"cat": EVIL}})
        evil.to_csv(tmp_path / f"{name}.csv", index=False)
    options = Options(data=tmp_path / "rows.csv", clean=tmp_path / "checked.csv", target="label",
                      quick=True, steps=5, hidden=4, threads=1)  # fmt: skip
    train(options, tmp_path / "run<b>")
    predictor = reweigh.load(tmp_path / "run<b>")
    page = Page(predictor._repr_html_())
    assert page.tags <= {"div", "style", "h4", "p", "b", "table", "tr", "th", "td", "span", "svg", "path", "polyline"}  # fmt: skip
    summary = predictor.run.summary()
    assert f"{summary.figure:.3g}" in page.text
    assert "run<b>" in page.text
    for each in summary.candidates:
        assert each.title in page.text
    for suspect in predictor.run.first_suspects(6):
        assert str(suspect.index) in page.text
        assert suspect.given_label in page.text
    assert f"accuracy {summary.figure:.3g}" in repr(predictor)


def test_images_are_small_copies_and_a_damaged_run_shows_its_name(tmp_path):
    images(tmp_path / "photos", 20, 0)
    images(tmp_path / "checked", 8, 1)
    options = Options(data=tmp_path / "photos", clean=tmp_path / "checked", method="reweigh",
                      steps=2, image_size=8, threads=1)  # fmt: skip
    train(options, tmp_path / "run")
    predictor = reweigh.load(tmp_path / "run")
    html = predictor._repr_html_()
    Page(html)
    assert html.count('src="data:image/png;base64,') == 6
    assert "nothing was kept for judging" in html
    (tmp_path / "run" / "suspects.parquet").write_bytes(b"damaged")
    assert predictor._repr_html_() is None
    (tmp_path / "run" / "summary.json").write_text("{")
    assert "damaged" in repr(predictor)


def test_a_number_to_predict(tmp_path):
    for name, seed in (("rows", 0), ("checked", 1)):
        table(40, seed)[0].to_csv(tmp_path / f"{name}.csv", index=False)
    options = Options(data=tmp_path / "rows.csv", clean=tmp_path / "checked.csv", target="length",
                      holdout=0.3, quick=True, steps=4, hidden=4, threads=1)  # fmt: skip
    train(options, tmp_path / "run")
    page = Page(reweigh.load(tmp_path / "run")._repr_html_())
    assert "mean absolute error" in page.text
    assert "a number to predict" in page.text
    assert "error, root mean square" in page.text
    assert "0.0%" not in page.text
    assert pd.read_parquet(tmp_path / "run" / "audit.parquet")["index"].iloc[0] >= 0
