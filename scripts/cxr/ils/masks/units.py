"""Make the positive units: the positive instructions before their text (ils.md section 7).

A rule marked ``strict`` forbids pairs that the report contradicts, although the paper's wording allows them.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cxr.base.vocabulary import HEART, INFERRED_LESIONS, LESIONS, ZONE_LABELS, kinds_under
from cxr.ils.masks.findings import CARDIOMEGALY
from cxr.ils.masks.grounding import joined, lies_in, possible_names
from cxr.ils.masks.options import STRICT, Rules
from cxr.ils.masks.outcomes import Outcome
from cxr.ils.masks.zones import union

UNTYPED = ("opacity", "consolidation")
"""Lesion types that describe appearance, not disease. They leave the type of an opacity open."""

Region = Callable[[Sequence[str]], np.ndarray]


@dataclass(frozen=True)
class Unit:
    """One positive instruction. The findings ``members`` share its text; the masks of ``joins`` lie in its location."""

    kind: str
    target: str
    word: str
    certainty: str
    sentence_index: int | None
    location: tuple[str, ...]
    members: tuple[Outcome, ...]
    joins: tuple[Outcome, ...] = field(default=())
    mask: np.ndarray | None = None
    inference: bool = False
    dropped: str | None = None
    inference_dropped: str | None = None

    @property
    def findings(self) -> list[int]:
        """Indexes of the findings, members first, each once."""
        return list(dict.fromkeys(one.finding.index for one in (*self.members, *self.joins)))

    @property
    def grounded(self) -> list[str]:
        """Grounded zone labels of the members; the heart for cardiomegaly."""
        return self._labels(label for one in self.members for label in one.grounded)

    @property
    def reported(self) -> list[str]:
        """Reported zone labels of the members; the heart for cardiomegaly."""
        return self._labels(label for one in self.members for label in one.finding.reported)

    def _labels(self, labels: Iterable[str]) -> list[str]:
        return [HEART] if self.target == CARDIOMEGALY else sorted(set(labels), key=ZONE_LABELS.index)


def positive_units(outcomes: Sequence[Outcome], region: Region, rules: Rules) -> list[Unit]:
    """Return the units of one image: basics in the order of their findings, then globals in the order of the types.

    ``outcomes``: every positive finding of the used section, in order; ``region`` gives the union of valid locations as
    a packed mask. Dropped units are kept, with their reason.
    """
    basics = [basic(outcome, outcomes, region, rules) for outcome in outcomes if outcome.named]
    if rules.one_answer == STRICT:
        basics = merged(basics)
    units = with_twins(basics, rules)
    units += [unit for lesion in LESIONS if (unit := global_unit(lesion, outcomes, rules))]
    return [replace(unit, mask=None) if unit.dropped else unit for unit in units]


def family(lesion: str, rules: Rules) -> frozenset[str]:
    """Return a lesion type and, under ``kinds`` strict, the kinds under it."""
    return frozenset((lesion, *kinds_under(lesion)) if rules.kinds == STRICT else (lesion,))


def basic(outcome: Outcome, outcomes: Sequence[Outcome], region: Region, rules: Rules) -> Unit:
    """Return the basic unit of a grounded, named finding.

    Under ``joint_location`` strict, other findings of the same word or of a kind under it belong to the answer if they
    lie in the named location. The mask of a grounded finding joins (only the part inside the location). A finding that
    is not grounded there leaves no right answer.
    """
    finding = outcome.finding
    unit = Unit(
        kind="basic",
        target=finding.target,
        word=finding.word,
        certainty=finding.certainty,
        sentence_index=finding.sentence_index,
        location=outcome.named,
        members=(outcome,),
        mask=outcome.mask,
    )
    if rules.joint_location != STRICT:
        return unit
    words = family(finding.word, rules)
    siblings = [other for other in outcomes if other is not outcome and other.finding.word in words]
    if any(lies_ungrounded_in(other, unit.location) for other in siblings):
        return replace(unit, dropped="ungrounded_sibling")
    joins, mask = [], outcome.mask
    for other in siblings:
        inside = [place for place in other.named if lies_in(place, unit.location)]
        if inside:
            whole = len(inside) == len(other.named)
            mask = mask | (other.mask if whole else other.mask & region(unit.location))
            joins.append(other)
    return replace(unit, mask=mask, joins=tuple(joins))


def lies_ungrounded_in(outcome: Outcome, location: Sequence[str]) -> bool:
    """Whether a finding has, or could have, a part in a location although its mask shows none there."""
    places = {place for label in outcome.ungrounded for place in possible_names(label)} | outcome.finding.blocks
    return any(lies_in(place, location) for place in places)


def merged(units: Sequence[Unit]) -> list[Unit]:
    """Merge the units with the same instruction text: the union of their masks, at the position of the first.

    If one of them is dropped, all are, because no answer to that text is right.
    """
    by_text: dict[tuple, list[Unit]] = {}
    for unit in units:
        by_text.setdefault((unit.word, unit.location), []).append(unit)
    return [_union(same) for same in by_text.values()]


def _union(same: Sequence[Unit]) -> Unit:
    members = tuple(one for unit in same for one in unit.members)
    joins = tuple(one for unit in same for one in unit.joins if all(one is not member for member in members))
    return replace(
        same[0],
        members=members,
        joins=tuple({id(one): one for one in joins}.values()),
        mask=union([unit.mask for unit in same]),
        dropped=next((unit.dropped for unit in same if unit.dropped), None),
    )


def with_twins(basics: Sequence[Unit], rules: Rules) -> list[Unit]:
    """Mark the basics that get a lesion-inference twin: pneumonia, atelectasis, edema (section 7).

    A finding with several candidates gets no twin, and neither does a mask with findings of several types. Under
    ``one_answer`` strict, all twins of one location with different answers are dropped.
    """
    answers: dict[tuple[str, ...], set[tuple[str, bool]]] = {}
    for unit in basics:
        for one in unit.members:
            if one.finding.target in INFERRED_LESIONS:
                answers.setdefault(unit.location, set()).add((one.finding.target, one.finding.definitive))
    marked = []
    for unit in basics:
        if not any(one.finding.target in INFERRED_LESIONS for one in unit.members):
            marked.append(unit)
            continue
        why = _no_twin(unit)
        if why is None and rules.one_answer == STRICT and len(answers[unit.location]) > 1:
            why = "conflicting_answer"
        marked.append(replace(unit, inference=why is None and unit.dropped is None, inference_dropped=why))
    return marked


def _no_twin(unit: Unit) -> str | None:
    if any(one.finding.several for one in unit.members):
        return "several_candidates"
    types = {one.finding.target for one in unit.members}
    types |= {one.finding.target for one in unit.joins} - set(UNTYPED)
    return "several_types" if len(types) > 1 else None


def global_unit(lesion: str, outcomes: Sequence[Outcome], rules: Rules) -> Unit | None:
    """Return the global unit of a lesion type, None if the report and the masks do not allow one.

    At least one finding must be of the type itself. All findings of the type and (``kinds`` strict) of the kinds under
    it must be wholly grounded, and definitive if the rules require it. Cardiomegaly: the heart, unless weakly hedged.
    """
    if lesion == CARDIOMEGALY:
        members = [
            one for one in outcomes if one.finding.heart and one.mask is not None and one.finding.hedge != "weak"
        ]
        location: tuple[str, ...] = (HEART,)
    else:
        kinds = family(lesion, rules)
        members = [one for one in outcomes if one.finding.kinds & kinds] if rules.kinds == STRICT else []
        members = members or [one for one in outcomes if one.finding.target == lesion]
        if not all(_wholly_grounded(one, kinds, rules) for one in members):
            return None
        location = tuple(joined(place for one in members for place in one.named))
    if not any(one.finding.target == lesion for one in members):
        return None
    definitive = all(one.finding.definitive for one in members)
    return Unit(
        kind="global",
        target=lesion,
        word=lesion,
        certainty="definitive" if definitive else "tentative",
        sentence_index=members[0].finding.sentence_index,
        location=location,
        members=tuple(members),
        mask=union([one.mask for one in members]),
    )


def _wholly_grounded(outcome: Outcome, kinds: Collection[str], rules: Rules) -> bool:
    finding = outcome.finding
    # One of several candidates is tentative, however certain the finding that it explains.
    sure = finding.definitive and finding.target in kinds
    return (
        bool(outcome.named) and outcome.grounded == finding.reported and (sure or not rules.global_requires_definitive)
    )
