"""A method and its schedule in one word: `s_model_conf+es+ft`.

    plan = method ["+clean"] ["+es"] ["+ft"]
    +clean   the clean batches are learnt from, too (learn_clean.py)
    +es      early stopping: the shorter schedule
    +ft      fine-tuning on the clean set afterwards

The suffixes are accepted in any order; a plan prints them in the order above.
"""

from dataclasses import dataclass

from ..errors import SettingError, unknown
from .method_table import lookup

SUFFIXES = {"clean": "learn_clean", "es": "early_stop", "ft": "fine_tune"}


@dataclass(frozen=True)
class Plan:
    """A method of the table, with or without early stopping, fine-tuning, and learning clean rows.

    >>> str(Plan("uniform", fine_tune=True))
    'uniform+ft'
    """

    method: str
    early_stop: bool = False
    fine_tune: bool = False
    learn_clean: bool = False

    def __post_init__(self) -> None:
        lookup(self.method)

    def __str__(self) -> str:
        asked = [suffix for suffix, field in SUFFIXES.items() if getattr(self, field)]
        return "+".join([self.method, *asked])


def parse(text: str) -> Plan:
    """The plan that `text` stands for.

    >>> parse("uniform+es")
    Plan(method='uniform', early_stop=True, fine_tune=False, learn_clean=False)
    """
    method, *suffixes = text.split("+")
    lookup(method)
    for i, suffix in enumerate(suffixes):
        if suffix not in SUFFIXES:
            raise unknown(f"suffix in {text!r}:", suffix, SUFFIXES)
        if suffix in suffixes[:i]:
            raise SettingError(f"+{suffix} stands twice in {text!r}; expected it once: drop one")
    return Plan(method, **{SUFFIXES[suffix]: True for suffix in suffixes})
