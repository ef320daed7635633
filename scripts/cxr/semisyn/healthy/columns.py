"""Columns of the tables that the stage semisyn_healthy writes."""

import polars as pl

from cxr.base.columns import Column, Columns, schema
from cxr.base.vocabulary import FINDINGS
from cxr.semisyn.healthy.anatomy import ORGANS

_EDGES = {"x1": "Left edge", "y1": "Top edge", "x2": "Right edge", "y2": "Bottom edge"}
_NAMES = {"right": "right lung", "left": "left lung", "heart": "heart"}

HEALTHY: Columns = {
    "image_id": Column(pl.String, "Image."),
    "study_id": Column(pl.String, "Its study."),
    "subject_id": Column(pl.String, "Its patient."),
    "split": Column(pl.String, "train, validate or test."),
    "shard": Column(pl.String, "Shard of its patient."),
    "view": Column(pl.String, "View, by its code."),
    "position": Column(pl.String, "Erect, Semi-erect, Sitting or Recumbent; empty if unknown."),
    "ctr": Column(pl.Float64, "Cardiothoracic ratio: the heart's width over both lungs', outer edge to outer edge."),
    **{
        f"{organ}_{edge}": Column(pl.Int64, f"{edge_name} of the {_NAMES[organ]}'s box.", "frame pixels")
        for organ in ORGANS
        for edge, edge_name in _EDGES.items()
    },
    **{
        f"score_{finding}": Column(
            pl.Float64, f"The classifier's score of {name.lower()}, 0 to 1; null where it does not see that."
        )
        for finding, name in FINDINGS.items()
    },
    "labels": Column(pl.String, "Source of the labels: `chexpert` or `reports`."),
}
SCHEMA = schema(HEALTHY)
FUNNEL: Columns = {
    "criterion": Column(pl.String, "Criterion, in words; the last row is the pool."),
    "in": Column(pl.Int64, "Images that reached it."),
    "out": Column(pl.Int64, "Images that passed."),
    "reason": Column(pl.String, "Codes of the reasons it gives, with their numbers ([reasons.md](reasons.md))."),
    "paper": Column(pl.Int64, "Number in the paper; empty if not reported."),
}
