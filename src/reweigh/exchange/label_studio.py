"""Label Studio: a ranking as tasks with predictions, and what people decided there.

    FILE.json    a list of tasks. `data` has the text or the image, index, given_label and what is said of it;
                 the prediction has the suggested label (else the given one), and as its score the
                 probability that the given label is wrong: ordered by prediction score, highest
                 first, Label Studio shows the most suspicious row first
    FILE.xml     the labeling interface that belongs to the tasks

Images are named as Label Studio serves local files: /data/local-files/?d=FOLDER/CLASS/IMAGE, relative to
the folder above the data (LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT).

Read back: an export as JSON, JSON-MIN or CSV. An annotation chooses a label, or says to drop the row.
"""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from ..errors import DataError
from ..files import whole_file, write_whole
from ..runs import RunSource
from ..tables import Piece, words
from .ranked_rows import RankedRow, ranked_rows
from .row_content import RowContent

LABEL, DROP, ROW = "label", "drop", "row"
DROPPED = "drop this row"


@dataclass(frozen=True)
class Answer:
    """What people said of a row: `label`, None for none; `drop` it. They may disagree, or skip it."""

    index: int
    given: str
    label: str | None
    drop: bool = False
    disagreed: bool = False


def write_tasks(source: RunSource, pieces: Iterable[Piece], out: Path) -> int:
    """Write the tasks to `out` and the interface beside it; the number of tasks."""
    content, count = RowContent(source, files=True), 0
    write_whole(interface_file(out), interface(source))
    with whole_file(out) as stream:
        stream.write(b"[")
        for piece in pieces:
            rows = list(ranked_rows(piece))
            shown = content.at(piece.column("index").to_numpy(), [row.given for row in rows])
            for row, text in zip(rows, _texts(source, shown), strict=True):
                stream.write(b",\n" if count else b"\n")
                task = _task(source, row, text)
                stream.write(json.dumps(task, ensure_ascii=False, allow_nan=False).encode())
                count += 1
        stream.write(b"\n]\n")
    return count


def interface_file(out: Path) -> Path:
    """Where the labeling interface goes."""
    return out.with_suffix(".xml")


def interface(source: RunSource) -> str:
    """The labeling interface, as XML."""
    if source.kind == "images":
        shown = f'  <Image name="{ROW}" value="$image"/>'
    else:
        shown = f'  <Text name="{ROW}" value="$text"/>'
    if source.task == "regression":
        asked = [f'  <Number name="{LABEL}" toName="{ROW}"/>']
    else:
        choices = [f"    <Choice value={quoteattr(name)}/>" for name in source.classes]
        asked = [f'  <Choices name="{LABEL}" toName="{ROW}" choice="single">', *choices]
        asked.append("  </Choices>")
    drop = (
        f'  <Choices name="{DROP}" toName="{ROW}" choice="multiple"><Choice value="{DROPPED}"/>'
        "</Choices>"
    )
    given = '  <Header value="given label: $given_label"/>'
    return "\n".join(("<View>", shown, given, *asked, drop, "</View>", ""))


def _texts(source: RunSource, shown: Piece) -> Iterator[str]:
    """One text per row: the text, the path, or the cells of a table, one per line."""
    columns = [words(shown.column(name)).to_pylist() for name in shown.schema.names]
    for row in zip(*columns, strict=True):
        if source.kind == "table":
            names = shown.schema.names
            yield "\n".join(f"{name}: {cell or ''}" for name, cell in zip(names, row, strict=True))
        else:
            yield row[0] or ""


def _task(source: RunSource, row: RankedRow, text: str) -> dict[str, Any]:
    data: dict[str, Any] = {"index": row.index, "given_label": row.given}
    if source.kind == "images":
        served = quote(f"{source.data.name}/{text}")
        data |= {"image": f"/data/local-files/?d={served}", "path": text}
    else:
        data["text"] = text
    data |= {"p_wrong": row.wrong, "flag": row.flagged, "suggested": row.suggested}
    data["p_suggested"] = row.p_suggested
    label = row.given if row.suggested is None else row.suggested
    if source.task == "regression":
        kind, value = "number", {"number": float(label)}
    else:
        kind, value = "choices", {"choices": [label]}  # type: ignore[dict-item]
    result = {"from_name": LABEL, "to_name": ROW, "type": kind, "value": value}
    prediction = {"model_version": "reweigh", "score": row.wrong, "result": [result]}
    return {"data": data, "predictions": [prediction]}


def read_answers(path: Path) -> list[Answer]:
    """The decisions in an export of Label Studio, in its order; tasks that nobody annotated are left out."""
    try:
        if path.suffix.lower() == ".csv":
            with path.open(encoding="utf-8-sig", newline="") as stream:
                tasks: Any = list(csv.DictReader(stream))
        else:
            tasks = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise DataError(f"there is no {path}; expected an export of Label Studio") from None
    except (ValueError, csv.Error) as error:
        raise DataError(
            f"{path} is neither JSON nor CSV ({error}); expected an export of Label Studio"
        ) from None
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise DataError(f"{path} is no list of tasks; export as JSON, JSON-MIN or CSV")
    answers: dict[int, Answer] = {}
    for number, task in enumerate(tasks, start=1):
        for answer in _answers(task, f"{path}, task {number}"):
            before = answers.get(answer.index, answer)
            same = (before.label, before.drop) == (answer.label, answer.drop)
            disagreed = not same or before.disagreed
            answers[answer.index] = Answer(
                answer.index, answer.given, answer.label, answer.drop, disagreed
            )
    return list(answers.values())


def _answers(task: Mapping[str, Any], where: str) -> Iterator[Answer]:
    """One for each annotation of a task; `where` names it in errors."""
    full = "annotations" in task
    data = task.get("data", {}) if full else task
    index, given = data.get("index"), data.get("given_label")
    if not str(index).isdecimal() or not isinstance(given, str | int | float):
        raise DataError(
            f"{where} has index {index!r} and given_label {given!r}; expected a row number and a label, "
            "as in the tasks of `reweigh audit --format label-studio`"
        )
    if not full:
        label, drop = _value(task.get(LABEL), where), bool(_value(task.get(DROP), where))
        if label is not None or drop:
            yield Answer(int(str(index)), str(given), None if drop else label, drop)
        return
    for annotation in task["annotations"]:
        if annotation.get("was_cancelled"):
            continue
        values = {
            result.get("from_name"): _value(result.get("value"), where)
            for result in annotation.get("result", ())
        }
        drop = bool(values.get(DROP))
        if drop or values.get(LABEL) is not None:
            yield Answer(int(str(index)), str(given), None if drop else values[LABEL], drop)


def _value(value: Any, where: str) -> str | None:
    """The one choice or number in any of the ways Label Studio writes it; None where nothing was chosen."""
    while isinstance(value, dict | list):
        inner = value if isinstance(value, list) else value.get("choices", value.get("number"))
        if isinstance(value, list) and len(value) > 1:
            raise DataError(f"{where} has the labels {value}; expected one")
        value = (inner[0] if inner else None) if isinstance(inner, list) else inner
    if value is None or value == "":
        return None
    return f"{value:.15g}" if isinstance(value, float) else str(value)
