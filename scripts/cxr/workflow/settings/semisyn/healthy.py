"""Settings of the stage semisyn_healthy."""

from typing import Literal

from cxr.base.settings import AUTHORS, PAPER, Section, Share, constraint, key
from cxr.base.vocabulary import SPLITS

Position = Literal["Erect", "Semi-erect", "Sitting", "Recumbent"]


class LiteHealthy(Section):
    """The classifier lite: boxes and the cardiothoracic ratio."""

    opacity: Share = key(
        0.9,
        "Chance that at least one box Lung Opacity or Consolidation is right (1 less the product of 1 less each "
        "confidence) from which an image is positive.",
    )
    others: Share = key(
        0.5, "Confidence of a box Atelectasis, ILD or Pleural effusion from which an image is positive."
    )
    ctr: Share = key(0.55, "Cardiothoracic ratio above which an image is positive.", unit="heart width / thorax width")
    ctr_ap: Share = key(0.6, "The same for the view AP, which magnifies the heart.", unit="heart width / thorax width")


class TableHealthy(Section):
    """The classifier table: scores of another net."""

    scores: str = key("", "CSV or Parquet with image_id and a column per finding, scores from 0 to 1.")


class Healthy(Section):
    """The healthy pool: which X-rays findings are put into."""

    views: list[Literal["PA", "AP"]] = key(lambda: ["PA"], "Views of the pool.", source=PAPER, min_length=1)
    positions: list[Position] = key(
        lambda: ["Erect"],
        "Positions of the patient, where a table or the header tells one.",
        source=PAPER,
        min_length=1,
    )
    unknown_position: Literal["auto", "keep", "exclude"] = key(
        "auto",
        "What to do with an image that does not tell the position. auto: exclude it where MIMIC's metadata table is at "
        "hand, else keep it; the funnel counts these.",
    )
    exclude_patients: bool = key(
        True,
        "Whether a reference for tests or priors stops every film of its patients; false: only its own images (paper).",
    )
    splits: list[Literal[SPLITS]] | None = key(
        None, "Splits whose patients feed training data; null: train, for the embedded cohort all three.", min_length=1
    )
    labels: Literal["auto", "chexpert", "reports"] = key(
        "auto",
        "What tells that a study has no finding. chexpert: the labels No Finding and Support Devices of a table "
        "(authors); reports: this project's reports stage; auto: the table where it is given or lies in cohort.tables.",
    )
    chexpert: str = key(
        "",
        "CSV with study_id, image_id or CheXpert's Path, and the columns No Finding and Support Devices (1, 0, -1 or "
        "empty); empty: *-chexpert.csv of cohort.tables, where it is.",
    )
    devices: Literal["auto", "not_positive", "negative", "any"] = key(
        "auto",
        "Label Support Devices of a healthy film: not_positive, or negative (as the paper words it), or any. auto: "
        "not_positive; for the embedded cohort any, because its devices stand in reports and are not drawn.",
        source=AUTHORS,
    )
    classifier: Literal["lite", "table", "xrv"] = key(
        "lite",
        "lite: the boxes stage and the cardiothoracic ratio; table: scores from a file; xrv: the DenseNet-121 of "
        "torchxrayvision (weights placed by hand).",
    )
    threshold: Share = key(0.5, "Score from which the classifiers table and xrv call a finding positive.")
    lite: LiteHealthy = key(LiteHealthy, "Settings of the classifier lite.")
    table: TableHealthy = key(TableHealthy, "Settings of the classifier table.")
    max_lung_iou: Share = key(0.3, "IoU of the boxes of both lungs above which an image is excluded as lungs_overlap.")

    @constraint
    def _has_its_table(self) -> None:
        if self.classifier == "table" and not self.table.scores:
            raise ValueError("classifier is 'table', but table.scores is empty: name the file of scores")
