"""Settings of the stage semisyn_detection."""

from cxr.base.settings import PAPER, Replicates, Section, constraint, key, refuse_equal_names
from cxr.semisyn.shared import RunName


class DetectionSettings(Section):
    """Scores of detectors against experts' boxes."""

    predictions: dict[RunName, dict[str, list[str]]] = key(
        dict,
        "Predictions of other detectors, {run: {reference: [a file for each seed]}}, scored in addition to "
        "detectors.runs; a file is Parquet or CSV with image_id, finding, confidence and x1, y1, x2, y2 in original "
        "pixels.",
    )
    against: str = key("real", "The run that all others are compared with.", source=PAPER)
    replicates: Replicates = key(1000, "Bootstrap replicates, by patient; 0 for no intervals, else 100 or more.")

    @constraint
    def _names_are_distinct(self) -> None:
        refuse_equal_names("the runs of predictions", self.predictions)
