"""The runner: every cell once, kept at once, never mixed; a failure stops nobody."""

import json
import multiprocessing

import pytest

from support import pretend

pytest.importorskip("accelerate")

from reweigh.errors import DataError, SettingError
from reweigh.experiments.catalog import EXPERIMENTS
from reweigh.experiments.experiment import cells, described
from reweigh.experiments.grid import run_grid
from reweigh.experiments.results_folder import FAILURES, LINES, alone

CHOSEN = EXPERIMENTS["mnist-imbalance"]
GRID = cells(CHOSEN, "smoke")
ABOUT = described(CHOSEN, "smoke", as_published=False)
CONTRACT = {"experiment", "method", "setting", "seed", "metrics", "seconds", "versions", "commit"}


class Told:
    """A watcher that remembers."""

    def __init__(self):
        self.steps, self.finished, self.broken, self.ticked = 0, [], [], 0

    def start(self, cells, finished, steps):
        self.before, self.steps = dict(finished), steps

    def tick(self, steps):
        self.ticked += steps

    def done(self, cell, line):
        self.finished.append(cell.key)

    def failed(self, cell, error):
        self.broken.append((cell.key, error))


def go(out, grid=GRID, *, about=ABOUT, run=pretend.run, jobs=1):
    told = Told()
    failed = run_grid(grid, about, out=out, watcher=told, run=run, jobs=jobs)
    return told, failed


def lines(out):
    return [json.loads(line) for line in (out / LINES).read_text().splitlines()]


def fails_for_random(cell, *, work, threads, tick):
    if cell.method == "random":
        raise ZeroDivisionError("on purpose\nin two lines")
    return pretend.run(cell, work=work, threads=threads, tick=tick)


def test_every_cell_becomes_a_line_of_the_contract(tmp_path):
    told, failed = go(tmp_path)
    found = lines(tmp_path)
    assert failed == []
    assert {(x["method"], x["setting"]["share"], x["seed"]) for x in found} == {
        (c.method, dict(c.setting)["share"], c.seed) for c in GRID
    }
    assert len(found) == len(GRID) == len(told.finished)
    for line in found:
        assert line.keys() >= CONTRACT
        assert line["experiment"] == "mnist-imbalance"
        assert 0 <= line["metrics"]["test_accuracy"] <= 1
        assert line["versions"].keys() >= {"reweigh", "torch", "python"}
        assert (tmp_path / line["details"]).exists()
    assert told.ticked == told.steps > 0


def test_two_processes_give_the_same_lines(tmp_path):
    grid = GRID[:4]
    go(tmp_path / "one", grid)
    go(tmp_path / "two", grid, jobs=2)
    ordered = [
        sorted(json.dumps(line, sort_keys=True) for line in lines(tmp_path / name))
        for name in ("one", "two")
    ]
    assert ordered[0] == ordered[1]


def test_the_same_call_goes_on_where_it_stopped(tmp_path):
    def stops(cell, *, work, threads, tick):
        if len(seen) == 3:
            raise KeyboardInterrupt
        seen.append(cell.key)
        return pretend.run(cell, work=work, threads=threads, tick=tick)

    seen = []
    with pytest.raises(KeyboardInterrupt):
        go(tmp_path, run=stops)
    first = (tmp_path / LINES).read_text()
    told, _ = go(tmp_path)
    assert len(told.before) == 3
    assert len(told.finished) == len(GRID) - 3
    assert (tmp_path / LINES).read_text().startswith(first)
    again, _ = go(tmp_path)
    assert again.finished == []


@pytest.mark.parametrize("cut", [1, 40, -1])
def test_a_line_cut_by_a_kill_is_mended_and_its_cell_run_again(tmp_path, cut):
    go(tmp_path, GRID[:3])
    content = (tmp_path / LINES).read_bytes()
    start = content[:-1].rfind(b"\n") + 1
    end = start + cut if cut > 0 else len(content) - 1
    (tmp_path / LINES).write_bytes(content[:end])
    told, _ = go(tmp_path, GRID[:3])
    assert len(told.finished) == 1
    assert (tmp_path / LINES).read_bytes() == content


def test_a_damaged_line_inside_is_named(tmp_path):
    go(tmp_path, GRID[:2])
    path = tmp_path / LINES
    path.write_text("nonsense\n" + path.read_text())
    with pytest.raises(DataError, match="line 1"):
        go(tmp_path, GRID[:2])


def test_a_failure_is_noted_apart_and_stops_nobody(tmp_path):
    told, failed = go(tmp_path, run=fails_for_random)
    assert [cell.method for cell in failed] == ["random"] * 2
    assert {line["method"] for line in lines(tmp_path)} == {c.method for c in GRID} - {"random"}
    notes = [json.loads(x) for x in (tmp_path / FAILURES).read_text().splitlines()]
    assert [note["error"] for note in notes] == ["ZeroDivisionError: on purpose in two lines"] * 2
    assert "fails_for_random" in notes[0]["traceback"]
    assert len(told.broken) == 2


def test_what_failed_is_tried_again_and_forgotten_when_it_works(tmp_path):
    go(tmp_path, run=fails_for_random)
    told, failed = go(tmp_path)
    assert failed == []
    assert all(key.startswith("random ") for key in told.finished)
    assert len(told.finished) == 2
    assert not (tmp_path / FAILURES).exists()


def test_a_failure_of_a_part_that_is_not_run_again_is_kept(tmp_path):
    go(tmp_path, run=fails_for_random)
    go(tmp_path, [c for c in GRID if dict(c.setting)["share"] == 0.9])
    notes = [json.loads(x) for x in (tmp_path / FAILURES).read_text().splitlines()]
    assert [note["setting"] for note in notes] == [{"share": 0.95}]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"experiment": "curves"}, "experiment"),
        ({"scale": "paper"}, "scale"),
        ({"digest": "0" * 12}, "digest"),
        ({"as_published": True}, "as_published"),
    ],
)
def test_results_of_something_else_are_refused(tmp_path, change, named):
    go(tmp_path, GRID[:1])
    before = (tmp_path / LINES).read_bytes()
    with pytest.raises(SettingError, match=named):
        go(tmp_path, GRID[:2], about={**ABOUT, **change})
    assert (tmp_path / LINES).read_bytes() == before


def test_results_of_another_version_are_refused(tmp_path, monkeypatch):
    go(tmp_path, GRID[:1])
    monkeypatch.setattr("reweigh.experiments.results_folder.__version__", "99")
    with pytest.raises(SettingError, match="99"):
        go(tmp_path, GRID[:2])


def test_better_words_for_the_report_are_taken_over(tmp_path):
    go(tmp_path, GRID[:1])
    go(tmp_path, GRID[:1], about={**ABOUT, "title": "new"})
    assert json.loads((tmp_path / "experiment.json").read_text())["title"] == "new"


def test_lines_without_an_experiment_are_not_taken_over(tmp_path):
    (tmp_path / LINES).write_text("{}\n")
    with pytest.raises(DataError, match=r"no experiment\.json"):
        go(tmp_path)


def _hold(folder, ready, leave):
    with alone(folder):
        ready.set()
        leave.wait(60)


def test_two_runners_do_not_share_a_folder(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready, leave = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(tmp_path, ready, leave))
    other.start()
    assert ready.wait(60)
    with pytest.raises(SettingError, match="another process"):
        go(tmp_path)
    leave.set()
    other.join()
    go(tmp_path, GRID[:1])


def test_the_choice_of_cells_is_by_seed_method_and_setting():
    assert {c.seed for c in cells(CHOSEN, "smoke", seeds=3)} == {0, 1, 2}
    chosen = cells(CHOSEN, "smoke", methods=["uniform", "uniform+ft"], only={"share": "0.95"})
    assert [(c.method, c.setting) for c in chosen] == [
        ("uniform", (("share", 0.95),)),
        ("uniform+ft", (("share", 0.95),)),
    ]
    seeds = {c.setting: set() for c in cells(CHOSEN, "small")}
    for cell in cells(CHOSEN, "small"):
        seeds[cell.setting].add(cell.seed)
    assert {dict(k)["share"]: len(v) for k, v in seeds.items()} == {
        0.9: 1, 0.95: 1, 0.98: 3, 0.99: 1, 0.995: 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "part"), [({"jobs": 0}, "jobs is 0"), ({"grid": []}, "no cell")]
)
def test_an_impossible_call_is_refused(tmp_path, options, part):
    with pytest.raises(SettingError, match=part):
        go(tmp_path, **options)


def test_what_is_not_finished_is_cleared_away_only_at_the_end(tmp_path):
    go(tmp_path, run=fails_for_random)
    assert (tmp_path / ".work").exists()
    go(tmp_path)
    assert not (tmp_path / ".work").exists()


def confusion_after(tables, out):
    """Figure 6, beside folders of the tables that share cells with it."""
    chosen = EXPERIMENTS["confusion"]
    about = described(chosen, "smoke", as_published=False)
    ran = []

    def noted(cell, *, work, threads, tick):
        ran.append(cell.key)
        return pretend.run(cell, work=work, threads=threads, tick=tick)

    run_grid(cells(chosen, "smoke"), about, out=out, watcher=Told(), run=noted, reuse=tables)
    return ran


def test_a_cell_that_another_experiment_has_run_is_taken_over(tmp_path):
    chosen = EXPERIMENTS["cifar10-background"]
    about = described(chosen, "smoke", as_published=False)
    table = tmp_path / "table"
    go(table, cells(chosen, "smoke", methods=["uniform", "random"]), about=about)
    ran = confusion_after([table], tmp_path / "figure")
    background = "noise=background rate=0.4 seed=0"
    assert f"uniform {background}" not in ran
    assert f"reweigh_literal {background}" in ran
    (taken,) = (x for x in lines(tmp_path / "figure") if "taken_from" in x)
    (there,) = (x for x in lines(table) if x["method"] == "uniform")
    assert taken["experiment"] == "confusion"
    assert taken["taken_from"] == "cifar10-background"
    for name in ("method", "setting", "seed", "metrics", "seconds", "versions", "commit"):
        assert taken[name] == there[name]
    details = [(folder / line["details"]).read_bytes() for folder, line in (
        (tmp_path / "figure", taken), (table, there),
    )]  # fmt: skip
    assert details[0] == details[1]
    # The same command again finds it there.
    assert confusion_after([table], tmp_path / "figure") == []


@pytest.mark.parametrize("change", ["setups", "version", "setting"])
def test_a_cell_of_another_setup_is_not_taken_over(tmp_path, change):
    chosen = EXPERIMENTS["cifar10-background"]
    about = described(chosen, "smoke", as_published=False)
    table = tmp_path / "table"
    go(table, cells(chosen, "smoke", methods=["uniform"]), about=about)
    path = table / "experiment.json"
    kept = json.loads(path.read_text())
    if change == "setups":
        kept["setups"][0]["config"]["steps"] += 1
    elif change == "version":
        kept["version"] = "0.0.1"
    else:
        kept["setups"][0]["setting"]["rate"] = 0.3
    path.write_text(json.dumps(kept))
    ran = confusion_after([table], tmp_path / "figure")
    assert "uniform noise=background rate=0.4 seed=0" in ran
