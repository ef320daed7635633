"""Select the images to edit: those whose reports state a finding that needs a mask from the anomaly map.

Only the report's tuples decide: a change of the masks' rules or thresholds must not rerun the editor. The selection
holds every image with a finding that the masks stage segments by the map, and some whose findings a rule drops later.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from cxr.base.tables import read_lines, read_table
from cxr.base.vocabulary import LUNG_LESIONS

HEART_LESION = "cardiomegaly"
"""The only lesion type whose mask is that of the heart; all others come from the anomaly map."""
MAPPED_LESIONS = frozenset(LUNG_LESIONS)


def needs_anomaly_map(tuples: Iterable[Mapping]) -> bool:
    """Return whether a section's tuples state, surely or not, a finding that needs a mask from the anomaly map."""
    return any(
        finding.get("presence") == "positive" and not MAPPED_LESIONS.isdisjoint(_lesion_types(finding))
        for finding in tuples
    )


def _lesion_types(finding: Mapping) -> set[str]:
    """Return a tuple's lesion types: stated, predicted and possible."""
    predicted = finding.get("predicted_lesion_type") or ()
    type_names = [finding.get("lesion_type"), *([predicted] if isinstance(predicted, str) else predicted)]
    return {name.strip().lower() for name in [*type_names, *(finding.get("candidates") or ())] if name}


def images_with_findings(cohort: str | Path, reports: str | Path) -> set[str]:
    """Return the images of a shard whose study's report needs a mask from the anomaly map.

    ``cohort``: the shard's table of images; ``reports``: its report lines. A study without a line needs none.
    """
    studies = {line["study_id"] for line in read_lines(reports) if needs_anomaly_map(line["tuples"])}
    rows = read_table(cohort).select("image_id", "study_id").iter_rows()
    return {image_id for image_id, study_id in rows if study_id in studies}
