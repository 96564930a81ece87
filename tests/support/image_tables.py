"""Images of a folder as a table, as Hugging Face writes them."""

import json

import pyarrow as pa

from reweigh.tables import open_images

HUGGING_FACE = {
    "info": {
        "features": {
            "image": {"_type": "Image"},
            "label": {"names": ["right", "left"], "_type": "ClassLabel"},
        }
    }
}


def as_table(folder, *, names=None, plain=False):
    """The images of a folder in the order of its listing, as Hugging Face writes them, or as bytes alone."""
    listed = open_images(folder)
    content = [(folder / name).read_bytes() for name in listed.files]
    if not plain:
        kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        paths = [name.rpartition("/")[2] for name in listed.files]
        rows = zip(content, paths, strict=True)
        content = pa.array([{"bytes": c, "path": p} for c, p in rows], kind)
    labels = list(listed.names) if names is None else [names.index(n) for n in listed.names]
    table = pa.table(
        {"image": content, "label": labels, "length": [k % 3 for k in range(len(labels))]}
    )
    return table.replace_schema_metadata({"huggingface": json.dumps(HUGGING_FACE)})
