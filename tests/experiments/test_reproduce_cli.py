"""`reweigh reproduce` and `reweigh report`: one command, one line for every bad input."""

import io
import json

import pytest

from support import pretend

pytest.importorskip("typer")
pytest.importorskip("accelerate")

from rich.console import Console

from reweigh.cli import main
from reweigh.cli.grid_progress import LiveTable
from reweigh.experiments import grid
from reweigh.experiments.catalog import EXPERIMENTS
from reweigh.experiments.experiment import cells


def call(capsys, *arguments):
    """Exit code, standard output and standard error of `reweigh arguments`."""
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    printed = capsys.readouterr()
    return stopped.value.code, printed.out, printed.err


def assert_one_line(code, out, err, *parts):
    assert code == 2
    assert out == ""
    assert err.startswith("reweigh: error: ")
    assert err.count("\n") == 1
    for part in parts:
        assert part in err


@pytest.fixture
def pretending(monkeypatch):
    """No training: cells come out at once."""
    monkeypatch.setitem(grid.run_grid.__kwdefaults__, "run", pretend.run)


def test_the_list_has_every_experiment_and_its_place_in_the_paper(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = call(capsys, "reproduce", "list")
    assert code == 0
    for name, chosen in EXPERIMENTS.items():
        assert any(line.startswith(name) and chosen.paper in line for line in out.splitlines())


def test_one_command_gives_results_and_a_report(capsys, tmp_path, pretending):
    out = tmp_path / "results"
    arguments = ["reproduce", "curves", "--scale", "smoke", "--jobs", "1", "--out", str(out)]
    code, printed, lines = call(capsys, *arguments)
    assert code == 0
    assert "report.html" in printed
    assert lines.count("test accuracy") == 3
    assert (out / "report.html").exists()
    code, _, lines = call(capsys, *arguments)
    assert code == 0
    assert "3 of 3 cells are finished" in lines
    (out / "report.html").unlink()
    assert call(capsys, "report", str(out))[0] == 0
    assert (out / "report.html").exists()


def test_methods_seeds_and_settings_can_be_chosen(capsys, tmp_path, pretending):
    code, _, _ = call(
        capsys, "reproduce", "mnist-imbalance", "--scale", "smoke", "--methods", "uniform, random",
        "--seeds", "2", "--only", "share=0.95", "--jobs", "1", "--out", str(tmp_path),
    )  # fmt: skip
    assert code == 0
    found = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert {(x["method"], x["setting"]["share"], x["seed"]) for x in found} == {
        (method, 0.95, seed) for method in ("uniform", "random") for seed in (0, 1)
    }


def test_the_threads_of_a_cell_can_be_chosen(capsys, tmp_path, monkeypatch):
    seen = []

    def noted(cell, *, work, threads, tick):
        seen.append(threads)
        return pretend.run(cell, work=work, threads=threads, tick=tick)

    monkeypatch.setitem(grid.run_grid.__kwdefaults__, "run", noted)
    options = ["--scale", "smoke", "--jobs", "1", "--threads", "3", "--out", str(tmp_path)]
    assert call(capsys, "reproduce", "curves", *options)[0] == 0
    assert set(seen) == {3}


def test_cells_of_another_folder_can_be_taken_over(capsys, tmp_path, pretending):
    table, figure = tmp_path / "table", tmp_path / "figure"
    common = ["--scale", "smoke", "--jobs", "1", "--methods", "uniform", "--out"]
    assert call(capsys, "reproduce", "cifar10-background", *common, str(table))[0] == 0
    options = [*common, str(figure), "--reuse", str(table)]
    code, _, err = call(capsys, "reproduce", "confusion", *options)
    assert code == 0
    assert "1 of 2 cells are finished" in err
    result = call(capsys, "reproduce", "confusion", *common, str(figure), "--reuse", "nowhere")
    assert_one_line(*result, "there is no nowhere")


def test_a_failed_cell_ends_in_code_1_after_the_others(capsys, tmp_path, monkeypatch):
    def fails(cell, *, work, threads, tick):
        if cell.method == "s_model":
            raise ValueError("on purpose")
        return pretend.run(cell, work=work, threads=threads, tick=tick)

    monkeypatch.setitem(grid.run_grid.__kwdefaults__, "run", fails)
    code, out, err = call(
        capsys, "reproduce", "curves", "--scale", "smoke", "--jobs", "1", "--out", str(tmp_path)
    )
    assert code == 1
    assert "FAILED: ValueError: on purpose" in err
    assert "failed: s_model" in out
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 2
    assert (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["curvs"], "did you mean 'curves'?"),
        (["curves", "--scale", "tiny"], "unknown scale 'tiny'"),
        (["curves", "--scale", "smoke", "--methods", "unifrom"], "did you mean 'uniform'?"),
        (["curves", "--scale", "smoke", "--methods", "uniform+fx"], "unknown suffix"),
        (["curves", "--scale", "smoke", "--seeds", "0"], "seeds is 0"),
        (["curves", "--scale", "smoke", "--jobs", "0"], "jobs is 0"),
        (["curves", "--scale", "smoke", "--threads", "0"], "threads is 0"),
        (["curves", "--scale", "smoke", "--only", "rate"], "expected NAME=VALUE"),
        (["curves", "--scale", "smoke", "--only", "rat=1"], "did you mean 'rate'?"),
        (["curves", "--scale", "smoke", "--as-published"], "no --as-published"),
    ],
)
def test_a_bad_option_ends_in_one_line(capsys, tmp_path, arguments, part):
    assert_one_line(*call(capsys, "reproduce", *arguments, "--out", str(tmp_path / "new")), part)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("mnist-imbalance", "mnist"),
        ("curves", "cifar10"),
        ("cifar100-uniform", "cifar100"),
        ("human-noise", "cifar10"),
    ],
)
def test_missing_data_names_the_command_that_fetches_it(capsys, tmp_path, monkeypatch, name, data):
    monkeypatch.setenv("REWEIGH_DATA", str(tmp_path / "none"))
    result = call(capsys, "reproduce", name, "--scale", "small", "--out", str(tmp_path / "new"))
    assert_one_line(*result, f"reweigh data fetch {data}")
    assert not (tmp_path / "new").exists()


def test_a_folder_of_another_experiment_ends_in_one_line(capsys, tmp_path, pretending):
    common = ["--scale", "smoke", "--jobs", "1", "--out", str(tmp_path)]
    assert call(capsys, "reproduce", "curves", *common)[0] == 0
    result = call(capsys, "reproduce", "confusion", *common)
    assert_one_line(*result, "holds other results", "choose another --out")


def test_a_folder_without_results_ends_in_one_line(capsys, tmp_path):
    assert_one_line(*call(capsys, "report", str(tmp_path)), "nothing to report on")


def test_the_live_table_shows_means_counts_and_failures():
    chosen = cells(EXPERIMENTS["mnist-imbalance"], "smoke", methods=["uniform"], seeds=2)
    table = LiveTable()
    table.start(chosen, {}, steps=100)
    first, second = (c for c in chosen if dict(c.setting)["share"] == 0.9)
    table.done(first, {"metrics": {"test_accuracy": 0.25}})
    table.failed(next(c for c in chosen if dict(c.setting)["share"] == 0.95), "no")
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(table)
    text = console.export_text()
    assert "0.250 1/2" in text
    assert "1 failed 0/2" in text
    assert "[2/4] cells" in text
    table.done(second, {"metrics": {"test_accuracy": 0.75}})
    console.print(table)
    assert "0.500" in console.export_text()
