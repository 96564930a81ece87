"""The catalog has every experiment of the paper, with the paper's own settings and numbers.

What the paper says is written here once more, by hand, from its text and tables.
"""

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("accelerate")

from reweigh.data import load, prepare
from reweigh.errors import SettingError, UnknownNameError
from reweigh.experiments.catalog import EXPERIMENTS
from reweigh.experiments.catalog import find_experiment as experiment
from reweigh.experiments.experiment import SCALES, cells, described
from reweigh.experiments.method_stages import stages
from reweigh.methods import parse

IDS = [
    "mnist-imbalance",
    "cifar10-uniform",
    "cifar100-uniform",
    "cifar10-background",
    "cifar100-background",
    "weight-distribution",
    "clean-size",
    "noise-level",
    "confusion",
    "curves",
    "human-noise",
]

CONTRACT = ("experiment", "method", "setting", "seed", "metrics", "seconds", "versions", "commit")

# Tables 1 and 2: method, CIFAR-10, CIFAR-100 (mean and half a 95% interval, in percent).
TABLE_1 = """
uniform        67.97 0.62   50.66 0.24
reed_hard      69.66 1.21   51.34 0.17
s_model        70.64 3.09   49.10 0.58
mentornet      76.6  -      56.9  -
random         86.06 0.32   58.01 0.37
clean_only     46.64 3.90    9.94 0.82
uniform+ft     78.66 0.44   54.52 0.40
mentornet+ft   78    -      59    -
random+ft      86.55 0.24   58.54 0.52
reweigh_literal 86.92 0.19  61.34 2.06
"""
TABLE_2 = """
uniform            59.54 2.16  37.82 0.69
uniform+es         64.96 1.19  39.08 0.65
random             69.51 1.36  36.56 0.44
weighted           79.17 1.36  36.56 0.44
reed_soft+es       63.47 1.05  38.44 0.90
reed_hard+es       65.22 1.06  39.03 0.55
s_model            58.60 2.33  37.02 0.34
s_model_conf       68.93 1.09  46.72 1.87
s_model_conf+es    79.24 0.56  54.50 2.51
clean_only         15.90 3.32   8.06 0.76
uniform+ft         82.82 0.93  54.23 1.75
uniform+es+ft      85.19 0.46  55.22 1.40
weighted+ft        85.98 0.47  53.99 1.62
s_model_conf+ft    81.90 0.85  53.11 1.33
s_model_conf+es+ft 85.86 0.63  55.75 1.26
reweigh_literal    86.73 0.48  59.30 0.60
"""


def test_there_are_the_ten_experiments_and_human_noise():
    assert list(EXPERIMENTS) == IDS


@pytest.mark.parametrize(
    ("name", "table", "column"),
    [
        ("cifar10-uniform", TABLE_1, 1),
        ("cifar100-uniform", TABLE_1, 3),
        ("cifar10-background", TABLE_2, 1),
        ("cifar100-background", TABLE_2, 3),
    ],
)
def test_the_targets_are_the_tables_numbers_in_their_order(name, table, column):
    rows = [line.split() for line in table.strip().splitlines()]
    expected = [
        (row[0], float(row[column]), None if row[column + 1] == "-" else float(row[column + 1]))
        for row in rows
    ]
    chosen = EXPERIMENTS[name]
    assert [(t.method, t.mean, t.interval) for t in chosen.targets] == expected
    assert [row.method for row in chosen.rows][: len(rows)] == [row[0] for row in rows]
    assert {cell.method for cell in cells(chosen, "paper")} >= {row[0] for row in rows}


def paper(name):
    """Every setup of an experiment at the paper's scale, and its cells."""
    grid = cells(EXPERIMENTS[name], "paper")
    return grid[0].setup, grid


def test_mnist_is_as_the_paper_has_it():
    setup, grid = paper("mnist-imbalance")
    recipe, config = setup.recipe, setup.config
    assert (recipe.dataset, recipe.keep, recipe.majority, recipe.size) == ("mnist", (4, 9), 9, 5000)
    assert (recipe.clean_per_class, recipe.clean_in_train) == (5, False)
    assert setup.model == "lenet"
    assert (config.steps, config.drops, config.batch.size) == (8000, (), 100)
    assert config.batch.clean_size == 10
    assert (config.optimizer.name, config.optimizer.learning_rate) == ("sgd", 1e-3)
    assert sorted({dict(c.setting)["share"] for c in grid}) == [0.9, 0.95, 0.98, 0.99, 0.995]
    assert {c.seed for c in grid} == set(range(10))
    assert {c.method for c in grid} >= {
        "uniform", "proportion", "resample", "hard_mining", "random", "reweigh_literal",
    }  # fmt: skip


@pytest.mark.parametrize("data", ["cifar10", "cifar100"])
def test_cifar_with_background_flips_is_as_the_paper_has_it(data):
    setup, grid = paper(f"{data}-background")
    recipe, config = setup.recipe, setup.config
    assert (recipe.dataset, recipe.corruption, recipe.rate) == (data, "background_flip", 0.4)
    assert (recipe.clean_per_class, recipe.hyper_validation, recipe.size) == (10, 5000, 0)
    assert setup.model == "resnet32"
    assert (config.batch.size, config.batch.clean_size) == (100, 100)
    assert (config.optimizer.learning_rate, config.optimizer.momentum) == (0.1, 0.9)
    assert (config.steps, config.drops) == (80_000, ((40_000, 0.1), (60_000, 0.1)))
    assert config.early_stop.steps == 60_000
    assert config.early_stop.drops == ((40_000, 0.1), (50_000, 0.1))
    assert config.fine_tune.steps == 5000
    classes = {"cifar10": [0, 1, 3, 5, 7], "cifar100": [7, 12, 41, 62, 85]}[data]
    found = {c.seed: c.setup.recipe.background for c in grid}
    assert [found[seed] for seed in range(5)] == classes
    assert len(found) == 5


@pytest.mark.parametrize("data", ["cifar10", "cifar100"])
def test_cifar_with_uniform_flips_is_as_the_paper_has_it(data):
    setup, grid = paper(f"{data}-uniform")
    recipe, config = setup.recipe, setup.config
    assert (recipe.dataset, recipe.corruption, recipe.rate) == (data, "uniform_flip", 0.4)
    assert (recipe.clean, recipe.clean_per_class, recipe.hyper_validation) == (1000, 0, 5000)
    assert setup.model == "wrn28-10"
    assert (config.batch.size, config.batch.clean_size) == (100, 100)
    assert (config.optimizer.learning_rate, config.optimizer.momentum) == (0.1, 0.9)
    assert (config.steps, config.drops) == (60_000, ((40_000, 0.1), (50_000, 0.1)))
    assert config.fine_tune.steps == 5000
    assert {c.seed for c in grid} == set(range(5))


def test_the_weights_are_measured_at_half_of_training_before_the_rate_falls():
    setup, grid = paper("weight-distribution")
    assert (setup.config.steps, setup.config.drops) == (40_000, ())
    assert setup.recipe.corruption == "background_flip"
    assert (setup.model, setup.measure) == ("resnet32", "weights")
    assert {c.method for c in grid} == {"reweigh_literal"}


def test_the_number_of_clean_images_varies_with_flips_to_class_3():
    _, grid = paper("clean-size")
    assert {c.setup.recipe.background for c in grid} == {3}
    assert {c.setup.model for c in grid} == {"resnet32"}
    sizes = {c.setup.recipe.clean for c in grid}
    assert {15, 100, 1000} <= sizes
    assert max(sizes) > 1000
    for cell in grid:
        assert cell.setup.recipe.clean == dict(cell.setting)["clean"]
        assert cell.setup.recipe.clean_per_class == 0
        assert cell.setup.config.batch.clean_size == min(100, cell.setup.recipe.clean)
    assert {"reweigh_literal", "uniform+ft", "uniform+es+ft"} <= {c.method for c in grid}


def test_the_noise_varies_from_none_to_a_half():
    _, grid = paper("noise-level")
    rates = sorted({c.setup.recipe.rate for c in grid})
    assert (rates[0], rates[-1]) == (0.0, 0.5)
    assert {c.setup.recipe.corruption for c in grid} == {"background_flip"}
    assert {"uniform", "uniform+es", "uniform+ft", "reweigh_literal"} <= {c.method for c in grid}


def test_confusion_and_curves_are_of_the_tables_setups():
    _, confusion = paper("confusion")
    assert {(c.setup.recipe.corruption, c.setup.model) for c in confusion} == {
        ("uniform_flip", "wrn28-10"),
        ("background_flip", "resnet32"),
    }
    assert {c.method for c in confusion} == {"uniform", "reweigh_literal"}
    setup, curves = paper("curves")
    assert (setup.recipe.corruption, setup.model) == ("background_flip", "resnet32")
    assert [c.method for c in curves] == ["uniform", "s_model", "reweigh_literal"]
    assert setup.config.evaluate_every <= 2000


def test_as_published_has_the_published_codes_ways():
    grid = cells(EXPERIMENTS["mnist-imbalance"], "paper", as_published=True)
    ours = [c for c in grid if c.method == "reweigh_literal"]
    others = [c for c in grid if c.method == "proportion"]
    assert {(c.setup.config.steps, c.setup.recipe.clean_in_train) for c in ours} == {(4000, False)}
    assert {(c.setup.config.steps, c.setup.recipe.clean_in_train) for c in others} == {(8000, True)}
    assert {(c.setup.recipe.skip, c.setup.recipe.test_per_class) for c in grid} == {(5000, 250)}
    setup = cells(EXPERIMENTS["cifar10-uniform"], "paper", as_published=True)[0].setup
    assert (setup.as_published, setup.scaling, setup.recipe.variant) == (
        True, "symmetric", "published_code",
    )  # fmt: skip
    assert setup.config.batch.augmentation.pad == 2
    assert setup.config.optimizer.weight_decay == 2e-4
    with pytest.raises(SettingError, match="no --as-published"):
        cells(EXPERIMENTS["curves"], "paper", as_published=True)


@pytest.mark.parametrize("name", IDS)
def test_every_scale_is_complete_and_its_methods_are_known(name):
    chosen = EXPERIMENTS[name]
    assert tuple(chosen.blocks) == SCALES
    for scale in SCALES:
        grid = cells(chosen, scale)
        assert len({cell.key for cell in grid}) == len(grid)
        for cell in grid:
            assert str(parse(cell.method)) == cell.method
            assert stages(cell.method, cell.setup.config)[-1].name == cell.method
        assert {c.method for c in grid} == {c.method for c in cells(chosen, "paper")}
        json.dumps(described(chosen, scale, as_published=False))


@pytest.mark.parametrize("name", IDS)
def test_smoke_needs_no_download_and_its_data_can_be_cut_as_asked(name):
    for cell in cells(EXPERIMENTS[name], "smoke"):
        assert cell.setup.recipe.dataset == "digits"
    task = prepare(load("digits"), cell.setup.recipe, seed=cell.seed)
    assert len(task.train) > cell.setup.config.batch.size


def test_a_small_cifar_has_the_papers_schedule_in_small():
    setup = cells(EXPERIMENTS["cifar10-background"], "small")[0].setup
    whole = cells(EXPERIMENTS["cifar10-background"], "paper")[0].setup
    share = setup.config.steps / whole.config.steps
    assert setup.config.early_stop.steps == share * whole.config.early_stop.steps
    assert [at for at, _ in setup.config.drops] == [share * at for at, _ in whole.config.drops]
    assert setup.config.fine_tune.steps == share * whole.config.fine_tune.steps
    assert setup.config.optimizer == whole.config.optimizer


@pytest.mark.parametrize("name", ["cifar10-background", "cifar10-uniform", "cifar100-background"])
def test_a_medium_cifar_has_the_papers_schedule_batches_and_clean_images(name):
    setup = cells(EXPERIMENTS[name], "medium")[0].setup
    whole = cells(EXPERIMENTS[name], "paper")[0].setup
    resnet = cells(EXPERIMENTS["cifar10-background"], "paper")[0].setup.config
    share = setup.config.steps / resnet.steps
    assert setup.config.early_stop.steps == share * resnet.early_stop.steps
    assert [at for at, _ in setup.config.drops] == [share * at for at, _ in resnet.drops]
    assert abs(setup.config.fine_tune.steps - share * resnet.fine_tune.steps) <= 0.5  # rounded
    assert setup.config.optimizer == whole.config.optimizer
    assert (setup.config.batch.size, setup.config.batch.clean_size) == (100, 100)
    assert (setup.recipe.clean, setup.recipe.clean_per_class) == (
        whole.recipe.clean, whole.recipe.clean_per_class,
    )  # fmt: skip
    assert setup.backgrounds == whole.backgrounds


@pytest.mark.parametrize("noise", ["uniform", "background"])
def test_a_part_of_cifar100_is_never_taken_for_the_whole(noise):
    chosen = EXPERIMENTS[f"cifar100-{noise}"]
    assert {c.setup.recipe.dataset for c in cells(chosen, "medium")} == {"cifar100-subset"}
    assert {c.setup.recipe.dataset for c in cells(chosen, "paper")} == {"cifar100"}
    assert "SUBSET" in described(chosen, "medium", as_published=False)["note"]
    assert "SUBSET" not in EXPERIMENTS[f"cifar10-{noise}"].notes["medium"]


def test_mnist_medium_is_the_papers_setting_at_two_shares():
    medium = cells(EXPERIMENTS["mnist-imbalance"], "medium")
    whole = {c.setting: c.setup for c in cells(EXPERIMENTS["mnist-imbalance"], "paper")}
    assert all(cell.setup == whole[cell.setting] for cell in medium)
    seeds = {m: {c.seed for c in medium if c.method == m} for m in ("uniform", "reweigh_literal")}
    assert seeds == {"uniform": set(range(5)), "reweigh_literal": set(range(10))}


def test_human_noise_has_labels_that_people_gave_and_two_sizes_of_the_clean_set():
    grid = cells(EXPERIMENTS["human-noise"], "medium")
    assert {c.setup.recipe.dataset for c in grid} == {"cifar10n"}
    found = {(c.setup.recipe.corruption, c.setup.recipe.clean) for c in grid}
    kinds = ("human_worst", "human_random1", "human_aggregate")
    assert found == {(kind, count) for kind in kinds for count in (100, 1000)}
    assert all(c.setup.measure == "audit" and not c.setup.backgrounds for c in grid)


def test_mnist_small_differs_from_the_paper_in_steps_and_seeds_alone():
    small = cells(EXPERIMENTS["mnist-imbalance"], "small")
    whole = {c.setting: c.setup for c in cells(EXPERIMENTS["mnist-imbalance"], "paper")}
    for cell in small:
        mine, theirs = cell.setup.described(), whole[cell.setting].described()
        for name in ("steps", "evaluate_every"):
            del mine["config"][name], theirs["config"][name]
        assert mine == theirs


def test_the_page_about_reproducing_names_every_experiment_and_scale():
    page = (Path(__file__).parents[2] / "docs" / "reproduce.md").read_text(encoding="utf-8")
    for name in [*IDS, *SCALES, "--as-published", *CONTRACT]:
        assert name in page
    counts = re.findall(r"`reweigh reproduce (\S+) --scale medium[^`]*` \| (\d+) \|", page)
    assert sorted(counts) == sorted(
        (name, str(len(cells(chosen, "medium")))) for name, chosen in EXPERIMENTS.items()
    )
    published = {name for name, chosen in EXPERIMENTS.items() if chosen.published}
    assert published == {*IDS[:5], "weight-distribution"}


def test_a_mistyped_name_gets_a_suggestion():
    with pytest.raises(UnknownNameError, match="did you mean 'mnist-imbalance'"):
        experiment("mnist-inbalance")
    chosen = EXPERIMENTS["mnist-imbalance"]
    with pytest.raises(UnknownNameError, match="did you mean 'small'"):
        cells(chosen, "smal")
    with pytest.raises(UnknownNameError, match="did you mean 'proportion'"):
        cells(chosen, "smoke", methods=["proportoin"])
    with pytest.raises(UnknownNameError, match="did you mean 'share'"):
        cells(chosen, "smoke", only={"shar": "0.9"})
    with pytest.raises(UnknownNameError, match=r"known: 0\.9, 0\.95"):
        cells(chosen, "smoke", only={"share": "1"})


def test_the_results_in_the_repository_can_be_gone_on_with():
    kept = sorted((Path(__file__).parents[2] / "results").glob("*/experiment.json"))
    assert kept
    for path in kept:
        theirs = json.loads(path.read_text(encoding="utf-8"))
        chosen, published = EXPERIMENTS[theirs["experiment"]], theirs["as_published"]
        ours = described(chosen, theirs["scale"], as_published=published)
        assert ours["digest"] == theirs["digest"], path
