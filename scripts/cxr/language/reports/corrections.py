"""Reports that correct themselves, such as "'now effusion' should read 'no effusion'" or "the opacity is on the LEFT".

A correction that quotes the wrong and the right words is carried out if the wrong words occur exactly once in the text.
Any other correction makes the report unusable, because it is unclear which of its statements still hold.
"""

import re
from collections.abc import Sequence

from cxr.base.vocabulary import side_of

_QUOTE = "[\"'“”‘’]"
_QUOTED = re.compile(
    rf"[^.\n]*{_QUOTE}(?P<wrong>[^\"“”\n]{{2,80}}?){_QUOTE},?\s+should\s+(?:instead\s+)?(?:read|say|be|have\s+been)(?:\s+as)?:?\s+"
    rf"{_QUOTE}(?P<right>[^\"“”\n]{{2,80}}?){_QUOTE}\.?"
)
_CORRECTS = re.compile(
    r"\bcorrection\s*:|\berratum\b|\bshould\s+(?:instead\s+)?(?:read|say|have\s+(?:read|said|been))\b|\b(?:stated|dictated|reported|typed|transcribed|labelled"
    r"|labeled)\s+in\s+error\b|\b(?:dictation|transcription|typographical|typing|laterality|side)\s+error\b|\bmis(?:dictated|spoke|typed|stated)\b"
    r"|\bin\s+(?:the\s+)?(?:LEFT|RIGHT)\b[^.\n]*,\s*not\s+(?:on\s+|in\s+)?(?:the\s+)?(?:right|left)\b|\b(?:wrong|incorrect)\s+side\b"
    r"|\b(?:in|with)\s+(?:retrospect|hindsight)\b|\b(?:on|after|upon)\s+(?:further|second|additional|subsequent|repeat)\s+review\b|\bdiscrepan(?:cy|t)\b"
    r"|\b(?:template|macro|defaults?)\b[^.\n]*\b(?:not|un)[\s-]?(?:edited|changed|updated|modified|corrected)\b"
    r"|\b(?:disregard|ignore)\s+(?:the\s+)?(?:above|template|previous|earlier|prior|first)\b"
    r"|\b(?:report|text|above|impression)\s+(?:is|has\s+been|was)\s+(?:amended|corrected|revised)\b"
)


_NOT_THE_SIDE = re.compile(r"\s*\((?:and\s+)?not\s+(?:the\s+)?(?:right|left)\)", re.IGNORECASE)
"""A wrong side in brackets after the correct side, as in "left (not right) effusion"."""


class CorrectedReport(Exception):
    """Raised for a correction that cannot be carried out. The message quotes no text of the report."""


def apply_corrections(text: str) -> str:
    """Return a text in which corrections that quote the wrong and the right words ("'left' should read 'right'") are
    carried out. Raises CorrectedReport for any other correction."""
    text = _NOT_THE_SIDE.sub("", text)
    for match in list(_QUOTED.finditer(text)) if "should" in text else ():
        remaining = text.replace(match[0], "")
        if remaining.lower().count(match["wrong"].lower()) != 1:
            raise CorrectedReport("the report corrects words that do not occur exactly once in its text")
        at = remaining.lower().index(match["wrong"].lower())
        text = remaining[:at] + match["right"] + remaining[at + len(match["wrong"]) :]
    if _CORRECTS.search(text):
        raise CorrectedReport("the report corrects itself, so it is unclear which statements still hold")
    return text


def find_contradiction(tuples: Sequence[dict], addendum: Sequence[dict]) -> str | None:
    """Return a lesion type that a report and its addendum state differently, in presence or in side, or None.
    ``tuples`` and ``addendum`` are the finding tuples of the report and of its addendum."""
    for item in (item for item in tuples if item["lesion_type"]):
        for later in (later for later in addendum if later["lesion_type"] == item["lesion_type"]):
            sides, later_sides = ({side_of(label) for label in row["labels"]} for row in (item, later))
            if item["presence"] != later["presence"]:
                if sides & later_sides or not (sides and later_sides):
                    return item["lesion_type"]
            elif item["presence"] == "positive" and sides and later_sides and sides.isdisjoint(later_sides):
                return item["lesion_type"]
    return None
