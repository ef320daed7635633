"""Settings of the stage semisyn_healthy."""

from typing import Literal

from cxr.base.settings import AUTHORS, PAPER, Section, Share, constraint, key
from cxr.base.vocabulary import SPLITS

Position = Literal["Erect", "Semi-erect", "Sitting", "Recumbent"]


class LiteSettings(Section):
    """The classifier ``lite`` (boxes and cardiothoracic ratio). An image that is positive is excluded from the pool."""

    opacity: Share = key(0.9, "An image is excluded if the probability of a true opacity box is this or higher.")
    other_lesions: Share = key(0.5, "An image is excluded if a box of any other lesion has this confidence or more.")
    ctr: Share = key(0.55, "An image of a higher cardiothoracic ratio is excluded.", unit="heart width / thorax width")
    ctr_ap: Share = key(
        0.6, "An AP image of a higher cardiothoracic ratio is excluded.", unit="heart width / thorax width"
    )


class TableSettings(Section):
    """Settings of the classifier ``table``, which reads another classifier's scores from a file."""

    scores: str = key("", "CSV or Parquet file with image_id and a column of scores (0 to 1) for each finding.")


class HealthySettings(Section):
    """The healthy pool: X-rays into which findings are edited."""

    views: list[Literal["PA", "AP"]] = key(lambda: ["PA"], "Accepted views.", source=PAPER, min_length=1)
    positions: list[Position] = key(lambda: ["Erect"], "Accepted patient positions.", source=PAPER, min_length=1)
    exclude_patients: bool = key(True, "If true, exclude patients of semisyn.references; if false, only images in it.")
    splits: list[Literal[SPLITS]] | None = key(
        None, "Accepted splits; null: train; all for the embedded cohort, the project's synthetic data.", min_length=1
    )
    labels: Literal["auto", "chexpert", "reports"] = key(
        "auto", "Source of the studies' labels. auto: the CheXpert table, if any, otherwise the reports."
    )
    chexpert: str = key("", "CSV of CheXpert labels by study_id, image_id or Path; empty: the table in cohort.tables.")
    devices: Literal["auto", "not_positive", "negative", "any"] = key(
        "auto",
        "Accepted CheXpert labels of Support Devices (paper: negative). not_positive: negative or not mentioned; "
        "auto: not_positive, or any for the embedded cohort, the project's synthetic data.",
        source=AUTHORS,
    )
    classifier: Literal["lite", "table", "xrv"] = key(
        "lite", "Classifier. lite: boxes and heart size; table: scores in a file; xrv: torchxrayvision's DenseNet-121."
    )
    threshold: Share = key(0.5, "A finding is positive if its score is at least this (classifiers table and xrv).")
    lite: LiteSettings = key(LiteSettings, "Settings of the classifier `lite`.")
    table: TableSettings = key(TableSettings, "Settings of the classifier `table`.")

    @constraint
    def _has_its_table(self) -> None:
        if self.classifier == "table" and not self.table.scores:
            raise ValueError("classifier is 'table', but table.scores is empty: name the file of scores")
