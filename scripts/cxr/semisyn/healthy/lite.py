"""Classifier ``lite``: uses confidences of the stage ``boxes`` and the cardiothoracic ratio of the organ masks."""

from collections.abc import Mapping

import numpy as np
import polars as pl

from cxr.base.engines import Setup
from cxr.base.tables import read_table
from cxr.semisyn.healthy.engine import Classifier, Exclusion, ReadFrame
from cxr.semisyn.healthy.settings import HealthySettings, LiteSettings

INPUTS = {"boxes": "results/boxes/{shard}.parquet", "boxes_excluded": "results/boxes/{shard}.excluded.parquet"}
CLASSES_BY_FINDING = {
    "atelectasis": ("Atelectasis",),
    "consolidation": ("Consolidation",),
    "edema": ("ILD",),
    "opacity": ("Lung Opacity", "Consolidation"),
    "effusion": ("Pleural effusion",),
}
"""{finding: detector classes that stand for it}. ILD is interstitial lung disease, which looks like edema."""
UNSEEN = ("pneumothorax",)
"""Findings on which the detector was not trained."""
AP_VIEW = "AP"
"""The view that magnifies the heart."""


class LiteClassifier(Classifier):
    """Classifier by box confidences. The score of opacity is the probability that at least one of its boxes is true.
    Any other score is the highest confidence. A wide heart counts as cardiomegaly, which has no score."""

    def __init__(self, settings: LiteSettings, files: Mapping[str, str]):
        self.thresholds = dict.fromkeys(CLASSES_BY_FINDING, settings.other_lesions) | {"opacity": settings.opacity}
        self.most_ctr, self.most_ctr_ap = settings.ctr, settings.ctr_ap
        boxes = read_table(files["boxes"])
        self.boxes_by_image = {image: table for (image,), table in boxes.partition_by("image_id", as_dict=True).items()}
        failed = read_table(files["boxes_excluded"]).select("image_id", "reason", "detail")
        self.failed = {image: Exclusion(reason, detail, "boxes") for image, reason, detail in failed.iter_rows()}

    def scores(self, image_id: str, read_frame: ReadFrame) -> dict[str, float] | Exclusion:
        """See :class:`cxr.semisyn.healthy.engine.Classifier`."""
        if image_id in self.failed:
            return self.failed[image_id]
        if image_id not in self.boxes_by_image:
            return dict.fromkeys(CLASSES_BY_FINDING, 0.0)
        boxes, scores = self.boxes_by_image[image_id], {}
        for finding, names in CLASSES_BY_FINDING.items():
            confidence = boxes.filter(pl.col("class_name").is_in(names))["confidence"].to_numpy()
            best = float(confidence.max(initial=0.0))
            scores[finding] = 1 - float(np.prod(1 - confidence)) if finding == "opacity" else best
        return scores

    def explain_positive(self, scores: Mapping[str, float], ctr: float | None, view: str) -> str:
        """See :class:`cxr.semisyn.healthy.engine.Classifier`. Too wide a heart counts as cardiomegaly."""
        most = self.most_ctr_ap if view == AP_VIEW else self.most_ctr
        heart = f"CTR {ctr:.3f} > {most:g}" if ctr is not None and ctr > most else ""
        return ", ".join(filter(None, (super().explain_positive(scores, ctr, view), heart)))


def load(options: HealthySettings, setup: Setup) -> LiteClassifier:
    """Load the classifier with the detected boxes of the shard."""
    return LiteClassifier(options.lite, setup.files)
