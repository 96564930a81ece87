"""The report of a results folder: the paper's order, honest intervals, a page that stands alone."""

import json
import re
import subprocess
import sys

import pytest

from support import pretend

pytest.importorskip("accelerate")
pytest.importorskip("jinja2")

from reweigh.errors import DataError
from reweigh.experiments import grid
from reweigh.experiments.catalog import EXPERIMENTS
from reweigh.experiments.experiment import cells, described
from reweigh.intervals import summarise
from reweigh.report.folder import write_report
from reweigh.report.tables import tables
from reweigh.results import read_results

FIGURES = {
    "mnist-imbalance": {"error-against-imbalance"},
    "cifar10-uniform": set(),
    "cifar10-background": set(),
    "weight-distribution": {"weights-random", "weights-classes"},
    "clean-size": {"accuracy-against-clean-size"},
    "noise-level": {"accuracy-against-noise"},
    "confusion": {
        f"confusion-{noise}-{method}"
        for noise in ("uniform", "background")
        for method in ("uniform", "reweigh_literal")
    },
    "curves": {"training-curves"},
    "human-noise": {
        f"{panel}-worst-{clean}{method}"
        for clean in (100, 1000)
        for panel, method in (
            ("given", ""),
            ("taken", "-uniform"),
            ("taken", "-reweigh_literal"),
            ("taken", "-reweigh"),
        )
    },
}


class Silent:
    def __getattr__(self, name):
        return lambda *_: None


def fill(out, name, *, scale="small", **choice):
    """A results folder of made-up numbers; its data sets are not needed for that."""
    chosen = EXPERIMENTS[name]
    patch = pytest.MonkeyPatch()
    with patch.context() as context:
        context.setattr(grid, "load", lambda name: None)
        about = described(chosen, scale, as_published=False)
        grid.run_grid(cells(chosen, scale, **choice), about, out=out, watcher=Silent(),
                      run=pretend.run)  # fmt: skip
    return out


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The folder and the page of every kind of experiment."""
    found = {}
    for name in FIGURES:
        folder = fill(tmp_path_factory.mktemp(name), name)
        found[name] = folder, write_report(folder).read_text()
    return found


def lines(folder):
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", FIGURES)
def test_a_page_needs_nothing_from_elsewhere(pages, name):
    _, page = pages[name]
    assert not re.search(r"https?:", page)
    assert "<script" not in page
    assert not re.search(r"url\((?!#)", page)
    assert not re.findall(r'(?:src|href)="(?!data:|#)[^"]*"', page)
    paths = re.findall(r'<clipPath id="([^"]+)"', page)
    assert len(paths) == len(set(paths))
    assert not re.search(r"#0[1-9a]0[1-9a]0[1-9a]", page)  # every stand-in colour was replaced


@pytest.mark.parametrize("name", FIGURES)
def test_the_figures_are_in_the_page_and_beside_it(pages, name):
    folder, page = pages[name]
    files = {path.name for path in (folder / "figures").iterdir()}
    assert files == {f"{n}.{form}" for n in FIGURES[name] for form in ("png", "pdf")}
    assert page.count('role="img"') == len(FIGURES[name])
    for label in re.findall(r'aria-label="([^"]*)"', page):
        assert label.strip()


def test_a_report_is_the_same_file_every_time(pages):
    folder, page = pages["mnist-imbalance"]
    before = {path.name: path.read_bytes() for path in (folder / "figures").iterdir()}
    assert write_report(folder).read_text() == page
    assert {path.name: path.read_bytes() for path in (folder / "figures").iterdir()} == before


def test_the_table_has_the_papers_order_and_numbers_beside_ours(pages):
    folder, page = pages["cifar10-background"]
    (table,) = tables(read_results(folder))
    names = [line.name for _, group in table.groups for line in group]
    assert names[:3] == ["Baseline", "Baseline +ES", "Random"]
    assert names[-3:] == ["Ours", "Ours, safeguarded", "Ours, safeguarded +FT"]
    assert [title for title, _ in table.groups] == ["", "Using 10 clean images per class"]
    values = [
        100 * x["metrics"]["test_accuracy"] for x in lines(folder) if x["method"] == "uniform"
    ]
    assert len(values) == 3
    mean = sum(values) / 3
    deviation = (sum((v - mean) ** 2 for v in values) / 2) ** 0.5
    baseline = table.groups[0][1][0].entries[0].summary
    assert baseline.mean == pytest.approx(mean)
    assert baseline.interval == pytest.approx(4.302653 * deviation / 3**0.5, rel=1e-5)
    assert f"{mean:.1f}" in page
    for number in ("59.54", "2.16", "86.73", "0.48"):
        assert number in page


def test_human_noise_has_a_second_table_of_how_well_wrong_labels_are_found(pages):
    folder, page = pages["human-noise"]
    accuracies, audits = tables(read_results(folder))
    assert accuracies.head == audits.head == ["100 clean", "1,000 clean"]
    (_, by_audit), (_, by_loss) = audits.groups
    assert "Clean Only" in [line.name for line in by_audit]
    assert "Clean Only" not in [line.name for line in by_loss]
    found = {(x["method"], x["setting"]["clean"]): x["metrics"] for x in lines(folder)}
    for group, number in ((by_audit, "audit_auroc"), (by_loss, "loss_auroc")):
        for line in group:
            shown = [entry.summary.mean for entry in line.entries]
            assert shown == pytest.approx(
                [100 * found[line.method, clean][number] for clean in (100, 1000)]
            )
    assert "AUROC" in page


def test_one_seed_has_no_interval_and_the_page_says_so(pages):
    assert summarise([0.5]).interval is None
    _, page = pages["curves"]
    assert "One seed each" in page
    assert "±" not in page
    _, mixed = pages["cifar10-background"]
    assert "Means over 1 to 3 seeds" in mixed
    assert "an entry without an interval has one seed" in mixed


def test_the_imbalance_table_is_of_errors_and_the_best_is_the_lowest(pages):
    folder, _ = pages["mnist-imbalance"]
    (table,) = tables(read_results(folder))
    assert table.head == ["90%", "95%", "98%", "99%", "99.5%"]
    column = [line.entries[4] for _, group in table.groups for line in group]
    best = [entry for entry in column if entry.best]
    assert len(best) == 1
    assert best[0].summary.mean == min(entry.summary.mean for entry in column)
    accuracy = [x["metrics"]["test_accuracy"] for x in lines(folder)
                if x["method"] == "uniform" and x["setting"]["share"] == 0.995]  # fmt: skip
    assert column[0].summary.mean == pytest.approx(100 - 100 * sum(accuracy) / len(accuracy))


def test_what_is_missing_is_a_dash_and_what_was_added_has_a_row(tmp_path):
    folder = fill(tmp_path, "cifar10-uniform", methods=["uniform", "proportion"], seeds=1)
    page = write_report(folder).read_text()
    assert "Clean Only" in page
    assert page.count("\N{EN DASH}") >= 2
    assert "<td>proportion</td>" in page


def test_a_scale_that_is_not_the_papers_says_so(pages, tmp_path):
    assert "compare the order of the methods, not the numbers" in pages["cifar10-background"][1]
    assert "a quarter of the paper" in pages["mnist-imbalance"][1]
    smoke = write_report(fill(tmp_path, "curves", scale="smoke")).read_text()
    assert "its numbers mean nothing" in smoke


def test_the_confusion_names_the_class_that_labels_were_flipped_to(pages):
    assert f"flipped to “{pretend.CLASSES[0]}”" in pages["confusion"][1]  # seed 0 has class 0


def test_failures_are_on_the_page(tmp_path):
    folder = fill(tmp_path, "curves")
    note = {"method": "s_model", "setting": {}, "seed": 0, "error": "ValueError: <no>"}
    (folder / "failures.jsonl").write_text(json.dumps(note) + "\n")
    page = write_report(folder).read_text()
    assert "ValueError: &lt;no&gt;" in page
    assert "1 cell failed" in page


def test_a_page_of_a_part_of_the_grid_says_so(tmp_path, pages):
    page = write_report(fill(tmp_path, "mnist-imbalance", only={"share": "0.995"})).read_text()
    assert "Not finished: 42 of" in page
    assert not any("Not finished" in whole for _, whole in pages.values())


def test_a_line_cut_by_a_kill_does_not_hinder_the_report(tmp_path):
    folder = fill(tmp_path, "curves")
    with (folder / "results.jsonl").open("a") as stream:
        stream.write('{"experiment": "cur')
    assert len(read_results(folder).lines) == 3


@pytest.mark.parametrize(
    ("harm", "part"),
    [
        (lambda f: (f / "experiment.json").unlink(), "there is no"),
        (lambda f: (f / "experiment.json").write_text("{}"), "cannot be read"),
        (lambda f: (f / "results.jsonl").write_text(""), "no finished cell"),
        (lambda f: (f / "results.jsonl").write_text("nonsense\n"), "line 1"),
        (lambda f: (f / "results.jsonl").write_text('{"experiment": "curves"}\n'), "lacks commit"),
        (lambda f: [p.unlink() for p in (f / "cells").iterdir()], "cannot be read"),
    ],
)
def test_a_damaged_folder_is_refused_in_words(tmp_path, harm, part):
    folder = fill(tmp_path, "curves")
    harm(folder)
    with pytest.raises(DataError, match=part):
        write_report(folder)


def test_a_line_of_another_experiment_is_refused(tmp_path):
    folder = fill(tmp_path, "curves")
    line = {**lines(folder)[0], "experiment": "confusion"}
    with (folder / "results.jsonl").open("a") as stream:
        stream.write(json.dumps(line) + "\n")
    with pytest.raises(DataError, match="do not mix"):
        write_report(folder)


def test_a_folder_gets_the_report_of_what_is_in_it(tmp_path):
    with pytest.raises(DataError, match="nothing to report on"):
        write_report(tmp_path)
    with pytest.raises(DataError, match="there is no folder"):
        write_report(tmp_path / "nowhere")
    (tmp_path / "results.json").write_text("{}")
    with pytest.raises(DataError, match="reweigh demo"):  # taken for a demo, and an incomplete one
        write_report(tmp_path)


def test_a_report_needs_no_torch(tmp_path):
    folder = fill(tmp_path, "curves")
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from pathlib import Path\n"
        "from reweigh.report.folder import write_report\n"
        f"write_report(Path({str(folder)!r}))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert (folder / "report.html").exists()
