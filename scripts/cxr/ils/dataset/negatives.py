"""Choose the negative instructions of a study, which deny lesion types where its report and image allow this.

A study has at most one negative per lesion type. A *basic* negative names one random location among those where the
type may be denied, and a *global* negative names none. A type is never denied at a location where a finding of the type
or of one of its subtypes lies or may lie. Every type that may be denied gets a negative.

A negative of opacity with a location may also ask for the type of the opacity (lesion inference). If both forms are
allowed, a random number (draw) below a limit (bar) selects global over a location, and inference over basic.
:class:`Census` counts the allowed forms of all studies beforehand, and sets the bars so that the dataset comes as close
as possible to the fractions of Table 10, whatever the order of the studies.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import floor
from typing import NamedTuple

from cxr.base.seeds import make_rng
from cxr.base.vocabulary import LESIONS, LUNGS, SIDES, VALID_LOCATIONS, kinds_under, side_of, zones_of
from cxr.ils import templates
from cxr.ils.dataset.pairs import Pair, make_negative
from cxr.ils.dataset.settings import PairSettings

CARDIOMEGALY, OPACITY = templates.CARDIOMEGALY, templates.OPACITY


@dataclass(frozen=True)
class Evidence:
    """Evidence of an image and its report for and against each lesion type. Locations are in ``VALID_LOCATIONS``."""

    study_id: str
    empty: frozenset[str]  # Locations without mask pixels where no finding lies or may lie
    blocked: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """{lesion type: locations where a positive finding of the type or of a subtype lies or may lie}."""
    global_blocked: frozenset[str] = frozenset()
    """Lesion types that must not be denied for the whole image, because of a finding or a related term."""
    standing: frozenset[str] = frozenset()  # Lesion types that a positive finding names, even with a hedge
    elsewhere: frozenset[str] = frozenset()
    """Lesion types that positive findings name only in the unused report section. They only forbid denials."""
    related: frozenset[str] = frozenset()
    """Lesion types that a related term in the report suggests (vascular congestion: edema), which are never denied."""
    negated: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """{lesion type that the report explicitly and definitely denies: the locations where it is denied}."""
    everywhere: frozenset[str] = frozenset()  # Types of ``negated`` that are denied without a location
    unclear: frozenset[str] = frozenset()
    """Lesion types that are named but neither affirmed nor denied ("no new consolidation")."""
    doubted: frozenset[str] = frozenset()
    """Lesion types that are denied with doubt ("unlikely")."""
    about_lungs: bool = True  # Whether the section describes lungs or pleura, not only changes
    understood: bool = True
    """Whether enough words of the section are known for a lesion type that it does not mention to count as absent."""
    ctr: float | None = None  # Cardiothoracic ratio in original pixels
    witnesses: Mapping[str, Mapping] = field(default_factory=dict)
    """{lesion type: second check of the report, the fields of a :class:`cxr.language.reports.witnesses.Witness`}."""
    sections: tuple[str | None, ...] = ()  # Report sections, by the section number in a witness's quotes
    signs: Mapping[str, Mapping] = field(default_factory=dict)
    """{location: {"box_confidence", "anomalous_fraction"}}, the signs of a lesion that the image shows there."""


@dataclass(frozen=True)
class AllowedDenials:
    """The locations where one lesion type may be denied, or the reason why there are none."""

    basic: tuple[str, ...] = ()  # Locations that a negative may name
    global_: bool = False  # Whether the type may be denied for the whole image
    reason: str | None = None  # Code of the reason why it may be denied nowhere
    basis: str | None = None
    """The report denies the type (explicit), does not mention it (silent), or affirms it elsewhere (elsewhere)."""


EXPLICIT, SILENT, ELSEWHERE = "explicit", "silent", "elsewhere"
BOX_FLOOR = 0.2
"""Maximum confidence of a box in a location without signs of a lesion (our choice)."""
ANOMALY_FLOOR = 0.05
"""Maximum fraction of anomalous pixels in a location without signs of a lesion (our choice)."""

SIGNS = ("box_confidence", "anomalous_fraction")


def is_quiet(signs: Mapping | None) -> bool:
    """Return whether the ``signs`` of a location show no lesion. False for None, a location without an anatomy mask."""
    if signs is None:
        return False
    fraction = signs["anomalous_fraction"]
    return signs["box_confidence"] <= BOX_FLOOR and (fraction is None or fraction <= ANOMALY_FLOOR)


def find_denials(lesion: str, evidence: Evidence, options: PairSettings) -> AllowedDenials:
    """Return where ``lesion`` may be denied with the evidence that the setting ``dataset.denials`` requires."""
    allowed = find_possible_denials(lesion, evidence, options)
    if not (allowed.basic or allowed.global_):
        return allowed
    witness = evidence.witnesses[lesion]
    if witness["quotes"] and lesion in evidence.negated:
        basis = EXPLICIT
    else:
        basis = ELSEWHERE if lesion in evidence.standing - evidence.elsewhere else SILENT
    allowed = replace(allowed, basis=basis)
    if options.denials == "all":
        return allowed
    if basis == EXPLICIT:  # "no right effusion" does not deny a left one
        basic = tuple(location for location in allowed.basic if location in evidence.negated[lesion])
        return replace(allowed, basic=basic, reason=None if basic or allowed.global_ else "no_empty_location")
    if lesion in evidence.negated or lesion in evidence.doubted:
        return AllowedDenials(reason="denial_not_understood")
    if options.denials == "explicit":
        return AllowedDenials(reason="not_denied_explicitly")
    if basis == SILENT and witness["is_mentioned"]:
        return AllowedDenials(reason="neither_affirmed_nor_denied")
    if basis == ELSEWHERE and not witness["elsewhere"]:
        return AllowedDenials(reason="extent_unclear")
    if lesion == CARDIOMEGALY:
        return allowed if len(witness["silent"]) == len(SIDES) else AllowedDenials(reason="neighbouring_term")
    unmentioned = [location for location in allowed.basic if side_of(location) in witness["silent"]]
    basic = tuple(location for location in unmentioned if is_quiet(evidence.signs.get(location)))
    reason = "signs_in_image" if unmentioned else "neighbouring_term" if allowed.basic else "no_empty_location"
    reason = None if basic else reason
    return AllowedDenials(basic, False, reason, basis)


def find_possible_denials(lesion: str, evidence: Evidence, options: PairSettings) -> AllowedDenials:
    """Return where ``lesion`` may be denied by the paper's rules, without the second check of the report."""
    if lesion == CARDIOMEGALY:
        return _find_heart_denials(evidence, options.ctr_negative_max)
    if lesion in evidence.related:
        return AllowedDenials(reason="related_term")
    affirmed = evidence.standing - evidence.elsewhere
    denied, positive = lesion in evidence.negated, lesion in affirmed
    under = (lesion, *kinds_under(lesion)) if options.kinds == "strict" else (lesion,)
    unclear = evidence.unclear.intersection(under)
    if unclear - affirmed - evidence.negated.keys() and not (denied or positive):
        return AllowedDenials(reason="neither_affirmed_nor_denied")
    if not (denied or positive or lesion in evidence.doubted or evidence.about_lungs):
        return AllowedDenials(reason="section_silent")
    if not (denied or positive or lesion in evidence.doubted or evidence.understood):
        return AllowedDenials(reason="not_understood")

    allowed = (evidence.empty | evidence.negated.get(lesion, frozenset())) - evidence.blocked.get(lesion, frozenset())
    forbidden = evidence.global_blocked | evidence.standing | evidence.doubted
    # a denial at a place, such as "no right effusion", is not global
    partly = denied and lesion not in evidence.everywhere and not evidence.negated[lesion].issuperset(LUNGS)
    global_allowed = (
        (lesion in evidence.everywhere or (evidence.about_lungs and evidence.understood and not partly))
        and lesion not in forbidden
        and not unclear
        and (lesion != OPACITY or len(evidence.empty) == len(VALID_LOCATIONS))
    )
    basic = tuple(location for location in VALID_LOCATIONS if location in allowed)
    return AllowedDenials(basic, global_allowed, None if basic or global_allowed else "no_empty_location")


def _find_heart_denials(evidence: Evidence, ctr_negative_max: float) -> AllowedDenials:
    suspected_lesions = (
        evidence.standing | evidence.related | evidence.unclear | evidence.doubted | evidence.global_blocked
    )
    if CARDIOMEGALY in suspected_lesions:
        return AllowedDenials(reason="heart_affirmed_or_hedged")
    if not (evidence.understood or CARDIOMEGALY in evidence.negated):
        return AllowedDenials(reason="not_understood")
    if evidence.ctr is None or not evidence.ctr <= ctr_negative_max:
        return AllowedDenials(reason="wide_heart")
    return AllowedDenials(global_=True)


class OpenWays(NamedTuple):
    """The forms in which a negative may deny a lesion type in an image: with a location, or global."""

    places: Mapping[str, tuple[str, ...]]
    """{type of instruction: locations that it may name}. A type that may name none is left out."""
    anywhere: bool  # Whether a global negative is allowed
    reason: str | None = None  # Code of the reason why no form is allowed
    basis: str | None = None  # As in :class:`AllowedDenials`


class DenialDraws(NamedTuple):
    """Random numbers from 0 to 1 for a study's negative of a lesion type. All are drawn, even if some are not used."""

    global_: float  # Selects global or not
    inference: float  # Selects lesion inference or basic
    place: float  # Selects the location


@dataclass(frozen=True)
class Bars:
    """Limits for the numbers in :class:`DenialDraws`. A number below its bar selects global, or lesion inference."""

    global_: Mapping[str, float]  # {lesion type: bar of a global negative}
    inference: float  # Bar of a lesion inference, only for opacity


def draw_numbers(seed: int, study_id: str, lesion: str) -> DenialDraws:
    """Return the random numbers for a lesion type in a study. They depend only on study, lesion type and seed."""
    random = make_rng(seed, study_id, lesion)
    return DenialDraws(random.random(), random.random(), random.random())


def find_open_ways(lesion: str, evidence: Evidence, options: PairSettings, taken: Collection[str] = ()) -> OpenWays:
    """Return the forms in which an image's negative may deny ``lesion``.

    ``taken``: instructions that a positive pair of the image uses, so that a negative must not use them.
    """
    lesion_choice = find_denials(lesion, evidence, options)
    types = (templates.BASIC, templates.INFERENCE) if lesion == OPACITY else (templates.BASIC,)
    free = {
        kind: tuple(
            place for place in lesion_choice.basic if templates.write_instruction(kind, lesion, [place]) not in taken
        )
        for kind in types
    }
    places = {kind: locations for kind, locations in free.items() if locations}
    global_open = lesion_choice.global_ and templates.write_instruction(templates.GLOBAL, lesion) not in taken
    return OpenWays(
        places, global_open, None if places or global_open else lesion_choice.reason or "same_text", lesion_choice.basis
    )


def choose_negatives(
    evidence: Evidence, options: PairSettings, seed: int, bars: Bars, taken: Collection[str] = ()
) -> tuple[list[Pair], dict[str, str]]:
    """Return (negative pairs in the order of the lesion types, {lesion type without a negative: code of the reason}).

    ``bars`` decide between two allowed forms. ``taken``: instructions of positive pairs, which no negative may use.
    """
    negative_pairs: list[Pair] = []
    reasons: dict[str, str] = {}
    for lesion in LESIONS:
        ways = find_open_ways(lesion, evidence, options, taken)
        lesion_draws = draw_numbers(seed, evidence.study_id, lesion)
        if ways.reason:
            reasons[lesion] = ways.reason
        elif ways.anywhere and (not ways.places or lesion_draws.global_ < bars.global_[lesion]):
            negative_pairs.append(make_negative(templates.GLOBAL, lesion, **_provenance(evidence, lesion, ways.basis)))
        else:
            kinds = [kind for kind in (templates.INFERENCE, templates.BASIC) if kind in ways.places]
            kind = kinds[0] if len(kinds) == 1 or lesion_draws.inference < bars.inference else templates.BASIC
            places = ways.places[kind]
            place = places[int(lesion_draws.place * len(places))]
            provenance = _provenance(evidence, lesion, ways.basis, place) | evidence.signs.get(place, {})
            negative_pairs.append(make_negative(kind, lesion, [place], **provenance))
    return negative_pairs, reasons


def _provenance(evidence: Evidence, lesion: str, basis: str | None, place: str = "") -> dict:
    """Return a negative's fields ``basis``, ``quote`` (the denying sentence, if explicit) and ``quote_section``.

    If several sentences deny the lesion, one that does not name the side opposite to ``place`` is preferred.
    """
    quotes = evidence.witnesses[lesion]["quotes"] if basis == EXPLICIT else []
    side = side_of(place)
    quotes = sorted(quotes, key=lambda quote: side is not None and side_of(quote[1].lower()) not in (side, None))
    number, sentence = quotes[0] if quotes else (None, None)
    section = None if number is None else evidence.sections[number]
    return {"basis": basis, "quote": sentence, "quote_section": section}


def gather_evidence(study: dict, line: dict, unknown_words_max: float) -> Evidence:
    """Return the evidence of one image.

    ``study``: the image's row of the studies table, with the locations of findings; ``line``: line of the report, whose
    negative tuples state denials; ``unknown_words_max``: setting of this name. A negative tuple whose ``denies`` is
    false only states that a finding is not new.
    """
    negative = [row for row in line["tuples"] if row["presence"] == "negative" and row["lesion_type"] in LESIONS]
    denials = [row for row in negative if row.get("denies", True)]
    definite = [row for row in denials if row["certainty"] == "definitive"]
    negated: dict[str, frozenset[str]] = {}
    for row in definite:
        negated[row["lesion_type"]] = negated.get(row["lesion_type"], frozenset()) | list_locations_inside(row)
    standing = [row["lesion"] for row in study["standing"]]
    return Evidence(
        study_id=study["study_id"],
        empty=frozenset(study["empty"]),
        blocked={row["lesion"]: frozenset(row["locations"]) for row in study["lesion_blocked"]},
        global_blocked=frozenset(row["lesion"] for row in study["lesion_blocked"] if row["global_blocked"]),
        standing=frozenset(standing),
        elsewhere=frozenset(standing) - find_affirmed(line["tuples"]),
        related=frozenset(study["related"]),
        negated=negated,
        everywhere=frozenset(row["lesion_type"] for row in definite if not row["location"]),
        unclear=frozenset(row["lesion_type"] for row in negative if not row.get("denies", True)),
        doubted=frozenset(row["lesion_type"] for row in denials if row["certainty"] != "definitive"),
        about_lungs=line["mentions_lungs"] and not line["comparison_only"],
        understood=line["unknown_share"] <= unknown_words_max,
        ctr=study["ctr"],
        witnesses=line["witnesses"],
        sections=(line["section_name"], line["other_section"]),
        signs={row["location"]: {name: row[name] for name in SIGNS} for row in study["signs"]},
    )


def find_affirmed(tuples: list[dict]) -> set[str]:
    """Return the lesion types that the positive tuples of a section affirm, hedge or list as a candidate.

    A tuple that is not definitive also affirms opacity, because the instruction of its pair names an opacity.
    """
    affirmed_names: set[str] = set()
    for row in tuples:
        if row["presence"] == "positive":
            names = {row["lesion_type"], row["predicted_lesion_type"], *(row.get("candidates") or ())} - {None}
            affirmed_names |= names | ({OPACITY} if names and row["certainty"] != "definitive" else set())
    return affirmed_names


def list_locations_inside(row: dict) -> frozenset[str]:
    """Return the valid locations inside the place that a statement names. No place means all, an unknown place none.

    A whole lung contains its zones. A lobe adds none, because no zone lies in it for certain.
    """
    if not row["location"]:
        return frozenset(VALID_LOCATIONS)
    locations: set[str] = set()
    for label in row["labels"]:
        if label in LUNGS:
            locations |= {label, *zones_of(side_of(label))}
        elif label in VALID_LOCATIONS:
            locations.add(label)
    return frozenset(locations)


@dataclass
class _Ways:
    """Counts of the studies in which one or both of two forms of a negative are allowed."""

    first_alone: int = 0
    second_alone: int = 0
    draws: list[float] = field(default_factory=list)  # Draws of the studies that allow both forms

    def add(self, first: bool, second: bool, draw: float) -> None:
        """Count a study that allows the ``first`` form, the ``second`` or both."""
        if first and second:
            self.draws.append(draw)
        else:
            self.first_alone += first
            self.second_alone += second

    def bar(self, share: float) -> float:
        """Return the bar, the limit below which a draw selects the first form of the negative.

        With the bar, the fraction of first forms is as close to ``share`` as the reports allow.
        """
        num_studies = len(self.draws) + self.first_alone + self.second_alone
        num_below_bar = floor(Fraction(repr(float(share))) * num_studies + Fraction(1, 2)) - self.first_alone
        if num_below_bar >= len(self.draws):
            return 1.0
        return sorted(self.draws)[num_below_bar] if num_below_bar > 0 else 0.0


class Census:
    """Counts of the allowed forms of negatives in all studies, by lesion type."""

    def __init__(self) -> None:
        self._ways = {lesion: _Ways() for lesion in LESIONS}
        self._opacities: list[tuple[bool, Sequence[str], DenialDraws]] = []

    def add(self, lesion: str, ways: OpenWays, lesion_draws: DenialDraws) -> None:
        """Count a study in which ``lesion`` may be denied. Must be called once per study and lesion type."""
        self._ways[lesion].add(ways.anywhere, bool(ways.places), lesion_draws.global_)
        if lesion == OPACITY and ways.places:
            self._opacities.append((ways.anywhere, tuple(ways.places), lesion_draws))

    def bars(self, global_share: Mapping[str, float], inference_share: float) -> Bars:
        """Return the :class:`Bars` with which the negatives come closest to the required fractions.

        ``global_share``: {lesion type: fraction of its negatives that are global}; ``inference_share``: fraction of
        lesion inferences among the negatives of opacity that name a location.
        """
        global_bars = {lesion: self._ways[lesion].bar(share) for lesion, share in global_share.items()}
        at_places = _Ways()
        for global_open, kinds, lesion_draws in self._opacities:
            if not (global_open and lesion_draws.global_ < global_bars[OPACITY]):
                at_places.add(templates.INFERENCE in kinds, templates.BASIC in kinds, lesion_draws.inference)
        return Bars(global_bars, at_places.bar(inference_share))
