"""The stages in which a method, as typed, is trained.

    uniform                 uniform
    uniform+es+ft           uniform+es -> fine-tuned on the clean images
    s_model_conf+es+ft      uniform, for its confusion matrix -> s_model_conf+es -> fine-tuned

A stage is one call of `fit`. Methods share the stages they have in common.
"""

from dataclasses import dataclass, replace

from ..methods import METHODS, parse
from ..training import Config, phases

BASELINE = "uniform"


@dataclass(frozen=True)
class MethodStage:
    """One call of `fit`.

    name         a method as typed
    start        the stage whose model it goes on with; "": a new model
    pretrained   the stage whose model its method studies before it begins; "": none
    """

    name: str
    config: Config
    start: str = ""
    pretrained: str = ""

    @property
    def steps(self) -> int:
        """Optimizer steps."""
        return sum(p.schedule.steps for p in phases(self.config, pretrained=bool(self.pretrained)))


def stages(method: str, config: Config) -> list[MethodStage]:
    """The stages in their order; the last one is the method itself."""
    plan = parse(method)
    main = replace(plan, fine_tune=False)
    first = BASELINE if METHODS[plan.method].pretrains else ""
    in_order = [MethodStage(first, replace(config, method=first))] if first else []
    in_order.append(MethodStage(str(main), replace(config, method=str(main)), pretrained=first))
    if plan.fine_tune:
        tuned = replace(config, method=str(plan))
        last = phases(tuned, pretrained=True)[-1]
        alone = replace(
            config,
            method=last.method,
            steps=last.schedule.steps,
            drops=last.schedule.drops,
            optimizer=replace(config.optimizer, learning_rate=last.base_rate),
        )
        in_order.append(MethodStage(str(plan), alone, start=str(main)))
    return in_order
