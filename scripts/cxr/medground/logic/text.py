"""The form that every query's text must have."""

import re

from cxr.llm.guards import addresses_the_model

WORD_LIMITS = (4, 60)
FIELDS = ("queries", "text", "targets", "bbox_2d", "observed", "grounded", "unambiguous")
"""Fields of models' answers; a text that has one in quotes before a colon addresses the model."""
COORDINATES = re.compile(r"\d|\bbox(?:es)? (?:number|no\.?|[a-z] )|\bbbox|\bcoordinates?\b|\bpixels?\b", re.IGNORECASE)
MARKS = re.compile(r"[<>{}\[\]\\`*#|_~]|[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")
SENTENCE = re.compile(r"[.!?](?=\s+\S)")


def find_text_fault(text: str) -> tuple[str, str] | None:
    """Return (reason, detail) of a text that cannot be a query; None if it can."""
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
