"""How right the list has been so far, by the person's own decisions.

    wrong       rows that were relabelled or dropped, of those decided one by one (not in groups, not skipped)
    interval    95%, Wilson's: (p + z^2 / 2n +- z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)

It is the share of wrong labels among the rows that were looked at. One who goes through the list from its
top sees the surest first, so further down the share is smaller.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from .decisions import Decision

FEWEST = 5
"""Decisions below this say nothing."""
Z = 1.96


@dataclass(frozen=True)
class ListPrecision:
    """`wrong` of `looked` labels were wrong; `taken` of the `relabelled` ones got the suggested label."""

    looked: int
    wrong: int
    relabelled: int
    taken: int

    @property
    def known(self) -> bool:
        """Whether there are enough decisions to say anything."""
        return self.looked >= FEWEST

    @property
    def interval(self) -> tuple[float, float]:
        """Of the share of wrong labels; for one look or more."""
        n, p = self.looked, self.wrong / self.looked
        centre, half = p + Z**2 / (2 * n), Z * (p * (1 - p) / n + Z**2 / (4 * n**2)) ** 0.5
        return (centre - half) / (1 + Z**2 / n), (centre + half) / (1 + Z**2 / n)


def list_precision(decided: Iterable[tuple[Decision, str | None]]) -> ListPrecision:
    """From standing decisions, each with the label that was suggested."""
    by_hand = [pair for pair in decided if pair[0].group is None and pair[0].action != "skip"]
    relabelled = [pair for pair in by_hand if pair[0].action == "relabel"]
    dropped = sum(made.action == "drop" for made, _ in by_hand)
    taken = sum(made.label == suggested for made, suggested in relabelled)
    return ListPrecision(len(by_hand), len(relabelled) + dropped, len(relabelled), taken)
