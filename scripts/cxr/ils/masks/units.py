"""Make the positive units: positive instructions without their text.

Under a rule set to ``strict``, pairs that contradict the report are dropped, although the paper's wording allows them.
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
"""Lesion types that describe appearance, not disease, so they do not contradict another type."""

Region = Callable[[Sequence[str]], np.ndarray]


@dataclass(frozen=True)
class Unit:
    """One positive instruction. Its ``members`` share its text; the masks of ``joins`` lie in its location."""

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
        return list(dict.fromkeys(outcome.finding.index for outcome in (*self.members, *self.joins)))

    @property
    def grounded(self) -> list[str]:
        """Grounded zone labels of the members; the heart for cardiomegaly."""
        return self._labels(label for outcome in self.members for label in outcome.grounded)

    @property
    def reported(self) -> list[str]:
        """Reported zone labels of the members; the heart for cardiomegaly."""
        return self._labels(label for outcome in self.members for label in outcome.finding.reported)

    def _labels(self, labels: Iterable[str]) -> list[str]:
        return [HEART] if self.target == CARDIOMEGALY else sorted(set(labels), key=ZONE_LABELS.index)


def make_positive_units(outcomes: Sequence[Outcome], region: Region, rules: Rules) -> list[Unit]:
    """Return the units of one image: basics in the order of their findings, then globals in the order of the types.

    ``outcomes``: every positive finding of the used section, in order; ``region`` returns the union of valid locations
    as a packed mask. Dropped units are included, with their reason.
    """
    basics = [make_basic_unit(outcome, outcomes, region, rules) for outcome in outcomes if outcome.locations]
    if rules.one_answer == STRICT:
        basics = merge_same_texts(basics)
    units = mark_twins(basics, rules)
    units += [unit for lesion in LESIONS if (unit := make_global_unit(lesion, outcomes, rules))]
    return [replace(unit, mask=None) if unit.dropped else unit for unit in units]


def list_kinds(lesion: str, rules: Rules) -> frozenset[str]:
    """Return a lesion type and, under ``kinds`` strict, the kinds under it."""
    return frozenset((lesion, *kinds_under(lesion)) if rules.kinds == STRICT else (lesion,))


def make_basic_unit(outcome: Outcome, outcomes: Sequence[Outcome], region: Region, rules: Rules) -> Unit:
    """Return the basic unit of a grounded, named finding.

    Under ``joint_location`` strict, other findings with the same word or a kind under it belong to the answer if they
    lie in the named location: grounded findings add the part of their mask inside it; if one is not grounded there, the
    unit is dropped, because no answer would be right.
    """
    finding = outcome.finding
    names = finding.target, finding.word, finding.certainty, finding.sentence_index
    unit = Unit("basic", *names, outcome.locations, (outcome,), mask=outcome.mask)
    if rules.joint_location != STRICT:
        return unit
    words = list_kinds(finding.word, rules)
    siblings = [sibling for sibling in outcomes if sibling is not outcome and sibling.finding.word in words]
    for sibling in siblings:  # one that lies, or could lie, where its mask has no pixel
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
    """Merge units with the same text into the first, with the union of masks; if one is dropped, all are."""
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
    """Mark the basic units of pneumonia, atelectasis and edema that get a lesion-inference twin.

    A finding with several candidates gets no twin, and neither does a mask with findings of several types. Under
    ``one_answer`` strict, all twins of one location with different answers are dropped.
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

    At least one finding must have the type itself. All findings of the type and (``kinds`` strict) of the kinds under
    it must be fully grounded and definitive. Cardiomegaly: the heart, unless weakly hedged.
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
            # One of several candidates is tentative, even if the finding that it explains is certain.
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
