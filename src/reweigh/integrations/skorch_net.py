"""A skorch net with a reweighed step; everything else is skorch's: callbacks, devices, history.

Batches are `(inputs, targets, ids)`. The net holds the clean rows while it is trained. The history has
`clean_loss` next to `train_loss`, for callbacks such as `EarlyStopping(monitor="clean_loss")`.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from ..audit import Ledger
from ..core import Reweighter, per_example
from ..optional import missing_framework
from .clean_draws import CleanDraws

try:
    from skorch import NeuralNet
    from skorch.callbacks import PassthroughScoring
except ImportError as error:
    raise missing_framework("skorch", error) from error


class NumberedRows(Dataset[Any]):
    """Inputs and targets with their row numbers, read one batch at a time."""

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        self.inputs, self.targets = inputs, targets

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor, int]:
        return self.inputs[row], self.targets[row], row

    def __getitems__(self, rows: list[int]) -> tuple[Tensor, Tensor, Tensor]:
        """A full batch; PyTorch's loader calls this if a data set has it."""
        ids = torch.tensor(rows)
        return self.inputs[ids], self.targets[ids], ids


def as_fetched(batch: Any) -> Any:
    """The batch unchanged: a collate function for a data set that already makes batches."""
    return batch


class ReweighedNet(NeuralNet):  # type: ignore[misc]
    """`fit(NumberedRows)`; `.ledger_` then holds what each row counted.

    clean: `(inputs, targets)`, trusted. The rest are options of `Reweighter` and of skorch.
    """

    def __init__(
        self,
        module: Any,
        criterion: Any,
        *args: Any,
        clean: tuple[Tensor, Tensor] | None = None,
        clean_batch_size: int = 256,
        clean_seed: int = 0,
        backend: str = "auto",
        safeguard: Any = "auto",
        params: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(module, criterion, *args, **options)
        self.clean = clean
        self.clean_batch_size, self.clean_seed = clean_batch_size, clean_seed
        self.backend, self.safeguard, self.params = backend, safeguard, params

    @property
    def _default_callbacks(self) -> list[tuple[str, Any]]:
        scoring = PassthroughScoring("clean_loss", on_train=True)
        return [*super()._default_callbacks, ("clean_loss", scoring)]

    def on_train_begin(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:
        """Make the reweighter, the draws of clean rows and the ledger of this training."""
        super().on_train_begin(net, X=X, y=y, **kwargs)
        assert self.clean is not None
        self.weigh_ = Reweighter(
            self.module_, per_example(self.criterion_), backend=self.backend,
            safeguard=self.safeguard, params=self.params,
        )  # fmt: skip
        self.draws_ = CleanDraws(len(self.clean[1]), self.clean_batch_size, seed=self.clean_seed)
        self.ledger_ = Ledger(len(X))

    def on_train_end(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:
        """Keep the ledger; free the clean rows and what else belongs to this training."""
        super().on_train_end(net, X=X, y=y, **kwargs)
        self.clean = None
        del self.weigh_, self.draws_

    def train_step_single(self, batch: Any, **fit_params: Any) -> dict[str, Any]:
        """Compute the gradient of the weighted loss and record the weights."""
        assert self.clean is not None
        self._set_training(True)
        inputs, targets, ids = batch
        rows = next(self.draws_)
        device = torch.device(self.device)
        train = (inputs.to(device), targets.to(device))
        clean = (self.clean[0][rows].to(device), self.clean[1][rows].to(device))
        step = self.weigh_(train, clean)
        step.loss.backward()
        self.ledger_.record(ids, step.weights, step.scores, step.losses)
        self.history.record_batch("clean_loss", float(step.clean_loss))
        return {"loss": step.loss.detach(), "y_pred": None}
