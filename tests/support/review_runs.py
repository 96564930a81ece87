"""Run folders as training and auditing leave them, small and made up, for the tests of the review."""

import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

PETS = ("bird", "cat", "dog")
SCHEMA = pa.schema(
    [
        ("index", pa.int64()),
        ("given_label", pa.string()),
        ("suggested_label", pa.string()),
        ("suspicion", pa.float64()),
        ("mean_weight", pa.float64()),
        ("zero_share", pa.float64()),
        ("seen", pa.int64()),
        ("why", pa.string()),
        ("example", pa.string()),
        ("probability", pa.float64()),
    ]
)


NEWER = {"p_wrong": pa.float64(), "suggested": pa.string(), "p_suggested": pa.float64(),
         "flag": pa.bool_(), "source": pa.string()}  # fmt: skip


def suspect(
    index, given, suggested=None, example="", *, suspicion=0.9, probability=0.8, why=None, **newer
):
    """One row of suspects.parquet; `newer` are columns that older runs do not have."""
    return {
        **newer,
        "index": index,
        "given_label": given,
        "suggested_label": suggested,
        "suspicion": suspicion,
        "mean_weight": 0.001,
        "zero_share": suspicion,
        "seen": 120,
        "why": why or "The clean examples were never helped by it.",
        "example": example,
        "probability": probability if suggested is not None else None,
    }


def write_run(folder, suspects, *, data, rows, group=1000, **source):
    """A run folder with these suspects; `source` goes into source.json."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    described = {"version": 1, "kind": "table", "task": "classes", "target": "label",
                 "classes": list(PETS), "rows": rows, "data": str(Path(data).absolute()),
                 "clean": None, "text_column": None, "columns": []} | source  # fmt: skip
    (folder / "source.json").write_text(json.dumps(described))
    newer = [(name, kind) for name, kind in NEWER.items() if any(name in row for row in suspects)]
    schema = pa.schema([*SCHEMA, *(pa.field(*each) for each in newer)])
    table = pa.Table.from_pylist(suspects, schema=schema)
    pq.write_table(table, folder / "suspects.parquet", row_group_size=group)
    ranked = table.drop_columns(["why", "example", "probability"])
    pq.write_table(ranked, folder / "audit.parquet")
    return folder


def table_run(folder, rows=12, *, text=None):
    """A table of pets whose suspects are the rows with an odd index, labelled "cat"."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "pets.csv"
    labels = ["cat" if i % 2 else "dog" for i in range(rows)]
    lines = ["name,weight,label", *(f"pet {i},{i - 5}.5,{labels[i]}" for i in range(rows))]
    data.write_text(text if text is not None else "\n".join(lines) + "\n")
    suspects = [
        suspect(
            i,
            "cat",
            ("dog", "bird", None)[i // 2 % 3],
            json.dumps({"name": f"pet {i}", "weight": f"{i - 5}.5", "label": "cat"}),
            suspicion=1 - i / 100,
        )
        for i in range(1, rows, 2)
    ]
    columns = ["name", "weight"]
    return write_run(folder / "run", suspects, data=data, rows=rows, columns=columns)


def text_run(
    folder, texts, *, classes=("calm", "cross"), given="calm", suggested="cross", **options
):
    """Texts, all of them suspects."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "texts.csv"
    data.write_text("text,label\n" + "".join(f"{json.dumps(t)},{given}\n" for t in texts))
    suspects = [
        suspect(i, given, suggested, t, suspicion=1 - i / 1000) for i, t in enumerate(texts)
    ]
    return write_run(folder / "run", suspects, data=data, rows=len(texts), kind="text",
                     classes=list(classes), text_column="text", **options)  # fmt: skip


def image_run(folder, count=8, *, classes=PETS, size=32):
    """Little pictures in one folder a class, half of them suspects."""
    from PIL import Image

    folder, draw = Path(folder), random.Random(0)
    data, suspects = folder / "pictures", []
    for i in range(count):
        given = classes[i % len(classes)]
        path = data / given / f"{i:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        image = Image.new("RGB", (size, size), (230, 226, 215))
        colour = tuple(draw.randrange(40, 200) for _ in range(3))
        side = size // 4
        image.paste(colour, (side, side, size - side, size - side))
        image.save(path)
        if i % 2:
            suspects.append(
                suspect(
                    i,
                    given,
                    classes[(i + 1) % len(classes)],
                    f"{given}/{i:03}.png",
                    suspicion=1 - i / 100,
                )
            )
    return write_run(folder / "run", suspects, data=data, rows=count, kind="images",
                     classes=list(classes))  # fmt: skip


def write_voices(run, *voices):
    """Checked rows that speak about suspects: (index, product, row, label, example), all of the clean file."""
    columns = ("index", "product", "row", "label", "example")
    rows = [dict(zip(columns, voice, strict=True)) | {"file": "clean"} for voice in voices]
    pq.write_table(pa.Table.from_pylist(rows), Path(run) / "voices.parquet")


def sure_run(folder):
    """Texts with probabilities, flags and sources; the file is not in the order of p_wrong."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "texts.csv"
    data.write_text("text,label\n" + "".join(f"text {i},calm\n" for i in range(12)))
    suspects = [
        suspect(i, "calm", "cross" if i < 8 else None, f"text {i}", suspicion=1 - i / 100,
                p_wrong=0.2 + i * 0.06, p_suggested=i * 0.08, flag=i >= 4,
                source="anna" if i % 2 else "ben") | {"suggested": "cross"}
        for i in range(12)
    ]  # fmt: skip
    run = write_run(folder / "run", suspects, data=data, rows=12, kind="text",
                    classes=["calm", "cross"], text_column="text")  # fmt: skip
    write_voices(run, (11, -3.0, 5, "cross", "a cross text"), (11, 2.0, 1, "calm", "a calm text"))
    return run


def regression_run(folder, rows=6):
    """Numbers to predict, with a suggestion for each suspect."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "houses.csv"
    data.write_text("rooms;price\n" + "".join(f"{i};-{i}.50\n" for i in range(rows)))
    suspects = [
        suspect(i, f"-{i}.5", f"{i}.25", json.dumps({"rooms": str(i)})) for i in range(rows)
    ]
    return write_run(folder / "run", suspects, data=data, rows=rows, task="regression",
                     target="price", classes=[], columns=["rooms"])  # fmt: skip
