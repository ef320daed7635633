"""Settings of the stage semisyn_healthy."""

from typing import Literal

from cxr.base.settings import AUTHORS, PAPER, Section, Share, constraint, key
from cxr.base.vocabulary import SPLITS

Position = Literal["Erect", "Semi-erect", "Sitting", "Recumbent"]


class LiteSettings(Section):
    """The classifier lite (boxes and cardiothoracic ratio). An image that is positive is excluded from the pool."""

    opacity: Share = key(0.9, "Probability of at least one true opacity box from which an image is positive.")
    other_lesions: Share = key(0.5, "Confidence of a box of another lesion from which an image is positive.")
    ctr: Share = key(0.55, "Cardiothoracic ratio above which an image is positive.", unit="heart width / thorax width")
    ctr_ap: Share = key(
        0.6, "Cardiothoracic ratio above which an AP image is positive.", unit="heart width / thorax width"
    )


class TableSettings(Section):
    """Settings of the classifier ``table``, which reads another classifier's scores from a file."""

    scores: str = key("", "CSV or Parquet file with image_id and a column of scores (0 to 1) for each finding.")


class HealthySettings(Section):
    """The healthy pool: X-rays into which findings are edited."""

    views: list[Literal["PA", "AP"]] = key(lambda: ["PA"], "Accepted views.", source=PAPER, min_length=1)
    positions: list[Position] = key(lambda: ["Erect"], "Accepted patient positions.", source=PAPER, min_length=1)
    exclude_patients: bool = key(True, "Whether to exclude all images of a reference's patients, not only its images.")
    splits: list[Literal[SPLITS]] | None = key(
        None, "Accepted splits; null: train, or all for the embedded cohort.", min_length=1
    )
    labels: Literal["auto", "chexpert", "reports"] = key(
        "auto", "Source of the labels. auto: the CheXpert table, if any, otherwise the reports."
    )
    chexpert: str = key("", "CSV of CheXpert labels by study_id, image_id or Path; empty: the table in cohort.tables.")
    devices: Literal["auto", "not_positive", "negative", "any"] = key(
        "auto",
        "Accepted CheXpert labels of Support Devices (paper: negative). not_positive: negative or not mentioned; "
        "auto: not_positive, or any for the embedded cohort.",
        source=AUTHORS,
    )
    classifier: Literal["lite", "table", "xrv"] = key(
        "lite", "lite: boxes and cardiothoracic ratio; table: scores from a file; xrv: torchxrayvision's DenseNet-121."
    )
    threshold: Share = key(0.5, "A finding is positive if its score is at least this (classifiers table and xrv).")
    lite: LiteSettings = key(LiteSettings, "Settings of the classifier lite.")
    table: TableSettings = key(TableSettings, "Settings of the classifier table.")

    @constraint
    def _has_its_table(self) -> None:
        if self.classifier == "table" and not self.table.scores:
            raise ValueError("classifier is 'table', but table.scores is empty: name the file of scores")
