"""Set the bars of the draws for negatives, so that the dataset comes as close as possible to the shares of Table 10.

Shares count negatives, not draws. If a report leaves only one way open, it is taken, and other studies compensate. So
the open ways of all studies, over all shards, are counted first. The bars do not depend on the order of the studies.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor

from cxr.base.vocabulary import LESIONS
from cxr.ils import templates
from cxr.ils.dataset.negatives import OPACITY, Bars, DenialDraws, OpenWays


@dataclass
class _Ways:
    """Numbers of studies with only one of two ways open, and the draws of studies with both open."""

    first_alone: int = 0
    second_alone: int = 0
    draws: list[float] = field(default_factory=list)

    def add(self, first: bool, second: bool, draw: float) -> None:
        """Count a study with at least one of the two ways open."""
        if first and second:
            self.draws.append(draw)
        else:
            self.first_alone += first
            self.second_alone += second

    def bar(self, share: float) -> float:
        """Return the bar at which the fraction of studies that take the first way is closest to ``share``.

        0 or 1 if the reports do not allow that share.
        """
        num_studies = len(self.draws) + self.first_alone + self.second_alone
        num_below_bar = floor(Fraction(repr(float(share))) * num_studies + Fraction(1, 2)) - self.first_alone
        if num_below_bar >= len(self.draws):
            return 1.0
        return sorted(self.draws)[num_below_bar] if num_below_bar > 0 else 0.0


class Census:
    """Counts the open ways of all studies by lesion type."""

    def __init__(self) -> None:
        self._ways = {lesion: _Ways() for lesion in LESIONS}
        self._opacities: list[tuple[bool, Sequence[str], DenialDraws]] = []

    def add(self, lesion: str, ways: OpenWays, lesion_draws: DenialDraws) -> None:
        """Count a study that may deny ``lesion``. Call once per study and lesion type."""
        self._ways[lesion].add(ways.anywhere, bool(ways.places), lesion_draws.global_)
        if lesion == OPACITY and ways.places:
            self._opacities.append((ways.anywhere, tuple(ways.places), lesion_draws))

    def bars(self, global_share: Mapping[str, float], inference_share: float) -> Bars:
        """Return the bars that make ``global_share`` of each lesion type's negatives global.

        Of opacity's other negatives, which name a location, ``inference_share`` become lesion inferences.
        """
        global_bars = {lesion: self._ways[lesion].bar(share) for lesion, share in global_share.items()}
        at_places = _Ways()
        for global_open, kinds, lesion_draws in self._opacities:
            if not (global_open and lesion_draws.global_ < global_bars[OPACITY]):
                at_places.add(templates.INFERENCE in kinds, templates.BASIC in kinds, lesion_draws.inference)
        return Bars(global_bars, at_places.bar(inference_share))
