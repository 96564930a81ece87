"""What a method is: five hooks. Plain training uses the usual form of each.

    sample    which examples a step trains on          usually the train part, shuffled
    wrap      the network that is trained              usually the model itself
    losses    one value per example                    usually the problem's criterion
    weigh     the weight of each example               usually 1/n
    window    the same over pieces of a batch          usually each piece by itself

Each method has a factory in a file of its own. It takes the `Problem` (everything a method may know
before training) and returns a `Method`. What a method keeps between steps is in `state`, by name, so
that a run can be saved in the middle and continue as if it had never stopped. The training step
(training/trainer.py) does the rest:

    pair -> weighed = method.weigh(view, method.losses) -> weighed.loss.backward() -> optimizer
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from ..core import Batch, Loss, group_of
from ..rng import hashed_seed

Criterion = Callable[[Tensor, Tensor], Tensor]
"""`criterion(outputs, targets) -> Tensor[n]`, one value per example."""

Network = TypeVar("Network", bound=nn.Module)


@dataclass(frozen=True)
class Problem:
    """What a method may know before training begins.

    criterion      from outputs and targets to one value per example
    classes        number of classes; 0 if the targets are not classes (regression)
    train_labels   [N] the labels as given, wrong ones included
    clean_labels   [M] the trusted labels
    clean          the whole clean set as one batch, for methods that use it before training
    steps          number of optimizer steps of the run
    seed           of the method's random numbers; see `generator`
    right_share    [classes] share of right labels among those given each class. Only an oracle
                   can know it, and only `weighted` uses it
    pretrained     a model trained plainly on the same data, if the method needs one
    confusion      [classes, classes] train examples counted by the class that `pretrained` predicts
                   (row) and the label they were given (column), if the method needs it

    What a method keeps per example is on the device of `train_labels`.
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
        """The given classes of the examples at positions `ids` [n], int64 [n]."""
        return self.train_labels[ids.to(self.train_labels.device)].long()

    def generator(self, purpose: str, step: int = 0) -> torch.Generator:
        """A generator whose numbers depend only on the seed, the purpose and the step."""
        return torch.Generator().manual_seed(hashed_seed(self.seed, purpose, step))

    def network(self, purpose: str, build: Callable[[], Network]) -> Network:
        """`build()` under a seed for this purpose, on the method's device; torch's generator is restored."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(hashed_seed(self.seed, purpose, 0))
            return build().to(self.train_labels.device)


@dataclass(frozen=True)
class Sampling:
    """Which examples a step trains on.

    source      "train", or "clean" to train on the trusted examples alone
    balanced    draw every class equally often
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
    """The loss that a step trains on, and the weight of each example in it.

    loss         a scalar; `backward()` leaves the gradient of the update
    weights      [n] as the ledger records them: 1/n each in plain training
    losses       [n] detached
    scores       [n] signed alignment, if the method computes it
    clean_loss   mean loss of the clean batch, if the method looked at it

    If processes share a batch, each has n examples of it, and the update follows the mean of their
    `loss`. So in plain training the weights are 1/n there too.
    """

    loss: Tensor
    weights: Tensor
    losses: Tensor
    scores: Tensor | None = None
    clean_loss: Tensor | None = None


class Stateful(Protocol):
    """An object whose state is made of tensors, numbers, strings, and lists and dicts of them."""

    def state_dict(self) -> Mapping[str, Any]:
        """The full state."""

    def load_state_dict(self, state: Any, /) -> Any:
        """Continue from `state_dict()`."""


Weigh = Callable[[View, Loss], Weighed]
WeighWindow = Callable[[Sequence[View], Loss], Weighed]
"""From the pieces of a batch that is accumulated to their loss and weights, as of the whole batch."""


@dataclass(frozen=True)
class Method:
    """A way to train, made by a factory of `METHODS`; the hooks are explained at the head of this file."""

    name: str
    losses: Loss
    weigh: Weigh
    sample: Sampling = Sampling()
    wrap: Callable[[nn.Module], nn.Module] | None = None
    window: WeighWindow | None = None
    state: Mapping[str, Stateful] = field(default_factory=dict)


def plain_losses(problem: Problem) -> Loss:
    """The loss of most methods: `criterion(model(inputs), targets)`."""

    def losses(model: nn.Module, batch: Batch) -> Tensor:
        inputs, targets = batch
        return problem.criterion(model(inputs), targets)

    losses.criterion = problem.criterion  # type: ignore[attr-defined]  # what a loss means
    return losses


def plain_method(
    problem: Problem, name: str, weights: Callable[[View, Tensor], Tensor], **hooks: Any
) -> Method:
    """A method with the plain losses, whose weights follow a rule (`weighed_by`)."""
    return Method(name, losses=plain_losses(problem), weigh=weighed_by(weights), **hooks)


def weighed_by(weights: Callable[[View, Tensor], Tensor]) -> Weigh:
    """A `weigh` hook from a rule that takes the detached losses [n] and returns weights [n].

    If processes share a batch, every process gives the rule the losses of the joined batch.
    """

    def weigh(view: View, loss: Loss) -> Weighed:
        losses, group = loss(view.model, view.train), group_of(view.model)
        if group.size == 1 or weights is evenly:  # equal weights do not depend on other processes
            w = weights(view, losses.detach())
        else:
            all_losses, own = group.joined(losses.detach())
            ids, _ = group.joined(view.ids.to(losses.device))
            w = weights(replace(view, ids=ids), all_losses)[own] * group.size
        w = w.to(losses)
        return Weighed(loss=(w * losses).sum(), weights=w, losses=losses.detach())

    return weigh


def evenly(view: View, losses: Tensor) -> Tensor:
    """[n] equal weights 1/n: the rule of plain training."""
    return torch.full_like(losses, 1 / len(losses))
