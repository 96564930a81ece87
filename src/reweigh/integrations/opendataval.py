"""An evaluator for OpenDataVal: the value of a row is the probability that its label is right.

    value_i = 1 - p_wrong_i       by the sentinels that `reweigh audit` uses (reweigh/sentinels)

The valid rows of OpenDataVal are the checked rows. There is no network to train: the witnesses are plain
models, fitted without the row that they judge. It is for classes, labels one-hot as OpenDataVal has them,
and flattens inputs that have more than one dimension.

OpenDataVal asks for an older PyTorch than this library; install it with `pip install --no-deps opendataval`.
"""

from typing import Any

import numpy as np

from ..candidates import PlainData
from ..errors import DataError, MissingExtraError
from ..sentinels import suspect

try:
    from opendataval.dataval.api import DataEvaluator, ModelLessMixin
    from sklearn.utils import check_random_state
except ImportError as error:
    raise MissingExtraError(
        f"this integration needs opendataval, and {error.name} is not installed; run: "
        "pip install --no-deps opendataval, and install what it imports"
    ) from error


class ReweighEvaluator(DataEvaluator, ModelLessMixin):  # type: ignore[misc]
    """Data values by `reweigh`: low where the label is probably wrong.

    trees           also ask forests, which are for tables; takes longer
    random_state    as in OpenDataVal: a number, a `RandomState`, or None
    """

    def __init__(self, trees: bool = True, random_state: Any = None) -> None:
        self.trees = trees
        self.embedding_model = None
        self.random_state = check_random_state(random_state)

    def train_data_values(self, *args: Any, **kwargs: Any) -> "ReweighEvaluator":
        """Judge every train row by the valid rows; arguments of a training are not used."""
        given, labels = (_classes(each) for each in (self.y_train, self.y_valid))
        rows = {"train": _rows(self.x_train), "checked": _rows(self.x_valid)}
        centre, spread = rows["train"].mean(0), rows["train"].std(0)
        spread = np.where(spread > 0, spread, 1.0)
        features = {name: (each - centre) / spread for name, each in rows.items()}
        data = PlainData(features, given, labels, int(self.y_train.shape[1]))
        seed = int(self.random_state.randint(2**31 - 1))
        self.judged = suspect(data, trees=self.trees, seed=seed).train
        return self

    def evaluate_data_values(self) -> Any:
        """[n] the probability that the label is right."""
        return 1 - self.judged.p_wrong


def _classes(labels: Any) -> Any:
    """From one-hot labels [n, classes]."""
    values = np.asarray(labels)
    if values.ndim != 2 or values.shape[1] < 2:
        raise DataError(
            f"the labels have shape {values.shape}; expected one-hot classes [n, 2 or more]: this "
            "evaluator is for classes"
        )
    return values.argmax(1)


def _rows(inputs: Any) -> Any:
    """[n, width] from a tensor, an array or a data set of tensors."""
    if hasattr(inputs, "numpy"):
        inputs = inputs.numpy()
    elif not isinstance(inputs, np.ndarray):
        inputs = np.stack([np.asarray(row) for row in inputs])
    return np.asarray(inputs, dtype=np.float64).reshape(len(inputs), -1)
