"""What decides a cell besides its method and its seed: data, network, schedule.

    setup.at({"share": 0.98})      the same with the experiment's own variable set
    setup.seeded(3)                the same with what the paper changes from seed to seed

A setup is data: it can be compared, printed as JSON, and is kept with the results.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

from ..data import HUMAN, Recipe
from ..errors import unknown
from ..training import Config

Value: TypeAlias = str | int | float
Setting: TypeAlias = Mapping[str, Value]


@dataclass(frozen=True)
class Setup:
    """One problem and how to train on it; `config`'s method and seed are the cell's own.

    scaling        "unit", "symmetric", or "standard": mean 0 and variance 1 over the train images
    backgrounds    the background class of seed 0, 1, ..., cycled; empty: the recipe's own
    as_published   the published code's network details and data rules instead of the paper's text
    measure        "weights": weigh hyper-validation batches with the trained model;
                   "audit": how well the run tells wrong train labels from right ones
    """

    recipe: Recipe
    model: str
    config: Config
    scaling: str = "unit"
    backgrounds: tuple[int, ...] = ()
    as_published: bool = False
    measure: str = ""

    def at(self, setting: Setting) -> Setup:
        """The setup for one setting of the experiment's variables."""
        recipe, config = self.recipe, self.config
        for name, value in setting.items():
            if name in ("share", "rate"):
                recipe = replace(recipe, **{name: float(value)})  # type: ignore[arg-type]
            elif name == "noise":
                recipe = replace(recipe, corruption=f"{value}_flip")
            elif name == "labels":
                recipe = replace(recipe, corruption=f"{HUMAN}{value}")
            elif name == "clean":
                count = int(value)
                recipe = replace(recipe, clean=count, clean_per_class=0, clean_even=True)
                # A clean batch larger than the clean set would only repeat it.
                size = min(config.batch.clean_size, count)
                config = replace(config, batch=replace(config.batch, clean_size=size))
            else:
                raise unknown("variable", name, ("share", "noise", "rate", "labels", "clean"))
        return replace(self, recipe=recipe, config=config)

    def changed(self, **config: Any) -> Setup:
        """The setup with other fields of its config."""
        return replace(self, config=replace(self.config, **config))

    def seeded(self, seed: int) -> Setup:
        """The setup of one seed: its background class."""
        if not self.backgrounds:
            return self
        background = self.backgrounds[seed % len(self.backgrounds)]
        return replace(self, recipe=replace(self.recipe, background=background))

    def described(self) -> dict[str, Any]:
        """Everything that decides the outcome, as JSON; what only decides speed is left out."""
        setup: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        for name in ("method", "seed", "device", "threads", "trackers", "checkpoint_every", "keep"):
            del setup["config"][name]
        for name in ("average", "patience"):  # as in results from before there was a choice
            if setup["config"][name] is None:
                del setup["config"][name]
        return setup


def digest(value: object) -> str:
    """Twelve hex digits that stand for a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]
