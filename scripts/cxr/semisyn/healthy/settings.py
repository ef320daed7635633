"""Settings of the stage semisyn_healthy."""

from typing import Literal

from cxr.base.settings import AUTHORS, PAPER, Section, Share, constraint, key
from cxr.base.vocabulary import SPLITS

Position = Literal["Erect", "Semi-erect", "Sitting", "Recumbent"]


class LiteSettings(Section):
    """The classifier lite: box confidences and the cardiothoracic ratio."""

    opacity: Share = key(0.9, "Probability that a box of opacities is right from which an image is positive.")
    others: Share = key(0.5, "Confidence of a box of another lesion from which an image is positive.")
    ctr: Share = key(0.55, "Cardiothoracic ratio above which an image is positive.", unit="heart width / thorax width")
    ctr_ap: Share = key(0.6, "The same of an AP image, which magnifies the heart.", unit="heart width / thorax width")


class TableSettings(Section):
    """The classifier table: scores of another net."""

    scores: str = key("", "CSV or Parquet with image_id and a column per finding, scores from 0 to 1.")


class HealthySettings(Section):
    """The healthy pool: X-rays into which findings are put."""

    views: list[Literal["PA", "AP"]] = key(lambda: ["PA"], "Views of the pool.", source=PAPER, min_length=1)
    positions: list[Position] = key(lambda: ["Erect"], "Accepted known positions.", source=PAPER, min_length=1)
    exclude_patients: bool = key(True, "Whether to exclude all images of a reference's patients (paper: its images).")
    splits: list[Literal[SPLITS]] | None = key(
        None, "Accepted splits; null: train; embedded cohort: all.", min_length=1
    )
    labels: Literal["auto", "chexpert", "reports"] = key(
        "auto", "Source of the labels: a table, the reports stage, or auto: the table, if any."
    )
    chexpert: str = key("", "CSV of CheXpert labels by study_id, image_id or Path; empty: that in cohort.tables.")
    devices: Literal["auto", "not_positive", "negative", "any"] = key(
        "auto", "Accepted Support Devices (negative: paper); auto: not_positive, embedded cohort: any.", source=AUTHORS
    )
    classifier: Literal["lite", "table", "xrv"] = key(
        "lite", "lite: boxes and cardiothoracic ratio; table: scores from a file; xrv: torchxrayvision's DenseNet-121."
    )
    threshold: Share = key(0.5, "Score from which the classifiers table and xrv call a finding positive.")
    lite: LiteSettings = key(LiteSettings, "Settings of the classifier lite.")
    table: TableSettings = key(TableSettings, "Settings of the classifier table.")

    @constraint
    def _has_its_table(self) -> None:
        if self.classifier == "table" and not self.table.scores:
            raise ValueError("classifier is 'table', but table.scores is empty: name the file of scores")
