"""Which images need the edit: those whose reports state a finding that asks for a mask of the anomaly map.

Only the report's tuples decide, and no rule or threshold of the masks: a change of those must not re-run the editor.
Every finding that the masks stage segments by the map is of its own lesion type, or of a disease that it may stand for;
so the images told here hold all of them, and some whose findings a rule drops later.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from cxr.base.tables import read_lines, read_table
from cxr.base.vocabulary import LESIONS

HEART_ALONE = "cardiomegaly"
"""The one lesion type whose mask is the heart's, not one of the anomaly map."""
BY_MAP = frozenset(LESIONS) - {HEART_ALONE}


def asks(tuples: Iterable[Mapping]) -> bool:
    """Return whether a section's tuples state, surely or not, a finding that asks for a mask of the anomaly map."""
    return any(finding.get("presence") == "positive" and not BY_MAP.isdisjoint(_types(finding)) for finding in tuples)


def _types(finding: Mapping) -> set[str]:
    """Return the lesion types that a tuple is of or may stand for."""
    predicted = finding.get("predicted_lesion_type") or ()
    type_names = [finding.get("lesion_type"), *([predicted] if isinstance(predicted, str) else predicted)]
    return {name.strip().lower() for name in [*type_names, *(finding.get("candidates") or ())] if name}


def images_with_findings(cohort: str | Path, reports: str | Path) -> set[str]:
    """Return the images of a shard whose study's report asks for a mask of the anomaly map.

    ``cohort``: the shard's table of images; ``reports``: its report lines. A study without a line makes no mask.
    """
    studies = {line["study_id"] for line in read_lines(reports) if asks(line["tuples"])}
    rows = read_table(cohort).select("image_id", "study_id").iter_rows()
    return {image_id for image_id, study_id in rows if study_id in studies}
