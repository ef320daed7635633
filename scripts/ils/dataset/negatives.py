"""Negative instructions (ils.md section 7): what the report, and the picture, let us deny.

At most one per lesion type and study. A *basic* one names a random location of those where the type may be denied, a
*global* one names none. Nothing is denied where a finding of the type, or of a kind under it, stands or could stand.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ils.core import templates
from ils.core.labels import LESIONS, VALID_LOCATIONS, kinds_under
from ils.core.seeds import rng
from ils.dataset import pairs
from ils.dataset.pairs import Pair

CARDIOMEGALY, OPACITY = templates.CARDIOMEGALY, templates.OPACITY


@dataclass(frozen=True)
class Evidence:
    """What one study says for and against each lesion type. Locations are valid locations."""

    study_id: str
    empty: frozenset[str]
    """Locations no finding of any kind overlaps, is blocked into, or left a mask pixel in (section 6)."""
    blocked: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Lesion type -> locations that meet a positive or blocking finding of it or of a kind under it."""
    global_blocked: frozenset[str] = frozenset()
    """Lesion types that such a finding, or a related term, forbids to deny of the whole picture."""
    standing: frozenset[str] = frozenset()
    """Lesion types that are affirmed, hedged, a candidate or blocking themselves."""
    elsewhere: frozenset[str] = frozenset()
    """Those of ``standing`` that only the section that is not used names: it forbids denials and allows none."""
    related: frozenset[str] = frozenset()
    """Lesion types a neighbouring term of which stands (vascular congestion: edema): not denied anywhere."""
    negated: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Lesion type that is explicitly and definitely negated -> the locations inside what was negated."""
    everywhere: frozenset[str] = frozenset()
    """Those of ``negated`` that were negated without naming a place."""
    unclear: frozenset[str] = frozenset()
    """Lesion types neither affirmed nor denied though named ("no new consolidation")."""
    doubted: frozenset[str] = frozenset()
    """Lesion types negated with doubt ("unlikely")."""
    about_lungs: bool = True
    """Whether the section says something about lungs or pleura that is not a comparison alone."""
    ctr: float | None = None
    """Cardiothoracic ratio in original pixels."""


@dataclass(frozen=True)
class Choice:
    """What may be denied of one lesion type; ``reason`` tells why it is nothing."""

    basic: tuple[str, ...] = ()
    global_: bool = False
    reason: str | None = None


def choice(lesion: str, evidence: Evidence, *, kinds: str, ctr_negative_max: float) -> Choice:
    """Return what may be denied of ``lesion``. ``kinds`` strict: an opacity is not denied where a kind of it may be."""
    if lesion == CARDIOMEGALY:
        return _heart(evidence, ctr_negative_max)
    if lesion in evidence.related:
        return Choice(reason="related_term")
    affirmed = evidence.standing - evidence.elsewhere
    denied, positive = lesion in evidence.negated, lesion in affirmed
    under = (lesion, *kinds_under(lesion)) if kinds == "strict" else (lesion,)
    unclear = evidence.unclear.intersection(under)
    if unclear - affirmed - evidence.negated.keys() and not (denied or positive):
        return Choice(reason="neither_affirmed_nor_denied")
    if not (denied or positive or lesion in evidence.doubted or evidence.about_lungs):
        return Choice(reason="section_silent")

    allowed = (evidence.empty | evidence.negated.get(lesion, frozenset())) - evidence.blocked.get(lesion, frozenset())
    forbidden = evidence.global_blocked | evidence.standing | evidence.doubted
    whole = (
        (lesion in evidence.everywhere or evidence.about_lungs)
        and lesion not in forbidden
        and not unclear
        and (lesion != OPACITY or len(evidence.empty) == len(VALID_LOCATIONS))
    )
    basic = tuple(location for location in VALID_LOCATIONS if location in allowed)
    return Choice(basic, whole, None if basic or whole else "no_empty_location")


def _heart(evidence: Evidence, ctr_negative_max: float) -> Choice:
    said = evidence.standing | evidence.related | evidence.unclear | evidence.doubted | evidence.global_blocked
    if CARDIOMEGALY in said:
        return Choice(reason="heart_affirmed_or_hedged")
    if evidence.ctr is None or not evidence.ctr <= ctr_negative_max:
        return Choice(reason="wide_heart")
    return Choice(global_=True)


def negatives(
    evidence: Evidence,
    *,
    seed: int,
    global_share: Mapping[str, float],
    opacity_inference_share: float,
    kinds: str,
    ctr_negative_max: float,
    taken: Collection[str] = (),
) -> tuple[list[Pair], dict[str, str]]:
    """Return the negative pairs of a study in the order of the lesion types, and why each other type has none.

    Where both a basic and a global one are possible, ``global_share`` is the probability of the latter. ``taken`` are
    instructions that already have another answer in this study. Every random number depends on the seed, the study
    and the lesion type, and is drawn whether it is used or not.
    """
    made: list[Pair] = []
    reasons: dict[str, str] = {}
    for lesion in LESIONS:
        open_ = choice(lesion, evidence, kinds=kinds, ctr_negative_max=ctr_negative_max)
        random = rng(seed, evidence.study_id, lesion)
        draws = {name: random.random() for name in ("global", "inference", "place")}
        wants_global = lesion == CARDIOMEGALY or draws["global"] < global_share[lesion]
        wants_inference = lesion == OPACITY and draws["inference"] < opacity_inference_share
        kind = templates.INFERENCE if wants_inference else templates.BASIC
        basic = [place for place in open_.basic if templates.instruction(kind, lesion, [place]) not in taken]
        whole = open_.global_ and templates.instruction(templates.GLOBAL, lesion) not in taken
        if whole and wants_global:
            made.append(pairs.negative(templates.GLOBAL, lesion))
        elif basic:
            made.append(pairs.negative(kind, lesion, [basic[int(draws["place"] * len(basic))]]))
        elif whole:
            reasons[lesion] = "global_not_drawn"
        else:
            reasons[lesion] = open_.reason or "same_text"
    return made, reasons
