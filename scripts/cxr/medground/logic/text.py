"""The form that the text of a query must have, whoever wrote it."""

import re

from cxr.llm.guards import addresses_the_model

WORD_LIMITS = (4, 60)
FIELDS = ("queries", "text", "targets", "bbox_2d", "observed", "grounded", "unambiguous")
"""Fields of models' answers, which no text about an image holds in quotes before a colon."""
COORDINATES = re.compile(r"\d|\bbox(?:es)? (?:number|no\.?|[a-z] )|\bbbox|\bcoordinates?\b|\bpixels?\b", re.IGNORECASE)
MARKS = re.compile(r"[<>{}\[\]\\`*#|_~]|[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")
SENTENCE = re.compile(r"[.!?](?=\s+\S)")


def find_text_fault(text: str) -> tuple[str, str] | None:
    """Return (reason, detail) of a text that is no query; None for one that may be."""
    count = len(text.split())
    if MARKS.search(text):
        return "markup", ""
    if addresses_the_model(text):
        return "speaks_to_model", ""
    if COORDINATES.search(text):
        return "coordinates", COORDINATES.search(text)[0].strip()
    if not WORD_LIMITS[0] <= count <= WORD_LIMITS[1]:
        return "length", f"{count} words"
    return ("sentences", "") if SENTENCE.search(text.rstrip()) else None
