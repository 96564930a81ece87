"""scikit-learn estimators that learn from doubtful rows, guided by a few trusted ones.

    classifier.fit(X, y, X_clean=..., y_clean=...)

Inputs are standardised by the mean and deviation of the training rows. This happens inside the
network, so a pickled estimator takes raw rows. A regressor standardises its target by median and
quartiles, which a few extreme values do not change. The network is a perceptron with ReLU unless
`module` makes another. After fitting, `sample_weight_` [n] is what each row counted on average (1 =
as much as in plain training), and `suspicion_` [n] is the share of its steps in which it counted
nothing.

Without a clean set, `fit` uses rows that cross-fitted models agree on (`reweigh.pseudo_clean`) and
warns: errors with a pattern stay invisible to those models.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import BatchError, ReweighWarning, SettingError
from ..optional import missing_framework

try:
    from sklearn.base import ClassifierMixin, RegressorMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, column_or_1d

    from .estimator import ReweighedEstimator
except ImportError as error:
    raise missing_framework("skorch", error) from error


class ReweighClassifier(ClassifierMixin, ReweighedEstimator):  # type: ignore[misc]
    """A classifier for labels of which some are wrong.

    module:           `module(inputs, outputs) -> nn.Module` for that many features and classes
                      (for images, features are all values of an image); None: a perceptron.
    hidden_sizes:     of that perceptron. max_epochs, batch_size, lr: SGD with momentum 0.9.
    clean_batch_size: clean rows per step; all rows if there are fewer.
    standardize:      put a layer in front that gives each column mean 0 and variance 1.
    backend, safeguard: as in `reweigh.Reweighter`.
    net_options:      for skorch, such as {"optimizer": torch.optim.AdamW, "callbacks": [...]}.
    device, random_state: the device to train on, and the seed.

    >>> X = np.concatenate([np.random.randn(50, 2) - 2, np.random.randn(50, 2) + 2])
    >>> truth = np.repeat(["no", "yes"], 50)
    >>> y = truth.copy(); y[:10] = "yes"  # a fifth of the "no" are wrong
    >>> model = ReweighClassifier(max_epochs=20, random_state=0)
    >>> model = model.fit(X, y, X_clean=X[45:55], y_clean=truth[45:55])
    >>> bool(model.suspicion_[:10].mean() > model.suspicion_[10:].mean())
    True
    """

    _numeric_target = False

    def fit(self, X: Any, y: Any, X_clean: Any = None, y_clean: Any = None) -> ReweighClassifier:
        """Train on rows X with labels y, guided by the rows X_clean whose labels y_clean are right."""
        X, y = self._check(X, y, reset=True)
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise BatchError(
                f"y holds one class, {self.classes_[0]!r}; expected two or more classes"
            )
        clean = self._clean(X_clean, y_clean)
        self._fit(
            X, torch.from_numpy(numbers.astype(np.int64)), clean, numbers,
            outputs=len(self.classes_), criterion=nn.CrossEntropyLoss,
        )  # fmt: skip
        return self

    def _clean(self, X_clean: Any, y_clean: Any) -> tuple[Tensor, Tensor] | None:
        if not _given(X_clean, y_clean):
            return None
        X_clean, y_clean = self._check(X_clean, y_clean, reset=False)
        strange = sorted(set(np.unique(y_clean).tolist()) - set(self.classes_.tolist()))
        if strange:
            raise BatchError(
                f"y_clean holds {strange[:5]}, which y does not; expected the classes of y, "
                f"{self.classes_[:10].tolist()}: clean and train labels must mean the same"
            )
        absent = sorted(set(self.classes_.tolist()) - set(np.unique(y_clean).tolist()))
        if absent:
            warnings.warn(
                f"y_clean has no example of {absent[:10]}; what the clean set never shows, the "
                f"weights cannot favour: add a checked row of each class",
                ReweighWarning,
                stacklevel=3,
            )
        numbers = np.searchsorted(self.classes_, y_clean).astype(np.int64)
        return torch.tensor(X_clean), torch.from_numpy(numbers)

    def predict_proba(self, X: Any) -> Any:
        """Probabilities [n, classes], in the order of `classes_`."""
        return self._outputs(X).double().softmax(1).numpy()

    def predict(self, X: Any) -> Any:
        """The most probable class of each row."""
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(1)]


class ReweighRegressor(RegressorMixin, ReweighedEstimator):  # type: ignore[misc]
    """A regressor for one target of which some values are wrong.

    The options are those of `ReweighClassifier`; `module(inputs, 1)` makes the network. The loss is
    the squared error of the standardised target; `net_options={"criterion": nn.SmoothL1Loss}` sets
    another one.
    """

    _numeric_target = True

    def fit(self, X: Any, y: Any, X_clean: Any = None, y_clean: Any = None) -> ReweighRegressor:
        """Train on rows X with targets y, guided by the rows X_clean whose targets y_clean are right."""
        X, y = self._check(X, y, reset=True)
        y = column_or_1d(y).astype(np.float64)
        self.center_, self.scale_ = _location(y)
        clean = None
        if _given(X_clean, y_clean):
            X_clean, y_clean = self._check(X_clean, y_clean, reset=False)
            clean = (torch.tensor(X_clean), self._standardised(y_clean))
        # A substitute for the clean set has equally many rows of each tenth of the target.
        tenths = np.searchsorted(np.quantile(y, np.linspace(0.1, 0.9, 9)), y)
        self._fit(X, self._standardised(y), clean, tenths, outputs=1, criterion=nn.MSELoss)
        return self

    def _standardised(self, y: Any) -> Tensor:
        return torch.tensor((y - self.center_) / self.scale_, dtype=torch.float32)[:, None]

    def predict(self, X: Any) -> Any:
        """The expected target of each row."""
        return self._outputs(X)[:, 0].double().numpy() * self.scale_ + self.center_


def _given(X_clean: Any, y_clean: Any) -> bool:
    if (X_clean is None) != (y_clean is None):
        which = "y_clean" if y_clean is None else "X_clean"
        raise SettingError(f"{which} is missing; expected both X_clean and y_clean, or neither")
    return X_clean is not None


def _location(y: Any) -> tuple[float, float]:
    """The median, and a deviation from the quartiles; the standard deviation if they are equal."""
    low, median, high = np.quantile(y, [0.25, 0.5, 0.75])
    scale = (high - low) / 1.349 or float(np.std(y)) or 1.0
    return float(median), float(scale)
