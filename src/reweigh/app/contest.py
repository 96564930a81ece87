"""All candidates judged, the best kept: what `reweigh train` does after the reweighed network is trained.

    judged by    cross-validation over the checked rows; the rows of --validation, or else those of
                 --test, if there are any
    kept         the blend of all, unless one is clearly ahead of it (candidates/blend.py, choice.py)
    files        candidates/NAME.npz as each is judged, so that a run that is stopped goes on;
                 winner.json and winner.safetensors

A network is judged on fewer parts of the checked rows where its training is long: see `network_folds`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .. import candidates as all_candidates
from ..candidates import (
    BLEND,
    Blend,
    Candidate,
    Folds,
    Judgement,
    Member,
    Model,
    PlainCandidate,
    PlainModel,
    Reals,
)
from ..errors import unknown
from ..files import whole_file
from ..runs import CandidateFigures, RunFile
from ..training import Config
from .inspection import Say
from .network_candidates import TITLES, NetworkCandidate, NetworkModel, NetworkRuns
from .options import Options
from .plain_rows import PlainRows, as_labels, plain_rows
from .preparation import Prepared
from .verdicts import Verdicts
from .why_chosen import why_chosen
from .winner_file import KeptPart, save_winner

FEWEST = 10
"""Fewer checked rows than this cannot judge anything."""
LONG, VERY_LONG = 200_000, 2_000_000
"""Examples in all steps of a training; an image counts as its numbers divided by `AN_EXAMPLE`."""
AN_EXAMPLE = 6
MOST_CLASSES, MOST_FOR_TREES = 300, 30
"""Classes for which plain models are tried at all, and trees, which grow one for each class."""
QUICK = ("reweigh", "linear_checked", "linear_all")
BLEND_TITLE = "blend of several"
STEADY = (BLEND, "reweigh")
"""What is kept where the judging rows do not clearly say otherwise."""


@dataclass(frozen=True, eq=False)
class Contest:
    """How it ended.

    figures      of all candidates, the best first
    judged_by    "cross-validation", "validation" or "test"; `rows` that judged, and what they say of the choice:
    honest       [rows] right or not, by a choice in which the row had no part; NaN where nothing judged it
    easy         [rows] how easy a row is for the candidates that all rows judged (candidates/expectation.py)
    test_right   [test rows] right or not, by the winner; empty if nothing is kept for judging.
                 Both are absolute errors in a regression
    posterior    [train rows] of the given label; NaN where unknown
    rows         as plain models take them
    """

    figures: tuple[CandidateFigures, ...]
    chosen: str
    judged_by: str
    honest: Reals
    easy: Reals | None
    test_right: Reals
    posterior: Reals
    why: str
    rows: PlainRows


@dataclass(frozen=True, eq=False)
class _Judges:
    """Labels of the rows that judge, and how they are dealt into parts."""

    by: str
    labels: all_candidates.Labels
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
        rows: PlainRows | None = None,
    ) -> None:
        self.prepared, self.folder, self.say, self.tell = prepared, folder, say, tell
        self.rows: PlainRows = rows or plain_rows(prepared, seed=options.seed, say=say)
        of_networks: list[Candidate] = [NetworkCandidate(name, networks) for name in TITLES]
        names, self.plan = names_for(prepared, options), networks.plan
        self.blends = options.model is None  # a network of the user's own is one network
        make = (
            all_candidates.plain_candidates
            if prepared.classes
            else all_candidates.number_candidates
        )
        trees = prepared.inspected.kind == "table"
        of_plain = make(self.rows.data, trees=trees, seed=options.seed, library=options.trees)
        known = {c.name: c for c in [*of_networks, *of_plain]}
        self.candidates: dict[str, Candidate] = {name: known[name] for name in names}
        self.judges = self._judges(options)
        self.verdicts = Verdicts(
            self.judges.labels, prepared.classes, prepared.target_scale.scale, self.judges.by
        )

    def _judges(self, options: Options) -> _Judges:
        task = self.prepared.task
        if self.prepared.validated or self.prepared.judged_on == "test":
            by = "validation" if self.prepared.validated else "test"
            labels = as_labels((task.hyper_validation if by == "validation" else task.test).targets)
            return _Judges(
                by, labels, all_candidates.deal(labels, parts=2, repeats=1, seed=options.seed)
            )
        labels = as_labels(task.clean.targets)
        folds = all_candidates.usual_folds(labels, seed=options.seed)
        return _Judges("cross-validation", labels, folds)

    def hold(self) -> Contest:
        """Judge all, keep one."""
        judged = {name: self._judged(each) for name, each in self.candidates.items()}
        judges, mixture = self.judges, None
        if len(judged) > 1 and self.blends:
            mixture = all_candidates.blend([*judged.values()], judges.labels, judges.folds[0])
            judged[BLEND] = mixture.judgement
        rights = {name: each.right(judges.labels) for name, each in judged.items()}
        chosen = all_candidates.choose(rights, STEADY)
        honest = all_candidates.honest_right(rights, STEADY, judges.folds[0])
        members = _members(chosen, mixture)
        everything = np.arange(len(self.prepared.task.clean))
        models = {
            each.name: self.candidates[each.name].fit(everything)[judged[each.name].variant]
            for each in members
        }
        parts = [self._kept(each, models[each.name]) for each in members]
        save_winner(self.folder, chosen, parts, self.rows.ngrams)
        titles = {BLEND: BLEND_TITLE, **{name: c.title for name, c in self.candidates.items()}}
        figures = self.verdicts.figures(judged, rights, titles, chosen)
        # The blend's weights come from the test rows, if these judge: its cross-fitted figure is honest.
        right = rights[chosen] if judges.by == "test" else self._test_right(members, models)
        return Contest(
            figures, chosen, judges.by, self.verdicts.values(honest), self._easy(rights),
            self.verdicts.values(right), self._posterior(judged), why_chosen(figures, rights, self.verdicts, members), self.rows,
        )  # fmt: skip

    def _judged(self, candidate: Candidate) -> Judgement:
        """From its file, or now."""
        path = self.folder / RunFile.CANDIDATES / f"{candidate.name}.npz"
        if path.exists():
            with np.load(path, allow_pickle=False) as known:
                return Judgement(candidate.name, known["probabilities"], int(known["variant"]))
        judges, checked = self.judges, len(self.prepared.task.clean)
        self.tell(candidate.name, 0, 1)
        if judges.by != "cross-validation":
            judgement = all_candidates.judge_once(
                candidate, judges.labels, judges.folds, checked=checked, part=judges.by
            )
        else:
            judgement = all_candidates.judge(
                candidate, judges.labels, judges.folds, classes=len(self.prepared.classes) or 1,
                most=self._most(candidate.name),
                tell=lambda done, total: self.tell(candidate.name, done, total),
            )  # fmt: skip
        path.parent.mkdir(exist_ok=True)
        with whole_file(path) as stream:
            np.savez(stream, probabilities=judgement.probabilities, variant=judgement.variant)
        place = list(self.candidates).index(candidate.name) + 1
        said = self.verdicts.short(float(np.nanmean(judgement.right(judges.labels))))
        self.say(f"{place} of {len(self.candidates)}: {candidate.title}: {said}")
        return judgement

    def _most(self, name: str) -> int | None:
        """Fits for judging a candidate: folds are dealt again only for what is quick."""
        once = len(self.judges.folds[0])
        if name in TITLES:
            return min(once, network_folds(self.plan, self.prepared))
        return None if name.startswith("linear") else once

    def _kept(self, member: Member, model: Model) -> KeptPart:
        if isinstance(model, NetworkModel):
            return KeptPart(member, "encoded", model.network)
        assert isinstance(model, PlainModel), "there are two kinds"
        return KeptPart(member, self.rows.features, self.rows.as_saved(model.fitted))

    def _easy(self, rights: Mapping[str, Reals]) -> Reals | None:
        easy = all_candidates.easiness(rights)
        return None if easy is None else self.verdicts.values(easy)

    def _test_right(self, members: Sequence[Member], models: Mapping[str, Model]) -> Reals:
        if not self.prepared.judged_on:
            return np.empty(0)
        each = {name: model.probabilities("test") for name, model in models.items()}
        said = all_candidates.mixed(members, each)
        truth = as_labels(self.prepared.task.test.truth)
        return Judgement(BLEND, said[None], 0).right(truth)

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


def _members(chosen: str, mixture: Blend | None) -> tuple[Member, ...]:
    """What the chosen one is made of; most are themselves."""
    if chosen != BLEND:
        return (Member(chosen, 1.0, 1.0),)
    assert mixture is not None, "chosen, so it was judged"
    return mixture.members


def network_folds(plan: Config, prepared: Prepared) -> int:
    """On how many parts a network is judged, by the size of its training, not by the clock."""
    size: float = plan.steps * plan.batch.size
    if prepared.inspected.kind == "images":
        size *= math.prod(prepared.inspected.encoder.shape) / AN_EXAMPLE
    return 5 if size <= LONG else 3 if size <= VERY_LONG else 1


def names_for(prepared: Prepared, options: Options) -> tuple[str, ...]:
    """The candidates that are asked for, of those for such data."""
    kind, classes = prepared.inspected.kind, len(prepared.classes)
    trees = kind == "table" and classes <= MOST_FOR_TREES
    if trees:
        all_candidates.boosting_of(
            options.trees, seed=options.seed
        )  # refused now, if it is not there
    plain = all_candidates.plain_names(trees=trees, numbers=not classes)
    every = (*TITLES, *(plain if classes <= MOST_CLASSES and options.model is None else ()))
    if options.method is not None:
        if options.method not in every:
            raise unknown("method", options.method, every)
        return (options.method,)
    return tuple(name for name in every if name in QUICK or not options.quick)
