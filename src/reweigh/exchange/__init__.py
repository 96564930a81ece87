"""A run's ranking in the forms of other tools, and their decisions back. Needs no torch.

Read in this order:

    row_content     the rows of the user's data that a ranking speaks of, in its order
    row_files       rows as .csv or .parquet
    ranked_rows     what a ranking says of one row, for every version of a run folder
    formats         which forms there are, what their files are called, and who writes them
    label_studio    tasks with predictions; its decisions, read back
    cleanlab        the columns of its table of label issues
    huggingface     a folder for `datasets.load_from_disk`
    fiftyone        a folder for `fiftyone.Dataset.from_dir`
"""

# isort: off
from .formats import FORMATS, Format, format_of, listed
from .label_studio import Answer, read_answers
from .row_content import RowContent
from .row_files import ENDINGS, write_rows
