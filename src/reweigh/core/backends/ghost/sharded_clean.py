"""The clean gradient of a sharded model from the graph of the clean pass, with factors where they pay.

One backward to the results of the layers, which gathers the parameters as every backward does, and reduces
nothing. Then either the few clean rows of all processes go round, or V does (core/clean/sharded.py). Examples
may be coupled, since only their sum is differentiated. Compared with a plain backward at the first use, and when
due.
"""

import torch
from torch import Tensor, nn

from ...clean import ShardedGradient, collected_together, factored_together
from ...model import Direction, ModelView
from ...processes import Group, units_of
from ...proof import Records
from ..sharded_proof import agreed, same_shards
from .from_graph import read


class SharedFactors:
    """The clean gradient of one model in one state."""

    def __init__(self) -> None:
        self._records: Records[bool] = Records()  # by path: whether the gradient is autograd's

    def gradient(
        self, view: ModelView, loss: Tensor, parameters: dict[str, nn.Parameter], group: Group
    ) -> ShardedGradient | None:
        """The mean over the processes of the gradient of `loss`; None, and the graph as it is, where no
        layer gains."""
        theta = list(parameters.values())
        units = units_of(view.model, theta)
        leaves = {shard.place: shard.whole for unit in units for shard in unit.aligned}
        reading = read(loss, [leaves[place] for place in range(len(theta))])
        contacts = [] if reading is None else reading.contacts
        layers = [contact.layer for contact in contacts]
        factored = factored_together(layers, theta, group)
        if not factored or reading is None:
            return None
        direction = Direction(tuple(parameters), tuple(theta), (), lambda x: group.summed(x)())
        record = self._records.get(reading.path)
        due, wrong = agreed(
            direction,
            [record is None or record.due(), record is not None and not record.value],
        )
        if wrong:
            return None
        found = torch.autograd.grad(
            loss, [c.edge for c in contacts if c.edge is not None], retain_graph=due,
            allow_unused=True,
        )  # fmt: skip
        outputs = [
            loss.new_zeros(contact.shape) if g is None else g
            for contact, g in zip(contacts, found, strict=True)
        ]
        values = collected_together(units, layers, outputs, factored, group)
        if not due:
            if record is not None:
                record.uses += 1
            return values
        right = same_shards(view, loss, values, direction)
        self._records.looked(reading.path, right)
        return values if right else None
