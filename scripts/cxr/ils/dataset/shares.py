"""The bars of the draws for negatives, so that the whole dataset has the shares of Table 10 as nearly as it can.

A share is one of the negatives made, not of the draws: where a report leaves one way open, that way is taken, and the
draws of the other studies make up for it. So what each study leaves open is counted first, over all shards. The draws
are those of each study alone; only the bar that they are held against is common, and it depends on no order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor

from cxr.base.vocabulary import LESIONS
from cxr.ils import templates
from cxr.ils.dataset.negatives import OPACITY, Bars, Draws, Open


@dataclass
class _Ways:
    """How many studies leave one way open of two, and the draws of those that leave both."""

    first_alone: int = 0
    second_alone: int = 0
    draws: list[float] = field(default_factory=list)

    def add(self, first: bool, second: bool, draw: float) -> None:
        """Count a study; one of the two ways at least is open."""
        if first and second:
            self.draws.append(draw)
        else:
            self.first_alone += first
            self.second_alone += second

    def bar(self, share: float) -> float:
        """Return the bar below which so many draws lie that ``share`` of all studies, to the nearest, go the first way.

        0 or 1 where what the reports leave open does not allow as much, or as little.
        """
        whole = len(self.draws) + self.first_alone + self.second_alone
        wanted = floor(Fraction(repr(float(share))) * whole + Fraction(1, 2)) - self.first_alone
        if wanted >= len(self.draws):
            return 1.0
        return sorted(self.draws)[wanted] if wanted > 0 else 0.0


class Census:
    """What every study leaves open, one lesion type after the other: a few numbers a study where there is a choice."""

    def __init__(self) -> None:
        self._ways = {lesion: _Ways() for lesion in LESIONS}
        self._opacities: list[tuple[bool, Sequence[str], Draws]] = []

    def add(self, lesion: str, ways: Open, drawn: Draws) -> None:
        """Count a study that may deny ``lesion``; call it once a study and lesion type."""
        self._ways[lesion].add(ways.whole, bool(ways.places), drawn.global_)
        if lesion == OPACITY and ways.places:
            self._opacities.append((ways.whole, tuple(ways.places), drawn))

    def bars(self, global_share: Mapping[str, float], inference_share: float) -> Bars:
        """Return the bars that make ``global_share`` of each lesion type's negatives global ones.

        Of opacity's others, which name a place, ``inference_share`` become a lesion inference.
        """
        found = {lesion: self._ways[lesion].bar(share) for lesion, share in global_share.items()}
        at_places = _Ways()
        for whole, kinds, drawn in self._opacities:
            if not (whole and drawn.global_ < found[OPACITY]):
                at_places.add(templates.INFERENCE in kinds, templates.BASIC in kinds, drawn.inference)
        return Bars(found, at_places.bar(inference_share))
