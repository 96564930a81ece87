"""A trained run as a function: rows in, labels and probabilities out; or from file to file.

predictor = reweigh.load("run")
predictor.predict("new.csv")                 # a path, a DataFrame, a list of texts or of images
predictor.predict_proba(frame)               # [n, classes]
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from .. import tables
from ..data import BatchOptions, Part, Scaling
from ..encoders import ImageEncoder, TableEncoder, text_of
from ..errors import DataError, ReweighError
from ..exchange import write_rows
from ..runs import ModelDescription, RunFile, TrainedRun, open_run, read
from ..training import read_model
from . import encoder_file
from .exported_module import ClassNetwork, InUnits, NumberNetwork, exported_parts
from .final_outputs import outputs
from .inspection import Encoder
from .networks import make_model
from .notebook_view import described, notebook_view
from .output_files import check_output
from .winner_file import load_winner

Outputs = npt.NDArray[np.float64]


class Predictor:
    """`classes` in the order of the columns of `predict_proba`; empty in a regression."""

    def __init__(self, run: TrainedRun) -> None:
        self.run = run
        self.classes: tuple[str, ...] = run.source.classes
        self.encoder: Encoder = encoder_file.load(run.path)
        described = read(run.path / RunFile.NETWORK, ModelDescription)
        scaling = Scaling(described.mean, described.std)
        self._options = BatchOptions(scaling=scaling, peak=described.peak)
        self._centre, self._scale = described.centre, described.scale
        self._winner = load_winner(run.path, described.network, self._options)
        if self._winner is None:
            self._model = make_model(described.network)
            try:
                self._model.load_state_dict(read_model(run.path))
            except RuntimeError as error:
                raise DataError(f"{run.path}: the model does not fit its description") from error
            self._model.eval()

    def __repr__(self) -> str:
        try:
            said = described(self.run.summary())
        except ReweighError:
            said = "its summary is damaged"
        return f"<Predictor of {self.run.path}: {said}>"

    def _repr_html_(self) -> str | None:
        """What a notebook shows: figures, candidates, suspects."""
        return notebook_view(self.run)

    def predict(self, data: Any) -> npt.NDArray[Any]:
        """[n] class names, or numbers in a regression."""
        outputs = self._all(data)
        if not self.classes:
            return outputs
        names: npt.NDArray[Any] = np.array(self.classes, dtype=object)[outputs.argmax(1)]
        return names

    def predict_proba(self, data: Any) -> Outputs:
        """[n, classes]."""
        if not self.classes:
            raise DataError("this run is a regression and has no probabilities; use predict")
        return self._all(data)

    @property
    def takes_images(self) -> bool:
        """Whether inputs are images, as bytes."""
        return isinstance(self.encoder, ImageEncoder)

    def encoded(self, data: Any) -> npt.NDArray[Any]:
        """[n, *shape] what the model takes: float32, or the bytes of images; for exported models."""
        return np.concatenate([rows for rows, _ in self._encoded(data)])

    def network(self) -> nn.Module | None:
        """The kept network, from scaled inputs to logits; None if the kept model is another kind."""
        if self._winner is None:
            return self._model
        kept = self._winner.parts
        return kept[0].model if len(kept) == 1 and isinstance(kept[0].model, nn.Module) else None

    def module(self) -> nn.Module:
        """The kept model, from `encoded` rows to probabilities or numbers; refuses what cannot be one."""
        numbers = not self.classes
        if self._winner is not None:
            kept = exported_parts(self._winner.parts, self._options, numbers=numbers)
        else:
            kept = (NumberNetwork if numbers else ClassNetwork)(self._model, self._options)
        return InUnits(kept, centre=self._centre, scale=self._scale) if numbers else kept

    @property
    def part_names(self) -> tuple[str, ...]:
        """What the kept model is made of."""
        winner = self._winner
        return ("reweigh",) if winner is None else tuple(p.member.name for p in winner.parts)

    def pieces(self, data: Any) -> Iterator[Outputs]:
        """Probabilities [k, classes], or numbers [k] in a regression, for a piece of the rows at a time."""
        for rows, texts in self._encoded(data):
            yield self._outputs(rows, texts)

    def _encoded(self, data: Any) -> Iterator[tuple[npt.NDArray[Any], list[str] | None]]:
        """Encoded rows, a piece at a time; and the texts, where they are texts."""
        if isinstance(self.encoder, ImageEncoder):
            for paths in tables.image_pieces(image_paths(data, self.run.source.image_column)):
                images, sound = self.encoder.encode(paths)
                if not all(sound):
                    bad = paths[sound.index(False)]
                    raise DataError(f"{bad} cannot be read as an image; remove it and run again")
                yield images, None
            return
        for piece in _tables(data, self.encoder, self.run.source.commas):
            column = getattr(self.encoder, "column", None)
            texts = None if column is None else text_of(piece, column)
            yield self.encoder.encode(piece), texts

    def _all(self, data: Any) -> Outputs:
        pieces = list(self.pieces(data))
        return np.concatenate(pieces) if pieces else np.empty((0, len(self.classes) or 1))

    def _outputs(self, encoded: npt.NDArray[Any], texts: list[str] | None) -> Outputs:
        if self._winner is not None:
            said = self._winner.probabilities(encoded, texts)
            return said if self.classes else said[:, 0] * self._scale + self._centre
        inputs = torch.from_numpy(encoded)
        part = Part(inputs, torch.arange(len(inputs)), torch.zeros(len(inputs)), torch.empty(0))
        raw = torch.cat(list(outputs(self._model, part, self._options))).double()
        if self.classes:
            return np.asarray(raw.softmax(1).numpy())
        return np.asarray(raw.numpy() * self._scale + self._centre)


def load(run: str | Path) -> Predictor:
    """The model of a finished run folder, with its encoder."""
    return Predictor(open_run(Path(run), needs=RunFile.SUMMARY))


def write_predictions(
    run: Path, data: Path, out: Path, *, encoding: str = "utf-8", force: bool = False
) -> int:
    """Predict for every row of `data`; how many there were. `force` replaces a file that is there."""
    check_output(out, open_run(run, needs=RunFile.SUMMARY), reads=data, force=force)
    return write_rows(out, _predictions(load(run), data, encoding))


def _predictions(predictor: Predictor, data: Path, encoding: str) -> Iterator[tables.Piece]:
    images = isinstance(predictor.encoder, ImageEncoder)
    source: Any = data if images else tables.open_table(data, encoding=encoding)
    column = predictor.run.source.image_column
    names = image_paths(data, column) if images else None
    first = 0
    for predicted in predictor.pieces(source):
        columns: dict[str, Any] = {"index": np.arange(first, first + len(predicted))}
        if names is not None:
            here = names[first : first + len(predicted)]
            columns["file"] = [
                getattr(f, "name", "") if isinstance(f, tables.ImageCell) else str(f) for f in here
            ]
        if predictor.classes:
            columns["predicted"] = [predictor.classes[c] for c in predicted.argmax(1)]
            for k, name in enumerate(predictor.classes):
                columns[f"p_{name}"] = predicted[:, k]
        else:
            columns["predicted"] = predicted
        yield tables.arrow().table(columns)
        first += len(predicted)
    if not first:
        raise DataError(f"{data} has no rows; expected rows to predict for")


def image_paths(data: Any, column: str | None = None) -> Sequence[tables.ImageFile]:
    """The images of a folder, an archive or a column of a table, one image, or the list given."""
    if not isinstance(data, (str, Path)):
        return [Path(entry) for entry in data]
    path = Path(data)
    if not path.exists() and not tables.is_shards(path):
        raise DataError(f"there is no {path}; expected an image or a folder of images")
    if tables.holds_cells(path):
        return tables.open_image_cells(path, image_column(path, column)).members
    several = path.is_dir() or tables.is_image_archive(path)
    images = list(tables.list_images(path).values()) if several else [path]
    if not images:
        raise DataError(f"{path} has no images")
    return images


def image_column(path: Path, named: str | None = None) -> str:
    """The column of a table that holds images: `named` if it is there, else the only one."""
    columns = tables.image_columns(path)
    if named in columns or len(columns) == 1:
        return named if named is not None and named in columns else columns[0]
    what = f"several: {', '.join(columns)}" if columns else "none"
    raise DataError(f"{path} has no column {named or 'of images'!r} of images, but {what}")


def _tables(data: Any, encoder: Encoder, commas: Sequence[str]) -> Iterator[tables.Piece]:
    """The columns that `encoder` needs of a table, a frame, or a list of texts."""
    assert not isinstance(encoder, ImageEncoder), "tables have an encoder of their own"
    if isinstance(data, (str, Path)):
        data = tables.open_table(data)
    if isinstance(data, tables.Table):
        yield from data.with_commas(commas).pieces(encoder.needs)
        return
    if not hasattr(data, "columns"):
        if isinstance(encoder, TableEncoder):
            raise DataError(
                f"cannot predict for {type(data).__name__}; expected a path, a DataFrame"
            )
        data = tables.pandas().DataFrame({encoder.column: list(data)})
    for name in encoder.needs:
        if name not in data.columns:
            raise DataError(
                f"the frame has no column {name!r}; expected {', '.join(encoder.needs)}"
            )
    arrays = [_array(data[name]) for name in encoder.needs]
    table = tables.arrow().Table.from_arrays(arrays, list(encoder.needs))
    yield from table.to_batches(tables.PIECE_ROWS)


def _array(column: Any) -> tables.Array:
    """A column of a frame; cells of several types become text."""
    pa = tables.arrow()
    try:
        array = pa.array(column, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if cell is None else str(cell) for cell in column], pa.string())
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
