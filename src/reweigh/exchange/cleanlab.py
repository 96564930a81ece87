"""The table of label issues of cleanlab: is_label_issue, label_quality, given_label, predicted_label.

    index            the row of the data; cleanlab's own table has it as the index of the frame
    is_label_issue   whether the row is flagged
    label_quality    1 - the probability that the label is wrong; low is bad
    predicted_label  the suggested label, or the given one where there is no other

Rows are in the order of the data, as in cleanlab's table. Classes are names; those of cleanlab's own
table are numbers, if the labels it was given were.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ..errors import SettingError
from ..runs import RunSource
from ..tables import Piece, arrow
from .ranked_rows import ranked_rows
from .row_files import write_rows


def write_issues(source: RunSource, pieces: Iterable[Piece], out: Path) -> int:
    """Write the table to a .csv or .parquet file; the number of rows."""
    if source.task != "classes":
        raise SettingError(
            "cleanlab's table is for classes, and this run predicts numbers; leave --format out"
        )
    pa = arrow()
    rows = [each for piece in pieces for each in ranked_rows(piece)]
    order = np.argsort([each.index for each in rows], kind="stable")
    rows = [rows[k] for k in order]
    table = pa.table(
        {
            "index": pa.array([each.index for each in rows], pa.int64()),
            "is_label_issue": pa.array([each.flagged for each in rows], pa.bool_()),
            "label_quality": pa.array([1 - each.wrong for each in rows], pa.float64()),
            "given_label": pa.array([each.given for each in rows], pa.string()),
            "predicted_label": pa.array(
                [each.given if each.suggested is None else each.suggested for each in rows],
                pa.string(),
            ),
        }
    )
    return write_rows(out, [table])
