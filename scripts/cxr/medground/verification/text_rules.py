"""Stages I and II of the verification, which check a query's form, and its text against the regions' measurements. The
logical form from which rules made the text is never used."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from cxr.medground.logic.atoms import NO, atom_family
from cxr.medground.logic.decide import Decider
from cxr.medground.logic.facts import GRID_CORNERS
from cxr.medground.logic.text import find_text_fault
from cxr.medground.verification.claims import Claims, load_lexicon, read_claims

Fault = tuple[str, str]
GROUPS = ("among ", "of ", "from ", "out of ")  # beginnings of a sentence that names a group first, then its member


def find_denied_word(text: str, domain: str, allowed: Sequence[str]) -> Fault | None:
    """Return (reason, word) of the first word that belongs to another image domain or that no image shows, or None.
    ``allowed``: words that are not checked."""
    plain = text.lower()
    for words in sorted(allowed, key=len, reverse=True):
        plain = _word_pattern(words.lower()).sub(" ", plain)
    lexicon = load_lexicon()
    denied = [("domain_leak", lexicon[name].get(domain, ())) for name in ("deny", "deny_directions")]
    denied += [("not_visible", lexicon[name]) for name in ("not_visible", "not_visible_unless_class")]
    faults = ((reason, word) for reason, words in denied for word in words if _word_pattern(word).search(plain))
    return next(faults, None)


def _word_pattern(words: str) -> re.Pattern:
    return re.compile(rf"(?<![\w-]){re.escape(words)}(?![\w-])")


def allowed_words(decider: Decider, allow: Sequence[str], description: str = "") -> list[str]:
    """Return the words that are exempt from the lists of denied words: those of classes, zones, sides, the description
    and the source's ``allow``."""
    allowed = list(allow)
    for noun in decider.scene.classes.values():
        allowed += [noun.one, noun.many, *noun.parents, *noun.parents.values()]
    for zone in decider.scene.zones:
        allowed += [zone, "lung zone", "lung base"]
    if decider.scene.radiological is not None:
        allowed += [word for words in load_lexicon()["sides"].values() for word in words]
    return allowed + re.findall(r"[\w-]+", description.lower())


def check_text(text: str, regions: Sequence[int], decider: Decider, allowed: list[str]) -> tuple[Fault | None, Claims]:
    """Return (fault, claims) of a query's text. The fault is None, or (reason, detail) if the text has a denied word,
    contradicts its answer ``regions`` or selects other regions. ``allowed``: words that are never denied."""
    claims = read_claims(text, decider.scene)
    fault = find_denied_word(text, decider.scene.domain, allowed) or _find_contradiction(claims, regions, decider)
    fault = fault or _find_number_fault(text, claims, regions) or _find_selection_fault(claims, regions, decider)
    return fault, claims


def _find_contradiction(claims: Claims, regions: Sequence[int], decider: Decider) -> Fault | None:

    def excludes(atom: str, meet: Callable[[Iterable[bool]], bool]) -> bool:
        return atom in decider.atoms and meet(decider.atoms[atom][region] == NO for region in regions)

    for atom in claims.atoms:
        if excludes(atom, any):
            return ("side", atom) if atom.startswith("side:") else ("claim_contradicted", atom_family(atom))
    if claims.both and (excludes("side:left", all) or excludes("side:right", all)):
        return "side", "both sides"
    return None


def _find_number_fault(text: str, claims: Claims, regions: Sequence[int]) -> Fault | None:
    if claims.number and claims.number != len(regions):
        return "number", f"{claims.number} stated, {len(regions)} in the answer"
    # a plural may name the group from which an ordinal selects one region
    names_group = text.lower().startswith(GROUPS) and claims.query.ordinal and claims.plural and len(regions) == 1
    if claims.plural is not None and claims.plural != (len(regions) > 1) and not names_group:
        return "grammatical_number", "plural" if claims.plural else "singular"
    return None


def _find_selection_fault(claims: Claims, regions: Sequence[int], decider: Decider) -> Fault | None:
    query = claims.query
    is_read = bool(claims.nouns or query.atoms or query.ordinal) and decider.supports(query)
    if claims.unread or claims.both or not is_read:
        return None
    answer, target = decider.answer(query), tuple(sorted(regions))
    if answer.decidable and answer.selected != target:
        reason = "ambiguous" if set(target) < set(answer.selected) else "wrong_answer"
        return reason, f"{len(answer.selected)} selected"
    if answer.reason == "empty":
        return "wrong_answer", "nothing is selected"
    return ("ambiguous", answer.reason) if answer.reason in ("doubtful", "ordinal", "reference") else None


REQUIRED_FIELDS = ("query_id", "source", "image_id", "query", "kind", "regions", "boxes")


def find_form_fault(line: Mapping, rows: Sequence[Mapping]) -> Fault | None:
    """Return (reason, detail) if the line of a query fails stage I, the check of its form, otherwise None. ``rows``:
    the rows of the image's regions."""
    if missing := [name for name in REQUIRED_FIELDS if name not in line]:
        return "missing_field", missing[0]
    text, regions = line["query"], line["regions"]
    if regions == [] and line["boxes"]:
        return "box_moved", ""
    if not isinstance(text, str) or not isinstance(regions, list) or not regions:
        return "missing_field", "query or regions"
    if len(set(regions)) != len(regions):
        return "target_twice", ""
    boxes = {row["region"]: [row[name] for name in GRID_CORNERS] for row in rows if row["candidate"]}
    if any(region not in boxes for region in regions):
        return "unknown_target", ""
    if [list(box) for box in line["boxes"]] != [boxes[region] for region in regions]:
        return "box_moved", ""
    return find_text_fault(text)
