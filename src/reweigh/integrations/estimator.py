"""What classifier and regressor share: the network, the training, the substitute for a clean set."""

import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..clean_set import pseudo_clean
from ..errors import ReweighWarning
from ..optional import missing_framework

try:
    from sklearn.base import BaseEstimator
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data

    from .skorch_net import NumberedRows, ReweighedNet, as_fetched
except ImportError as error:
    raise missing_framework("skorch", error) from error

PER_CLASS = 10  # pseudo-clean rows, where no clean ones are given
NO_CLEAN_SET = (
    "fit was given no clean set, so {count} rows that several models agree on stand in for one; "
    "errors with a pattern stay invisible to them. Pass X_clean and y_clean, rows checked by a "
    "person: reweigh.suggest_clean says which to check"
)


class Standardize(nn.Module):
    """(x - mean) / deviation per column, both of the training rows; a constant column becomes 0."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        wide = rows.double()
        deviation = wide.std(0, correction=0)
        self.register_buffer("mean", wide.mean(0).float())
        self.register_buffer(
            "deviation", torch.where(deviation > 0, deviation, torch.ones_like(deviation)).float()
        )

    def forward(self, rows: Tensor) -> Tensor:
        """Standardise [n, ...]."""
        return (rows - self.mean) / self.deviation


class ReweighedEstimator(BaseEstimator):  # type: ignore[misc]
    """The options are documented at `ReweighClassifier`."""

    _numeric_target: bool

    def __init__(
        self,
        module: Callable[[int, int], nn.Module] | None = None,
        *,
        hidden_sizes: tuple[int, ...] = (128,),
        max_epochs: int = 50,
        batch_size: int = 64,
        clean_batch_size: int = 256,
        lr: float = 0.02,
        standardize: bool = True,
        backend: str = "auto",
        safeguard: Any = "auto",
        net_options: dict[str, Any] | None = None,
        device: str = "cpu",
        random_state: Any = None,
    ) -> None:
        self.module, self.hidden_sizes = module, hidden_sizes
        self.max_epochs, self.batch_size, self.clean_batch_size = (
            max_epochs, batch_size, clean_batch_size,
        )  # fmt: skip
        self.lr, self.standardize = lr, standardize
        self.backend, self.safeguard, self.net_options = backend, safeguard, net_options
        self.device, self.random_state = device, random_state

    def _check(self, *data: Any, reset: bool) -> Any:
        """X, or X and y, as arrays; an error if they are not what scikit-learn expects."""
        options: dict[str, Any] = {"dtype": np.float32, "allow_nd": self.module is not None}
        if len(data) == 2:
            options["y_numeric"] = self._numeric_target
        return validate_data(self, *data, reset=reset, **options)

    def _fit(
        self, X: Any, targets: Tensor, clean: tuple[Any, Any] | None, groups: Any,
        *, outputs: int, criterion: type[nn.Module],
    ) -> None:  # fmt: skip
        """Train on rows X and targets [n, ...].

        Without `clean`, a substitute is chosen, equally many rows of each of `groups` [n].
        """
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        inputs = torch.tensor(X)  # a copy: X may be read-only
        if clean is None:
            rows = self._stand_in(X, groups, seed)
            clean = (inputs[rows], targets[rows])
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            network = self._network(inputs, outputs)
            options = {
                "optimizer": torch.optim.SGD, "optimizer__momentum": 0.9, "verbose": 0,
                "train_split": None, **(self.net_options or {}),
            }  # fmt: skip
            if options["optimizer"] is not torch.optim.SGD:
                options.pop("optimizer__momentum", None)
            self.net_ = ReweighedNet(
                network, criterion, criterion__reduction="none", clean=clean, clean_seed=seed,
                clean_batch_size=self.clean_batch_size, backend=self.backend,
                safeguard=self.safeguard, lr=self.lr, max_epochs=self.max_epochs,
                batch_size=self.batch_size, iterator_train__shuffle=True,
                iterator_train__collate_fn=as_fetched, device=self.device, **options,
            )  # fmt: skip
            self.net_.fit(NumberedRows(inputs, targets), None)
        if self.module is None:
            # In float64 a prediction hardly depends on which other rows are predicted with it. The
            # default network is small enough to afford that.
            self.net_.module_.cpu().double()
        self.ledger_ = self.net_.ledger_
        table = self.ledger_.table()
        self.sample_weight_, self.suspicion_ = table["mean_weight"], table["zero_share"]

    def _network(self, rows: Tensor, outputs: int) -> nn.Module:
        """The user's network for such rows, or the default one; standardised inputs if asked for."""
        network = (self.module or self._perceptron)(rows[0].numel(), outputs)
        return nn.Sequential(Standardize(rows), network) if self.standardize else network

    def _perceptron(self, inputs: int, outputs: int) -> nn.Module:
        layers: list[nn.Module] = [nn.Flatten()]
        for size, following in pairwise([inputs, *self.hidden_sizes, outputs]):
            layers += [nn.Linear(size, following), nn.ReLU()]
        return nn.Sequential(*layers[:-1])

    def _stand_in(self, X: Any, groups: Any, seed: int) -> Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReweighWarning)  # one warning is enough
            rows = pseudo_clean(X, groups, per_class=PER_CLASS, seed=seed).rows
        warnings.warn(NO_CLEAN_SET.format(count=len(rows)), ReweighWarning, stacklevel=4)
        return rows

    def _outputs(self, X: Any) -> Tensor:
        check_is_fitted(self)
        inputs = torch.tensor(self._check(X, reset=False))
        module = self.net_.module_.eval()
        like = next(module.parameters())
        with torch.no_grad():
            parts = [module(part.to(like)).cpu() for part in inputs.split(1024)]
        return torch.cat(parts)
