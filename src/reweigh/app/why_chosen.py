"""Why a candidate was kept, in one or two plain sentences."""

from collections.abc import Mapping, Sequence

from ..candidates import Member, Reals, standing
from ..runs import CandidateFigures
from .verdicts import Verdicts

SHOWN = 3


def why_chosen(
    figures: Sequence[CandidateFigures],
    rights: Mapping[str, Reals],
    verdicts: Verdicts,
    members: Sequence[Member],
) -> str:
    """`figures` best first; `members` are what is kept."""
    if len(figures) == 1:
        return f"{_capital(figures[0].title)}: the one that was asked for."
    means = standing(rights)
    best = figures[0]
    kept = next(each for each in figures if each.chosen)
    titles = {each.name: each.title for each in figures}
    what = _capital(kept.title)
    if len(members) > 1:
        largest = sorted(members, key=lambda member: -member.weight)
        named = [f"{m.weight:.0%} {titles[m.name]}" for m in largest[:SHOWN]]
        more = [f"and {len(largest) - SHOWN} more"] if len(largest) > SHOWN else []
        what += " (" + "; ".join(named + more) + ")"
    sentence = f"{what} was kept: {verdicts.told(means[kept.name])}"
    if kept is best or means[kept.name] >= means[best.name]:
        sentence += "; no other is better."
    else:
        sentence += (
            f". {_capital(best.title)} has {verdicts.short(means[best.name])}, which is not clearly more "
            "than luck on so few rows, and the steadier one is taken."
        )
    ours = means.get("reweigh")
    if ours is not None and ours < means[kept.name] and kept.name != "reweigh":
        sentence += (
            f" Reweighing the network alone: {verdicts.short(ours)}; here the other way is better."
        )
    return sentence


def _capital(title: str) -> str:
    return title[:1].upper() + title[1:]
