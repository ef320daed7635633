"""Make the units of an image. A unit is a positive instruction with its mask, but still without its text.

Rules with the value ``strict`` drop units that contradict the report, although the paper's wording allows them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cxr.base.vocabulary import HEART, INFERRED_LESIONS, LESIONS, ZONE_LABELS, kinds_under
from cxr.ils.masks.findings import CARDIOMEGALY
from cxr.ils.masks.outcomes import Outcome
from cxr.ils.masks.settings import STRICT, Rules
from cxr.ils.masks.zones import is_within, list_possible_names, merge_locations, unite_masks

UNTYPED = ("opacity", "consolidation")
"""Lesion types that describe an appearance, not a disease, so they do not contradict another type."""

Region = Callable[[Sequence[str]], np.ndarray]


@dataclass(frozen=True)
class Unit:
    """One positive instruction. A basic unit may have a twin, a lesion-inference instruction with the same mask."""

    kind: str  # basic or global
    target: str  # Lesion type
    word: str  # The lesion type that the text names
    certainty: str  # definitive or tentative
    sentence_index: int | None
    location: tuple[str, ...]  # Valid locations; the heart for cardiomegaly
    members: tuple[Outcome, ...]  # Findings from which the instruction is made
    joins: tuple[Outcome, ...] = field(default=())  # Other findings whose masks in this location are added
    mask: np.ndarray | None = None  # uint8 packed (H, W / 8); None if dropped
    inference: bool = False  # Whether the unit has a twin
    dropped: str | None = None  # Code of the reason why the unit makes no pair
    inference_dropped: str | None = None  # Code of the reason why the unit has no twin

    @property
    def findings(self) -> list[int]:
        """Indexes of the findings in ``members`` and then in ``joins``, each once."""
        return list(dict.fromkeys(outcome.finding.index for outcome in (*self.members, *self.joins)))

    @property
    def grounded(self) -> list[str]:
        """Zone labels that the masks of the findings in ``members`` confirm; the heart for cardiomegaly."""
        return self._labels(label for outcome in self.members for label in outcome.grounded)

    @property
    def reported(self) -> list[str]:
        """Zone labels that the report names for the findings in ``members``; the heart for cardiomegaly."""
        return self._labels(label for outcome in self.members for label in outcome.finding.reported)

    def _labels(self, labels: Iterable[str]) -> list[str]:
        return [HEART] if self.target == CARDIOMEGALY else sorted(set(labels), key=ZONE_LABELS.index)


def make_positive_units(outcomes: Sequence[Outcome], region: Region, rules: Rules) -> list[Unit]:
    """Return the units of one image, basic units in the order of their findings, then global units by lesion type.

    ``outcomes``: those of all positive findings of the report section that is used, in order; ``region``: function that
    returns the union of valid locations as a packed mask. Dropped units are included, with their reason.
    """
    basics = [make_basic_unit(outcome, outcomes, region, rules) for outcome in outcomes if outcome.locations]
    if rules.one_answer == STRICT:
        basics = merge_same_texts(basics)
    units = mark_twins(basics, rules)
    units += [unit for lesion in LESIONS if (unit := make_global_unit(lesion, outcomes, rules))]
    return [replace(unit, mask=None) if unit.dropped else unit for unit in units]


def list_kinds(lesion: str, rules: Rules) -> frozenset[str]:
    """Return a lesion type and, if the rule ``kinds`` is strict, its subtypes in the hierarchy."""
    return frozenset((lesion, *kinds_under(lesion)) if rules.kinds == STRICT else (lesion,))


def make_basic_unit(outcome: Outcome, outcomes: Sequence[Outcome], region: Region, rules: Rules) -> Unit:
    """Return the basic unit (an instruction that names locations) of the finding of ``outcome``, which has locations.

    If ``joint_location`` is strict, the mask must include all findings in ``outcomes`` that have the named type or a
    subtype and lie in the named location. Their masks, or the parts in this location, are added. If one of them may lie
    there but its mask does not confirm this, the unit is dropped, because no mask would be right.
    """
    finding = outcome.finding
    names = finding.target, finding.word, finding.certainty, finding.sentence_index
    unit = Unit("basic", *names, outcome.locations, (outcome,), mask=outcome.mask)
    if rules.joint_location != STRICT:
        return unit
    words = list_kinds(finding.word, rules)
    siblings = [sibling for sibling in outcomes if sibling is not outcome and sibling.finding.word in words]
    for sibling in siblings:  # drop the unit if a sibling may lie in its location without a mask there
        places = {place for label in sibling.ungrounded for place in list_possible_names(label)}
        if any(is_within(place, unit.location) for place in places | sibling.finding.blocks):
            return replace(unit, dropped="ungrounded_sibling")
    joins, mask = [], outcome.mask
    for sibling in siblings:
        inside = [place for place in sibling.locations if is_within(place, unit.location)]
        if inside:
            all_inside = len(inside) == len(sibling.locations)
            mask = mask | (sibling.mask if all_inside else sibling.mask & region(unit.location))
            joins.append(sibling)
    return replace(unit, mask=mask, joins=tuple(joins))


def merge_same_texts(units: Sequence[Unit]) -> list[Unit]:
    """Merge units with equal instructions. Return all units; one that was merged from a dropped unit is dropped too."""
    by_text: dict[tuple, list[Unit]] = {}
    for unit in units:
        by_text.setdefault((unit.word, unit.location), []).append(unit)
    merged_units = []
    for same in by_text.values():
        members = {id(outcome): outcome for unit in same for outcome in unit.members}
        joins = {id(outcome): outcome for unit in same for outcome in unit.joins if id(outcome) not in members}
        mask, dropped = unite_masks([unit.mask for unit in same]), next((u.dropped for u in same if u.dropped), None)
        both = {"members": tuple(members.values()), "joins": tuple(joins.values())}
        merged_units.append(replace(same[0], **both, mask=mask, dropped=dropped))
    return merged_units


def mark_twins(basics: Sequence[Unit], rules: Rules) -> list[Unit]:
    """Return the basic units. ``inference`` is set for those that get a twin, a lesion-inference instruction.

    Only pneumonia, atelectasis and edema can have a twin. There is no twin if several diseases may explain a finding,
    or if the mask has findings of several types. If ``one_answer`` is strict, twins of one location with different
    answers are all dropped.
    """
    answers: dict[tuple[str, ...], set[tuple[str, bool]]] = {}
    for unit in basics:
        for outcome in unit.members:
            if outcome.finding.target in INFERRED_LESIONS:
                answers.setdefault(unit.location, set()).add((outcome.finding.target, outcome.finding.definitive))
    marked = []
    for unit in basics:
        if not any(outcome.finding.target in INFERRED_LESIONS for outcome in unit.members):
            marked.append(unit)
            continue
        reason = _twin_obstacle(unit)
        if reason is None and rules.one_answer == STRICT and len(answers[unit.location]) > 1:
            reason = "conflicting_answer"
        marked.append(replace(unit, inference=reason is None and unit.dropped is None, inference_dropped=reason))
    return marked


def _twin_obstacle(unit: Unit) -> str | None:
    if any(outcome.finding.several for outcome in unit.members):
        return "several_candidates"
    types = {outcome.finding.target for outcome in unit.members}
    types |= {outcome.finding.target for outcome in unit.joins} - set(UNTYPED)
    return "several_types" if len(types) > 1 else None


def make_global_unit(lesion: str, outcomes: Sequence[Outcome], rules: Rules) -> Unit | None:
    """Return the global unit of a lesion type; None if the report and the masks do not allow one.

    At least one finding must have the type. All findings of the type and, if ``kinds`` is strict, of its subtypes must
    be definitive, and their masks must confirm all reported zones. Cardiomegaly only needs a finding that is not weakly
    hedged, and its mask is the heart.
    """
    if lesion == CARDIOMEGALY:
        hearts = [outcome for outcome in outcomes if outcome.finding.heart and outcome.mask is not None]
        members = [outcome for outcome in hearts if outcome.finding.hedge != "weak"]
        location: tuple[str, ...] = (HEART,)
    else:
        kinds = list_kinds(lesion, rules)
        members = [outcome for outcome in outcomes if outcome.finding.kinds & kinds] if rules.kinds == STRICT else []
        members = members or [outcome for outcome in outcomes if outcome.finding.target == lesion]
        for outcome in members:
            finding = outcome.finding
            # a type that is one of several possible explanations is not sure, even if the finding is
            is_sure = finding.definitive and finding.target in kinds
            if not (is_sure and outcome.locations and outcome.grounded == finding.reported):
                return None
        location = tuple(merge_locations(place for outcome in members for place in outcome.locations))
    if not any(outcome.finding.target == lesion for outcome in members):
        return None
    certainty = "definitive" if all(outcome.finding.definitive for outcome in members) else "tentative"
    mask = unite_masks([outcome.mask for outcome in members])
    first_sentence = members[0].finding.sentence_index
    return Unit("global", lesion, lesion, certainty, first_sentence, location, tuple(members), mask=mask)
