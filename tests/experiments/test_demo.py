"""The demonstration: fair, repeatable, resumable; a report that stands on its own."""

import json
import re

import pytest

pytest.importorskip("sklearn")

import torch

from reweigh.errors import DataError, UnknownNameError
from reweigh.experiments import demo
from reweigh.experiments.catalog.demo import (
    BACKGROUND,
    SCALE,
    DemoSettings,
    demonstration,
    perceptron,
)
from reweigh.experiments.cell_training import train_cell
from reweigh.experiments.demo_results import summary_lines as summarise
from reweigh.experiments.experiment import cells
from reweigh.report.demo import render, write_report
from support.noisy_digits import load_digits

TINY = DemoSettings(steps=25, hidden=16)
TIMING = {"seconds"}


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """As the demo runs: more threads only get in each other's way."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo")
    demo.run_demo(out, seeds=2, settings=TINY, command="reweigh demo --seeds 2")
    write_report(out)
    return out


@pytest.fixture(scope="module")
def results(folder):
    return json.loads((folder / "results.json").read_text())


def untimed(rows):
    return [{key: value for key, value in row.items() if key not in TIMING} for row in rows]


def digits(noise="uniform", seed=0):
    return load_digits(noise=noise, rate=0.4, clean_per_class=5, seed=seed)


def cell(noise, method, seed, settings):
    grid = cells(demonstration(settings), SCALE, seeds=seed + 1, only={"noise": noise})
    return next(c for c in grid if (c.method, c.seed) == (method, seed))


def train(work, *, method, seed, settings):
    """The curve, and how often each example was seen."""
    one = cell("uniform", method, seed, settings)
    quiet = {"threads": 1, "tick": lambda steps: None}
    outcome = train_cell(one, work=work, make_model=perceptron, **quiet).outcome
    curve = [(point["step"], point["test_accuracy"]) for point in outcome.curve]
    return curve, torch.from_numpy(outcome.ledger.table()["seen"])


def test_the_results_have_a_row_for_every_noise_method_and_seed(results):
    cells = {(row["noise"], row["method"], row["seed"]) for row in results["rows"]}
    assert cells == {
        (noise, method, seed)
        for noise in ("uniform", "background")
        for method in ("uniform", "reweigh")
        for seed in (0, 1)
    }
    assert len(results["rows"]) == len(cells)
    for row in results["rows"]:
        assert 0 <= row["test_accuracy"] <= 1
        assert 0 <= row["noise_auroc"] <= 1


def test_the_clean_images_alone_are_reported_for_scale(folder, results):
    assert [row["seed"] for row in results["clean_only"]["rows"]] == [0, 1]
    page = (folder / "report.html").read_text()
    assert f"{results['clean_only']['test_accuracy']:.3f}" in page


def test_nothing_unfinished_is_left(folder):
    assert sorted(path.name for path in folder.iterdir()) == ["report.html", "results.json"]


def test_the_same_seed_gives_the_same_rows_on_any_number_of_processes(results, tmp_path):
    again = demo.run_demo(tmp_path, seeds=2, settings=TINY, jobs=2)
    assert untimed(again["rows"]) == untimed(results["rows"])


def test_an_interrupted_demo_goes_on_where_it_stopped(results, tmp_path, monkeypatch):
    assert stopped_after(3, tmp_path, monkeypatch, seeds=2, settings=TINY) == 3
    (log,) = (tmp_path / demo.UNFINISHED).glob("*/results.jsonl")
    with log.open("a") as stream:
        stream.write('{"cell": {"no')  # a line cut short
    later, run = [], demo.run_demo_cell
    monkeypatch.setattr(
        demo, "run_demo_cell", lambda cell, **k: later.append(cell) or run(cell, **k)
    )
    again = demo.run_demo(tmp_path, seeds=2, settings=TINY)
    assert len(later) == 8 + 2 - 3
    assert untimed(again["rows"]) == untimed(results["rows"])


def stopped_after(count, out, monkeypatch, **options):
    """Interrupt a demonstration when so many cells are done; the number that was run."""
    real, done = demo.run_demo_cell, []

    def interrupted(cell, **how):
        if len(done) == count:
            raise KeyboardInterrupt
        done.append(cell)
        return real(cell, **how)

    with monkeypatch.context() as patch:
        patch.setattr(demo, "run_demo_cell", interrupted)
        with pytest.raises(KeyboardInterrupt):
            demo.run_demo(out, **options)
    return len(done)


def test_runs_of_other_settings_are_not_taken_over(tmp_path, monkeypatch):
    class Told(demo.Watcher):
        def start(self, cells, finished, steps):
            self.before = len(finished)
            raise KeyboardInterrupt

    def before(settings):
        told = Told()
        with pytest.raises(KeyboardInterrupt):
            demo.run_demo(tmp_path, seeds=1, settings=settings, watcher=told)
        return told.before

    stopped_after(1, tmp_path, monkeypatch, seeds=1, settings=TINY)
    assert before(TINY) == 1
    assert before(DemoSettings()) == 0
    monkeypatch.setattr(demo, "versions_used", lambda: {"reweigh": "0"})
    assert before(TINY) == 0


def test_train_clean_and_test_images_are_disjoint_and_complete():
    data = digits()
    parts = [data.train_images, data.clean_images, data.test_images]
    assert [len(part) for part in parts[1:]] == [50, len(data.test_labels)]
    assert sum(map(len, parts)) == 1797
    assert torch.bincount(data.clean_labels).tolist() == [5] * 10
    rows = torch.cat(parts).unique(dim=0)
    assert len(rows) == 1797  # no image of the data set occurs twice, so none is in two parts


def test_exactly_the_asked_share_of_labels_is_wrong():
    uniform, background = digits("uniform"), digits("background")
    assert int(uniform.wrong.sum()) == round(0.4 * len(uniform.wrong))
    others = int((background.true_labels != BACKGROUND).sum())
    assert int(background.wrong.sum()) == round(0.4 * others)
    assert set(background.train_labels[background.wrong].tolist()) == {BACKGROUND}
    assert torch.equal(uniform.test_labels, background.test_labels)


def test_both_methods_start_alike_and_see_the_same_batches(tmp_path):
    plain, ours = (train(tmp_path, method=m, seed=3, settings=TINY) for m in ("uniform", "reweigh"))
    assert plain[0][0] == ours[0][0]
    assert torch.equal(plain[1], ours[1])
    assert plain[0][-1] != ours[0][-1]


def test_every_example_is_seen_equally_often(tmp_path):
    _, seen = train(tmp_path, method="uniform", seed=0, settings=TINY)
    assert int(seen.sum()) == TINY.steps * TINY.batch_size
    assert int(seen.max() - seen.min()) <= 1


def test_training_leaves_the_random_state_and_the_threads_alone(tmp_path):
    torch.set_num_threads(2)
    state = torch.get_rng_state()
    demo.run_demo(tmp_path, seeds=1, settings=TINY)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)


def test_an_unknown_method_or_noise_gets_a_suggestion():
    with pytest.raises(UnknownNameError, match="did you mean 'reweigh'"):
        cells(demonstration(TINY), SCALE, methods=["rewiegh"])
    with pytest.raises(UnknownNameError, match="did you mean 'background'"):
        digits("backgruond")


def test_short_training_already_exposes_labels_flipped_to_one_class(tmp_path):
    one = cell("background", "reweigh", 0, DemoSettings(steps=150))
    run = demo.run_demo_cell(one, work=tmp_path, threads=1, tick=lambda steps: None)
    assert run["metrics"]["noise_auroc"] > 0.9


def test_the_report_needs_nothing_from_elsewhere(folder):
    page = (folder / "report.html").read_text()
    assert not re.search(r"https?:", page)
    assert "<script" not in page
    assert all(
        target.startswith(("data:", "#")) for target in re.findall(r'(?:src|href)="([^"]*)"', page)
    )
    assert not re.search(r"url\((?!#)", page)


def test_the_report_gives_the_numbers(folder, results):
    page = (folder / "report.html").read_text()
    for line in results["summary"]:
        assert f"{line['test_accuracy']:.3f}" in page
        assert f"{line['test_accuracy_interval']:.3f}" in page
        assert f"{line['noise_auroc']:.3f}" in page
    assert "reweigh demo --seeds 2" in page
    assert torch.__version__ in page
    assert page.count("<svg") == 4
    assert page.count("data:image/png") == len(results["suspects"]["examples"])


def test_the_identifiers_on_the_page_are_unique(folder):
    page = (folder / "report.html").read_text()
    paths = re.findall(r'<clipPath id="([^"]+)"', page)
    assert len(paths) == len(set(paths))


def test_the_interval_is_the_students_t_one():
    rows = [
        {"noise": "uniform", "method": "uniform", "test_accuracy": value}
        | dict.fromkeys(("noise_auroc", "noise_precision"), 1.0)
        for value in (0.6, 0.7, 0.8)
    ]
    others = [dict(rows[0], noise=n, method=m) for n, m in (("uniform", "reweigh"),)]
    others += [dict(rows[0], noise="background", method=m) for m in ("uniform", "reweigh")]
    line = summarise(rows + others)[0]
    assert line["test_accuracy"] == pytest.approx(0.7)
    assert line["test_accuracy_interval"] == pytest.approx(4.3027 * 0.1 / 3**0.5, rel=1e-4)
    assert summarise(rows + others)[1]["test_accuracy_interval"] is None


def test_one_seed_is_reported_without_an_interval(tmp_path):
    results = demo.run_demo(tmp_path, seeds=1, settings=TINY)
    page = render(results)
    assert "One seed only" in page
    assert "±" not in page


@pytest.mark.parametrize("text", ["{", "[]", '{"rows": []}'])
def test_a_damaged_results_file_is_refused_in_words(tmp_path, text):
    (tmp_path / "results.json").write_text(text)
    with pytest.raises(DataError, match=r"results\.json"):
        write_report(tmp_path)


def test_a_missing_results_file_is_refused_with_the_command(tmp_path):
    with pytest.raises(DataError, match="run: reweigh demo"):
        write_report(tmp_path)
