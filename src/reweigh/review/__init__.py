"""The local page to go through suspects: `reweigh review RUN`.

Read in this order:

    suspects             suspects.parquet, one row at a time
    decisions            decisions.jsonl, append-only
    suspect_selection    which suspects to show: class, suggestion, suspicion, state, search
    groups               suspects with the same error, to decide about in one go
    precision            how right the list has been so far
    review_state         all of these together: where to go next, how far the review is
    imports              decisions made in another tool
    exports              corrected data, confirmed rows, the list of changes (corrections, delimited)
    fixed_data           the folder of `reweigh fix`
    pages                addresses and what they answer (page_content, visible_text, suspect_image)
    gate                 who may ask
    serving              loopback, port, browser, Ctrl-C (patience: connections that ask nothing)
"""

from .exports import Exported, export_run
from .fixed_data import write_fixed
from .gate import Keys
from .imports import Imported, import_answers
from .pages import application
from .review_state import ReviewState
from .serving import ADDRESS, bound, open_browser, serve
