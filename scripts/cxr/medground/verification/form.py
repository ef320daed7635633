"""Stage I: the form of a query, whoever made it."""

import re
from collections.abc import Mapping, Sequence

from cxr.llm.guards import addresses_the_model

WORDS = (4, 60)
COORDINATES = re.compile(r"\d|\bbox(?:es)? (?:number|no\.?|[a-z] )|\bbbox|\bcoordinates?\b|\bpixels?\b", re.IGNORECASE)
MARKS = re.compile(r"[<>{}\[\]\\`*#|_~]|[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")
SENTENCE = re.compile(r"[.!?](?=\s+\S)")
NEEDED = ("query_id", "source", "image_id", "query", "kind", "regions", "boxes")


def form_fault(line: Mapping, boxes: Mapping[int, Sequence[int]], candidates: set[int]) -> tuple[str, str] | None:
    """Return (reason, detail) of a line that fails stage I, None for one that passes.

    ``boxes``: {region: its box on the grid} of the image; ``candidates``: the regions that may be an answer.
    """
    if missing := [name for name in NEEDED if name not in line]:
        return "missing_field", missing[0]
    text, regions = line["query"], line["regions"]
    if regions == [] and line["boxes"]:
        return "box_moved", ""
    if not isinstance(text, str) or not isinstance(regions, list) or not regions:
        return "missing_field", "query or regions"
    if len(set(regions)) != len(regions):
        return "target_twice", ""
    if any(one not in candidates for one in regions):
        return "unknown_target", ""
    if [list(box) for box in line["boxes"]] != [list(boxes[one]) for one in regions]:
        return "box_moved", ""
    return text_fault(text)


def text_fault(text: str) -> tuple[str, str] | None:
    """Return (reason, detail) of a text that fails stage I."""
    count = len(text.split())
    if MARKS.search(text):
        return "markup", ""
    if addresses_the_model(text):
        return "speaks_to_model", ""
    if COORDINATES.search(text):
        return "coordinates", COORDINATES.search(text)[0].strip()
    if not WORDS[0] <= count <= WORDS[1]:
        return "length", f"{count} words"
    return ("sentences", "") if SENTENCE.search(text.rstrip()) else None
