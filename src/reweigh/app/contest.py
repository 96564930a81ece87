"""All candidates judged, the best kept: what `reweigh train` does after the reweighed network is trained.

    judged by    cross-validation over the checked rows; the rows of --test, if there are any
    kept         the steadiest, unless one is ahead by a standard error (candidates/choice.py)
    files        candidates/NAME.npz as each is judged, so that a run that is stopped goes on;
                 winner.json and winner.safetensors

A network for images is judged on IMAGE_FOLDS parts of the checked rows: each takes a whole training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .. import candidates as all_candidates
from ..candidates import (
    BLEND,
    Candidate,
    Folds,
    Judgement,
    Model,
    PlainCandidate,
    PlainModel,
    Reals,
)
from ..errors import unknown
from ..files import whole_file
from ..runs import CandidateFigures, RunFile
from .inspection import Say
from .network_candidates import TITLES, NetworkCandidate, NetworkModel, NetworkRuns
from .options import Options
from .plain_rows import PlainRows, plain_rows
from .preparation import Prepared
from .why_chosen import why_chosen
from .winner_file import KeptPart, save_winner

FEWEST = 10
"""Fewer checked rows than this cannot judge anything."""
IMAGE_FOLDS = 3
QUICK = ("reweigh", "linear_checked", "linear_all")
BLEND_TITLE = "blend of several"
STEADY = (BLEND, "linear_corrected", "reweigh")
"""What is kept where the judging rows do not clearly say otherwise; the first that was tried."""


@dataclass(frozen=True, eq=False)
class Contest:
    """How it ended.

    figures      of all candidates, the best first
    judged_by    "cross-validation" or "test"; `rows` that judged, and what they say of the choice:
    honest       [rows] right or not, by a choice in which the row had no part
    test_right   [test rows] right or not, by the winner; empty if nothing is kept for judging
    posterior    [train rows] of the given label; NaN where unknown
    """

    figures: tuple[CandidateFigures, ...]
    chosen: str
    judged_by: str
    honest: Reals
    test_right: Reals
    posterior: Reals
    why: str


@dataclass(frozen=True, eq=False)
class _Judges:
    """Labels of the rows that judge, and how they are dealt into parts."""

    by: str
    labels: all_candidates.Places
    folds: Sequence[Folds]


class Arena:
    """The candidates of a run, and what is needed to judge and keep them."""

    def __init__(
        self,
        prepared: Prepared,
        networks: NetworkRuns,
        options: Options,
        folder: Path,
        say: Say,
        tell: Callable[[str, int, int], None],
    ) -> None:
        self.prepared, self.folder, self.say, self.tell = prepared, folder, say, tell
        self.rows: PlainRows = plain_rows(prepared, seed=options.seed, say=say)
        trees = prepared.inspected.kind == "table"
        of_networks: list[Candidate] = [NetworkCandidate(name, networks) for name in TITLES]
        of_plain = all_candidates.plain_candidates(self.rows.data, trees=trees, seed=options.seed)
        known = {c.name: c for c in [*of_networks, *of_plain]}
        names = names_for(prepared.inspected.kind, options)
        members = all_candidates.MEMBERS[prepared.inspected.kind]
        self.members = [name for name in members if name in names]
        self.candidates: dict[str, Candidate] = {name: known[name] for name in names}
        self.judges = self._judges(options)

    def _judges(self, options: Options) -> _Judges:
        task = self.prepared.task
        if self.prepared.judged_on == "test":
            labels = task.test.targets.numpy()
            return _Judges(
                "test", labels, all_candidates.deal(labels, parts=2, repeats=1, seed=options.seed)
            )
        labels = task.clean.targets.numpy()
        folds = all_candidates.usual_folds(labels, seed=options.seed)
        return _Judges("cross-validation", labels, folds)

    def hold(self) -> Contest:
        """Judge all, keep one."""
        judged = {name: self._judged(each) for name, each in self.candidates.items()}
        judges = self.judges
        if len(self.members) > 1:
            judged[BLEND] = all_candidates.blend(judged, self.members)
        rights = {name: each.right(judges.labels) for name, each in judged.items()}
        chosen = all_candidates.choose(rights, STEADY)
        honest = all_candidates.honest_right(rights, STEADY, judges.folds[0])
        everything = np.arange(len(self.prepared.task.clean))
        models = {
            name: self.candidates[name].fit(everything)[judged[name].variant]
            for name in (self.members if chosen == BLEND else [chosen])
        }
        parts = [self._kept(name, model) for name, model in models.items()]
        save_winner(self.folder, chosen, parts, self.rows.ngrams)
        figures = self._figures(judged, rights, chosen)
        return Contest(
            figures, chosen, judges.by, honest, self._test_right(list(models.values())),
            self._posterior(judged), why_chosen(figures, rights, judges.by, list(models)),
        )  # fmt: skip

    def _judged(self, candidate: Candidate) -> Judgement:
        """From its file, or now."""
        path = self.folder / RunFile.CANDIDATES / f"{candidate.name}.npz"
        if path.exists():
            with np.load(path, allow_pickle=False) as known:
                return Judgement(candidate.name, known["probabilities"], int(known["variant"]))
        judges, checked = self.judges, len(self.prepared.task.clean)
        self.tell(candidate.name, 0, 1)
        if judges.by == "test":
            judgement = all_candidates.judge_once(
                candidate, judges.labels, judges.folds, checked=checked
            )
        else:
            judgement = all_candidates.judge(
                candidate, judges.labels, judges.folds, classes=len(self.prepared.classes),
                most=self._most(candidate.name),
                tell=lambda done, total: self.tell(candidate.name, done, total),
            )  # fmt: skip
        path.parent.mkdir(exist_ok=True)
        with whole_file(path) as stream:
            np.savez(stream, probabilities=judgement.probabilities, variant=judgement.variant)
        self.say(f"{candidate.title}: {np.nanmean(judgement.right(judges.labels)):.1%}")
        return judgement

    def _most(self, name: str) -> int | None:
        """Fits for judging a candidate: folds are dealt again only for what is quick."""
        if name in TITLES and self.prepared.inspected.kind == "images":
            return IMAGE_FOLDS
        return None if name.startswith("linear") else len(self.judges.folds[0])

    def _kept(self, name: str, model: Model) -> KeptPart:
        if isinstance(model, NetworkModel):
            return KeptPart(name, "encoded", model.network)
        assert isinstance(model, PlainModel), "there are two kinds"
        return KeptPart(name, self.rows.features, self.rows.as_saved(model.fitted))

    def _figures(
        self, judged: dict[str, Judgement], rights: dict[str, Reals], chosen: str
    ) -> tuple[CandidateFigures, ...]:
        classes, labels = self.prepared.classes, self.judges.labels
        found = []
        for name, judgement in judged.items():
            counts = all_candidates.confusion(judgement, labels, len(classes))
            each = all_candidates.figures(rights[name], counts)
            title = BLEND_TITLE if name == BLEND else self.candidates[name].title
            judged_rows = int((~np.isnan(rights[name])).sum())
            per_class = dict(zip(classes, each.per_class, strict=True))
            found.append(
                CandidateFigures(
                    name, title, each.accuracy, each.balanced_accuracy, each.macro_f1,
                    each.interval, name == chosen, judged_rows, per_class,
                )
            )  # fmt: skip
        means = all_candidates.standing(rights)
        return tuple(sorted(found, key=lambda f: -means[f.name]))

    def _test_right(self, models: Sequence[Model]) -> Reals:
        if not self.prepared.judged_on:
            return np.empty(0)
        said = np.mean([model.probabilities("test") for model in models], axis=0)
        truth = self.prepared.task.test.truth.numpy()
        return np.asarray((said.argmax(1) == truth).astype(np.float64))

    def _posterior(self, judged: dict[str, Judgement]) -> Reals:
        """Of the given label of each train row, by the corrected data that the judges like best."""
        found = np.full(len(self.prepared.task.train), np.nan)
        likely = {
            name: float(np.nansum(all_candidates.log_likelihood(judged[name].probabilities, self.judges.labels)))
            for name in judged
            if isinstance(each := self.candidates.get(name), PlainCandidate) and each.corrects
        }  # fmt: skip
        if likely:
            best = self.candidates[max(likely, key=likely.__getitem__)]
            assert isinstance(best, PlainCandidate), "only they correct labels"
            q = best.posterior(np.arange(len(self.prepared.task.clean)), judged[best.name].variant)
            found[self.rows.sample] = q[np.arange(len(q)), self.rows.data.given]
        return found


def names_for(kind: str, options: Options) -> tuple[str, ...]:
    """The candidates that are asked for."""
    every = (*TITLES, *all_candidates.plain_names(trees=kind == "table"))
    if options.method is not None:
        if options.method not in every:
            raise unknown("method", options.method, every)
        return (options.method,)
    return QUICK if options.quick else every
