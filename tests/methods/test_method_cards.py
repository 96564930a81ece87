"""Every method has a card that agrees with the table, and the index is the table.

python tests/methods/test_method_cards.py      rewrites the index after a change
"""

import inspect
import json
import re
from pathlib import Path

import pytest

from reweigh.methods import METHODS
from reweigh.methods.requirements import EXPECTED

CARDS = Path(__file__).parents[2] / "docs" / "methods"
COSTS = CARDS.parents[1] / "results" / "methods" / "cost.json"
INDEX = CARDS / "README.md"
MARKS = "<!-- table -->\n", "<!-- /table -->"


def table():
    lines = ["| method | what | cost | needs |", "|---|---|---|---|"]
    for name, entry in METHODS.items():
        needs = ", ".join(f"`{need}`" for need in entry.needs)
        lines.append(f"| [`{name}`]({name}.md) | {entry.summary} | {entry.cost} | {needs} |")
    return "\n".join(lines) + "\n"


def updated(text):
    before, rest = text.split(MARKS[0])
    return before + MARKS[0] + table() + MARKS[1] + rest.split(MARKS[1])[1]


def test_the_index_is_the_table():
    text = INDEX.read_text(encoding="utf-8")
    assert text == updated(text), "python tests/methods/test_method_cards.py rewrites it"


def test_the_index_says_what_every_need_is():
    text = INDEX.read_text(encoding="utf-8")
    assert set(re.findall(r"^- `(\w+)`:", text, flags=re.MULTILINE)) == set(EXPECTED)


def test_the_loop_on_the_index_runs():
    (code,) = re.findall(r"```python\n(.*?)```", INDEX.read_text(encoding="utf-8"), flags=re.DOTALL)
    exec(compile(code, str(INDEX), "exec"), {})


def test_there_is_no_card_without_a_method():
    assert {path.stem for path in CARDS.glob("*.md")} - {"README"} == set(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_a_card_agrees_with_its_row(name):
    entry = METHODS[name]
    card = (CARDS / f"{name}.md").read_text(encoding="utf-8")
    title, _, summary, _, formula = card.splitlines()[:5]
    assert (title, summary, formula) == (f"# {name}", entry.summary, "```text")
    facts = dict(re.findall(r"^- \*\*(\w+):\*\* (.+)$", card, flags=re.MULTILINE))
    assert list(facts) == ["When", "Cost", "Needs", "Options", "Reference"]
    assert facts["Cost"] == f"{entry.cost} (plain step = 1)"
    assert facts["Needs"] == (", ".join(f"`{need}`" for need in entry.needs) or "nothing")
    options = list(inspect.signature(entry.make).parameters.values())[1:]
    assert facts["Options"] == (", ".join(f"`{p.name}={p.default!r}`" for p in options) or "none")


@pytest.mark.parametrize("name", METHODS)
def test_a_stated_cost_is_the_one_measured(name):
    measured = [costs[name] for costs in json.loads(COSTS.read_text())["plain_steps"].values()]
    stated = [float(number) for number in re.findall(r"[\d.]+", METHODS[name].cost)]
    assert min(stated) - 0.25 <= min(measured)
    assert max(measured) <= max(stated) + 0.25


@pytest.mark.parametrize("name", METHODS)
def test_a_row_is_a_factory_with_keyword_options_and_a_reason_to_be(name):
    entry = METHODS[name]
    problem, *options = inspect.signature(entry.make).parameters.values()
    assert problem.name == "problem"
    assert all(option.kind is option.KEYWORD_ONLY for option in options)
    assert entry.make.__doc__
    assert entry.summary.endswith(".")


if __name__ == "__main__":
    INDEX.write_text(updated(INDEX.read_text(encoding="utf-8")), encoding="utf-8")
