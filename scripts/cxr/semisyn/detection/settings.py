"""Settings of the stage semisyn_detection."""

from cxr.base.settings import PAPER, Section, constraint, key, refuse_equal_names
from cxr.semisyn.shared import RunName


class DetectionSettings(Section):
    """Scores of detectors against experts' boxes."""

    predictions: dict[RunName, dict[str, list[str]]] = key(
        dict,
        "Predictions of other detectors, scored beside detectors.runs: {run: {reference: [a file for each "
        "seed]}}; Parquet or CSV with image_id, finding, confidence and x1, y1, x2, y2 in original pixels.",
    )
    against: str = key("real", "The run that all others are compared with.", source=PAPER)

    @constraint
    def _names_are_distinct(self) -> None:
        refuse_equal_names("the runs of predictions", self.predictions)
