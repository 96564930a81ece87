"""What a method is: four hooks, each with a default that makes it plain training.

    sample    which examples a step trains on          default: the train part, shuffled
    wrap      the network that is trained              default: the model itself
    losses    one value per example                    default: the problem's criterion
    weigh     what each of them counts                 default: 1/n

A factory in its own file takes the `Problem` (all that may be known before training) and returns a
`Method`. What a method remembers from step to step stands in `state`, by name, so that a run can be
saved in the middle and go on as if it had never stopped. The loop (training/trainer.py) does the rest:

    pair -> weighed = method.weigh(view, method.losses) -> weighed.loss.backward() -> optimizer
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..core import Batch, Loss, group_of
from ..rng import hashed_seed

Criterion = Callable[[Tensor, Tensor], Tensor]
"""`criterion(outputs, targets) -> Tensor[n]`, one value per example."""


@dataclass(frozen=True)
class Problem:
    """What a method may know before training begins.

    criterion      outputs and targets to one value per example
    classes        how many; 0 where targets are no classes (regression)
    train_labels   [N] the labels as given, wrong ones among them
    clean_labels   [M] the trusted ones
    clean          all of the clean set as one batch, for methods that study it before training
    steps          optimizer steps of the run
    seed           of whatever the method draws; see `generator`
    right_share    [classes] share of right labels among those given each class. Only an oracle
                   can know it, and only `weighted` asks
    pretrained     a model trained plainly on the same data, where the method asks for one
    confusion      [classes, classes] train examples counted by the class that `pretrained` predicts
                   (row) and the label they were given (column), where the method asks for it

    What a method remembers per example lies on the device of `train_labels`.
    """

    criterion: Criterion
    classes: int
    train_labels: Tensor
    clean_labels: Tensor
    clean: Batch
    steps: int
    seed: int = 0
    right_share: Tensor | None = None
    pretrained: nn.Module | None = None
    confusion: Tensor | None = None

    def given(self, ids: Tensor) -> Tensor:
        """The classes that the examples at positions `ids` were labelled as, int64 [n]."""
        return self.train_labels[ids.to(self.train_labels.device)].long()

    def generator(self, purpose: str, step: int = 0) -> torch.Generator:
        """Random numbers that depend on the seed, the purpose and the step alone."""
        return torch.Generator().manual_seed(hashed_seed(self.seed, purpose, step))


@dataclass(frozen=True)
class Sampling:
    """Which examples a step trains on.

    source      "train", or "clean" to train on the trusted examples alone
    balanced    every class equally often
    """

    source: str = "train"
    balanced: bool = False


@dataclass(frozen=True)
class View:
    """One step as the hooks see it. `ids` [n] are positions in the train part."""

    model: nn.Module
    train: Batch
    clean: Batch
    ids: Tensor
    step: int
    learning_rate: float


@dataclass(frozen=True)
class Weighed:
    """What a step trains on, and what it made of each example.

    loss         a scalar; `backward()` leaves the gradient of the update
    weights      [n] what each example counted, as the ledger records it: 1/n each in plain training
    losses       [n] detached
    scores       [n] signed alignment, where the method has one
    clean_loss   where the method looked at the clean batch

    Processes that share a batch have n examples each; the mean of their losses is trained on, and
    weights are shares of that.
    """

    loss: Tensor
    weights: Tensor
    losses: Tensor
    scores: Tensor | None = None
    clean_loss: Tensor | None = None


class Stateful(Protocol):
    """Anything that can be saved: tensors, numbers, strings, lists and dicts of them."""

    def state_dict(self) -> Mapping[str, Any]:
        """All there is to remember."""

    def load_state_dict(self, state: Any, /) -> Any:
        """Go on from it."""


Weigh = Callable[[View, Loss], Weighed]


@dataclass(frozen=True)
class Method:
    """A way to train; see the module. Made by a factory of `METHODS`."""

    name: str
    losses: Loss
    weigh: Weigh
    sample: Sampling = Sampling()
    wrap: Callable[[nn.Module], nn.Module] | None = None
    state: Mapping[str, Stateful] = field(default_factory=dict)


def plain_losses(problem: Problem) -> Loss:
    """`criterion(model(inputs), targets)`: what most methods train on."""

    def losses(model: nn.Module, batch: Batch) -> Tensor:
        inputs, targets = batch
        return problem.criterion(model(inputs), targets)

    return losses


def weighed_by(weights: Callable[[View, Tensor], Tensor]) -> Weigh:
    """A `weigh` hook from a rule that reads the losses, [n] detached, and returns weights [n].

    Where processes share a batch, the rule is given the joined one, everywhere alike.
    """

    def weigh(view: View, loss: Loss) -> Weighed:
        losses = loss(view.model, view.train)
        w = _over_the_batch(weights, view, losses.detach()).to(losses)
        return Weighed(loss=(w * losses).sum(), weights=w, losses=losses.detach())

    return weigh


def _over_the_batch(
    weights: Callable[[View, Tensor], Tensor], view: View, losses: Tensor
) -> Tensor:
    group = group_of(view.model)
    if group.size == 1 or weights is evenly:  # equal shares of equal weights: nothing to ask
        return weights(view, losses)
    whole, own = group.joined(losses)
    ids, _ = group.joined(view.ids.to(losses.device))
    return weights(replace(view, ids=ids), whole)[own] * group.size


def evenly(view: View, losses: Tensor) -> Tensor:
    """1/n each."""
    return torch.full_like(losses, 1 / len(losses))
