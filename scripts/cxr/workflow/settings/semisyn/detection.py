"""Settings of the stage semisyn_detection."""

from typing import Annotated

from cxr.base.settings import PAPER, Limits, Replicates, Section, Share, constraint, key, refuse_equal_names
from cxr.workflow.settings.semisyn.names import RunName


class Detection(Section):
    """Scores of detectors against people's boxes."""

    predictions: dict[RunName, dict[str, list[str]]] = key(
        dict,
        "Predictions of other detectors: {run: {reference: [a file for each seed]}}. A file is Parquet or CSV with "
        "image_id, finding, confidence and x1, y1, x2, y2 in original pixels. Without any, and with detectors.runs "
        "also beside them, the project's own detectors are scored.",
    )
    synthetic: dict[RunName, Annotated[int, Limits(ge=0)]] = key(
        dict, "Synthetic images that a run was trained on, for the tables."
    )
    against: str = key("real", "The run that all others are compared with.", source=PAPER)
    ious: list[Share] = key(
        lambda: [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7],
        "IoUs at which a box is right; ap1070 is the mean over them.",
        source=PAPER,
        min_length=1,
    )
    points: int = key(101, "Recalls over which a precision is averaged.", ge=2, le=10_001)
    replicates: Replicates = key(1000, "Bootstrap replicates, by patient; 0 for no intervals, else 100 or more.")
    interval: Share = key(0.95, "Coverage of the confidence intervals.")
    wilcoxon: list[Annotated[int, Limits(ge=2, le=100_000)]] = key(
        lambda: [100, 1000],
        "Replicates of the paper's test. Its p is printed beside the interval and is no evidence: without any "
        "difference it rejects in nearly half of all experiments.",
        source=PAPER,
    )

    @constraint
    def _names_are_distinct(self) -> None:
        refuse_equal_names("the runs of predictions", self.predictions)
        if not set(self.wilcoxon) <= {100, 1000}:
            raise ValueError(
                f"wilcoxon is {self.wilcoxon}: choose among 100 and 1000, which the tables have columns for"
            )
