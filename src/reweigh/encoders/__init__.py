"""A user's rows as arrays that a network can take: fitted on a sample, then the same for every row.

    encoder                rows                encoded                           made by
    TableEncoder           a table's columns   float32 [n, width]                fit_table
    HashedTextEncoder      a column of texts   float32 [n, 192 at most]          fit_hashed_texts
    LanguageModelEncoder   a column of texts   float32 [n, the model's width]    open_language_model
    ImageEncoder           files of images     uint8 [n, channels, size, size]   fit_images
    NgramEncoder           texts               sparse [n, some 10,000]           fit_ngrams

Each has `shape` (of one encoded row), `encode(rows)`, `digests` (one number per row: equal rows have
equal ones) and `state()`, which is JSON; the last, for linear models, has `encode` and `arrays()` alone.
`edge_features` makes encoded images short rows for linear models. Read `columns` before `table`.
"""

# isort: off
from .columns import robust_scale
from .edges import edge_features
from .image import ImageEncoder, fit_images
from .ngrams import NgramEncoder, fit_ngrams
from .table import TableEncoder, fit_table
from .texts import (
    TEXT_SAMPLE_ROWS, HashedTextEncoder, LanguageModelEncoder, fit_hashed_texts,
    open_language_model, text_of,
)  # fmt: skip
