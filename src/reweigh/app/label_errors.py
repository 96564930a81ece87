"""How many labels are wrong, for the summary of a run; and what is kept of the sentinels (sentinels.npz)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..errors import DataError
from ..files import whole_file
from ..runs import (
    FALSE_ALARMS,
    CalibrationBin,
    ClassErrors,
    Estimate,
    LabelErrors,
    PairErrors,
    RunFile,
    SourceErrors,
)
from ..sentinels import FEWEST_PAIRS, LabelJudgement, Sentinels, source_weights
from .label_doubts import LabelDoubts
from .label_sources import LabelSources
from .preparation import Prepared

MOST = 200
"""Classes, pairs and sources that are listed."""
_OWN = ("row", "true", "label", "weight", "draws")
_JUDGED = ("p_wrong", "suggested", "p_suggested", "flagged_from")


def label_errors(
    prepared: Prepared,
    doubts: LabelDoubts,
    sources: LabelSources | None = None,
    *,
    weighed: bool = False,
) -> LabelErrors:
    """For the summary; `weighed`: sources have weights."""
    found = doubts.found
    per_class, pairs = _by_class(prepared, doubts)
    bins = _calibration(found.sentinels)
    return LabelErrors(
        checked=len(np.unique(found.sentinels.row)),
        pairs_known=found.by_pairs,
        pairs_found=int((prepared.checked_given[prepared.task.clean.ids.numpy()] >= 0).sum()),
        pairs_needed=FEWEST_PAIRS,
        wrong=found.joint.errors(),
        right_share=found.right_share,
        flagged=int((doubts.flagged_from <= FALSE_ALARMS).sum()),
        per_class=per_class,
        pairs=pairs,
        calibration=bins,
        error=float(sum(each.weight * abs(each.said - each.wrong) for each in bins)),
        sources=()
        if sources is None
        else _by_source(doubts, sources, len(prepared.classes) if weighed else None),
    )


def _by_class(
    prepared: Prepared, doubts: LabelDoubts
) -> tuple[tuple[ClassErrors, ...], tuple[PairErrors, ...]]:
    joint, names = doubts.found.joint, prepared.classes
    calls = np.bincount(prepared.task.train.targets.numpy(), minlength=len(names))
    of_calls = np.maximum(joint.shares.sum(0), 1e-12)
    classes = []
    for g in np.flatnonzero(calls):
        errors, part = joint.errors(int(g)), float(of_calls[g])
        wrong = Estimate(errors.share / part, errors.low / part, min(errors.high / part, 1.0))
        classes.append(ClassErrors(names[g], int(calls[g]), wrong))
    off = joint.shares * (1 - np.eye(len(names)))
    order = np.argsort(-off, axis=None)[:MOST]
    places = [divmod(int(place), len(names)) for place in order]
    pairs = [
        PairErrors(names[g], names[y], joint.errors(g, y)) for y, g in places if off[y, g] > 1e-4
    ]
    classes.sort(key=lambda each: -each.rows * each.wrong.share)
    return tuple(classes[:MOST]), tuple(pairs)


def _calibration(sentinels: Sentinels) -> tuple[CalibrationBin, ...]:
    """By tenths of p_wrong."""
    p, weight = sentinels.judged.p_wrong, sentinels.weight / sentinels.weight.sum()
    tenth = np.minimum((10 * p).astype(int), 9)
    bins = []
    for k in range(10):
        here = tenth == k
        total = float(weight[here].sum())
        if total > 0:
            said, wrong = (
                float(weight[here] @ values[here]) / total for values in (p, sentinels.wrong)
            )
            bins.append(CalibrationBin(said, wrong, total))
    return tuple(bins)


def _by_source(
    doubts: LabelDoubts, sources: LabelSources, classes: int | None
) -> tuple[SourceErrors, ...]:
    """The commonest sources, the worst first; with their weights, if `classes` are given."""
    found = sources.rates(doubts.p_wrong)
    if found is None:
        return ()
    present, rates = found
    weights = None if classes is None else source_weights(rates, classes)
    kept = np.argsort(-rates.rows, kind="stable")[:MOST]
    kept = kept[np.argsort(-rates.rate[kept], kind="stable")]
    return tuple(
        SourceErrors(
            sources.names[present[k]],
            int(rates.rows[k]),
            Estimate(float(rates.rate[k]), float(rates.low[k]), float(rates.high[k])),
            None if weights is None else float(weights[k]),
        )
        for k in kept
    )


def save_sentinels(folder: Path, sentinels: Sentinels) -> None:
    """sentinels.npz."""
    values = {name: getattr(sentinels, name) for name in _OWN}
    values |= {name: getattr(sentinels.judged, name) for name in _JUDGED}
    values["draws"] = values["draws"].astype(np.float32)
    with whole_file(folder / RunFile.SENTINELS) as stream:
        np.savez_compressed(stream, **values)


def read_sentinels(folder: Path) -> Sentinels:
    """Back again."""
    path = folder / RunFile.SENTINELS
    try:
        with np.load(path, allow_pickle=False) as content:
            values = {name: content[name] for name in (*_OWN, *_JUDGED)}
    except FileNotFoundError:
        raise DataError(
            f"there is no {path}: the run has too few checked rows, predicts numbers, or is of an "
            "earlier version; expected a run of `reweigh train` with 10 checked rows or more"
        ) from None
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise DataError(f"{path} is damaged ({error}); train again") from None
    judged = LabelJudgement(*(values[name] for name in _JUDGED))
    own = {name: values[name] for name in _OWN}
    return Sentinels(**own | {"judged": judged, "draws": own["draws"].astype(np.float64)})
