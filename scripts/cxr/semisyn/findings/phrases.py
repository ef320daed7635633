"""Read side and zone of a finding from its prompt, and draw prompts by their weights."""

import re
from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate

from cxr.base.vocabulary import SIDES
from cxr.semisyn.findings.catalogue import WHOLE_LUNG, Catalogue, Parser, Zone

BOTH, ANY = "both", "any"


def parse_prompt(prompt: str, parser: Parser) -> tuple[str, str]:
    """Return the side (``right``, ``left``, ``both``, ``any``) and the zone ("" for none) that a prompt names."""
    text = prompt.lower()
    return _first_match(text, parser.sides, ANY), _first_match(text, parser.zones, "")


def _first_match(text: str, rules: list[tuple[str, str]], otherwise: str) -> str:
    return next((result for pattern, result in rules if re.search(pattern, text)), otherwise)


def choose_sides(side: str, unsided: str, coin: float) -> tuple[str, ...]:
    """Return the lungs that get a box. ``unsided``: lungs of a prompt without a side, ``both`` or ``one``.

    ``coin``: uniform in [0, 1), chooses the one lung of a prompt without a side.
    """
    if side == BOTH or (side == ANY and unsided == BOTH):
        return SIDES
    return (SIDES[int(coin >= 0.5)],) if side == ANY else (side,)


def zone_bounds(zone: str, side: str, catalogue: Catalogue) -> tuple[str, Zone]:
    """Return the zone used in a lung and its box in percent, mirrored so that x is 0 at the lateral edge.

    A lobe that the lung lacks is replaced (``Parser.instead``). Raises KeyError for an unknown zone.
    """
    if not zone:
        return "", WHOLE_LUNG
    if zone not in catalogue.zones[side]:
        zone = catalogue.parser.instead[zone]
    x1, y1, x2, y2 = catalogue.zones[side][zone]
    return zone, (x1, y1, x2, y2) if side == SIDES[0] else (100.0 - x2, y1, 100.0 - x1, y2)


def draw_prompt(prompts: Mapping[str, float], uniform: float) -> str:
    """Return the prompt at ``uniform`` in [0, 1) of the weights, which are divided by their sum."""
    sums = list(accumulate(prompts.values()))
    return list(prompts)[min(bisect_right(sums, uniform * sums[-1]), len(prompts) - 1)]
