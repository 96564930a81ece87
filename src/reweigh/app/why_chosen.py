"""Why a candidate was kept, in one or two plain sentences."""

from collections.abc import Mapping, Sequence

from ..candidates import Member, Reals, standing
from ..runs import CandidateFigures

SHOWN = 3


def why_chosen(
    figures: Sequence[CandidateFigures],
    rights: Mapping[str, Reals],
    judged_by: str,
    members: Sequence[Member],
) -> str:
    """`figures` best first; `members` are what is kept."""
    if len(figures) == 1:
        return f"{_capital(figures[0].title)}: the one that was asked for."
    where = "of the test rows" if judged_by == "test" else "of the checked rows"
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
    sentence = f"{what} was kept: right on {_share(means[kept.name])} {where}"
    if kept is best or means[kept.name] >= means[best.name]:
        sentence += ", as many as any other or more."
    else:
        ahead = 100 * (means[best.name] - means[kept.name])
        sentence += (
            f". {_capital(best.title)} is {ahead:.1f} points ahead, not clearly more than luck on so "
            "few rows, and the steadier one is taken."
        )
    ours = means.get("reweigh")
    if ours is not None and ours < means[kept.name] and kept.name != "reweigh":
        sentence += (
            f" Reweighing the network alone gets {_share(ours)}: here the other way is better."
        )
    return sentence


def _share(accuracy: float) -> str:
    return f"{100 * accuracy:.1f}%"


def _capital(title: str) -> str:
    return title[:1].upper() + title[1:]
