"""Training sets that are never all in memory: many files, read in a shuffled order.

Read in this order:

    row_arrays       rows as numpy arrays, by field
    array_shards, parquet_shards, tar_shards     the three formats
    shards           a list of files of one format; ids of examples
    fields           from the fields of a row to inputs and a target
    read_order       which rows make batch t, for any number of processes
    stream           the batches
    training_set     the train part of a task, in shards
"""

from .fields import Fields
from .shards import Shards, open_shards
from .stream import Drawn, Stream
from .training_set import AnyPart, AnyTask, StreamedPart, StreamedTask, stream_part
