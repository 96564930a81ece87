"""Reading a user's rows, without torch: tables, folders of images, and the labels in them.

Read in this order:

    cells    one column: its cells as numbers, as words, as labels; conditions as `checked == 1`
    reader   a CSV or Parquet file as columns, in pieces of bounded size
    json_lines, excel, arrow_folder   the same for JSON objects, workbooks, Hugging Face's folders
    shard_files, shards   several files of the same columns as one table
    decimals   decimal commas, told from the cells
    images   a folder or a zip archive of images with one folder per class
    image_cells   images in the cells of a table
    labels   the labels of a file: classes, or numbers of a regression
    scan     one pass over a table: all labels, the marked rows, a random sample
"""

# isort: off
from .cells import (
    DOUBTFUL, Array, Condition, Numbers, arrow, is_text, label_words, numbers, pandas,
    parse_condition, unreadable, words,
)  # fmt: skip
from .images import (
    ImageFile, ImageFolder, ZippedImage, image_at, image_pieces, is_image_archive, list_images, open_image,
    open_image_cells, open_images,
)  # fmt: skip
from .image_cells import ImageCell, holds_cells, image_columns
from .thumbnail import thumbnail
from .labels import Codes, GivenLabels, LabelScan, decide_task
from .decimals import with_points
from .endings import CSV, EXCEL, JSON_LINES, PARQUET
from .excel import ExcelRows
from .arrow_folder import ArrowRows, is_arrow_folder
from .shard_files import is_shards, shard_files
from .shards import ShardedRows
from .json_lines import is_blank, parsed, spans
from .reader import PIECE_ROWS, Piece, Table, delimiter_of, is_table, open_table
from .scan import SAMPLE_ROWS, Scan, scan_table
