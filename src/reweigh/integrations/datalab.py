"""A table of label issues as cleanlab's Datalab has it, from features and a few checked rows.

    issues = label_issues(features, labels, checked_features, checked_labels)
    issues.sort_values("label_score").head()

    is_label_issue    flagged: at most `false_alarms` of the flagged are expected to be right
    label_score       1 - the probability that the label is wrong: low is bad, as in Datalab
    given_label       the label of the row;  predicted_label the likeliest other one where it is flagged
    predicted_score   the probability of `predicted_label`

The first four are the columns of `Datalab.get_issues("label")`. Needs pandas and scikit-learn, not cleanlab.
"""

from typing import Any

import numpy as np

from ..candidates import PlainData
from ..errors import DataError
from ..optional import optional
from ..sentinels import suspect

FEWEST = 10


def label_issues(
    features: Any,
    labels: Any,
    checked_features: Any,
    checked_labels: Any,
    *,
    false_alarms: float = 0.1,
    trees: bool = False,
    seed: int = 0,
) -> Any:
    """The table, a pandas DataFrame with one row per row of `features` [n, width], in their order.

    checked_features    [m, width] rows whose labels were checked, ten or more; not among the others
    trees               also ask forests: for columns of a table, not for embeddings
    """
    pandas = optional("pandas", package="pandas", needed_for="the table of label issues")
    rows, checked = (np.asarray(each, dtype=np.float64) for each in (features, checked_features))
    given, truth = np.asarray(labels), np.asarray(checked_labels)
    _check(rows, checked, given, truth)
    names = np.unique(np.concatenate([given, truth]))
    centre, spread = rows.mean(0), rows.std(0)
    spread = np.where(spread > 0, spread, 1.0)
    scaled = {"train": (rows - centre) / spread, "checked": (checked - centre) / spread}
    codes = np.searchsorted(names, given)
    data = PlainData(scaled, codes, np.searchsorted(names, truth), len(names))
    judged = suspect(data, trees=trees, seed=seed).train
    flagged = judged.flagged_from <= false_alarms
    return pandas.DataFrame(
        {
            "is_label_issue": flagged,
            "label_score": 1 - judged.p_wrong,
            "given_label": given,
            "predicted_label": np.where(flagged, names[judged.suggested], given),
            "predicted_score": np.where(flagged, judged.p_suggested, 1 - judged.p_wrong),
        }
    )


def _check(rows: Any, checked: Any, given: Any, truth: Any) -> None:
    if rows.ndim != 2 or checked.ndim != 2 or rows.shape[1] != checked.shape[1]:
        raise DataError(
            f"the features have shapes {rows.shape} and {checked.shape}; expected [n, width] and [m, width]"
        )
    if len(given) != len(rows) or len(truth) != len(checked):
        raise DataError(
            f"there are {len(given)} labels for {len(rows)} rows and {len(truth)} for {len(checked)} "
            "checked rows; expected one label per row"
        )
    if len(checked) < FEWEST:
        raise DataError(f"there are {len(checked)} checked rows; expected {FEWEST} or more")
