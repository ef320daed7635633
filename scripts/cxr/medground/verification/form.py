"""Stage I: the form of a query, whoever made it."""

from collections.abc import Mapping, Sequence

from cxr.medground.logic.text import text_fault

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
    if any(region not in candidates for region in regions):
        return "unknown_target", ""
    if [list(box) for box in line["boxes"]] != [list(boxes[region]) for region in regions]:
        return "box_moved", ""
    return text_fault(text)
