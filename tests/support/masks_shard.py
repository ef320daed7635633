"""Write the inputs of the masks stage from arrays: the files of one shard, from cohort to boxes and reports."""

from pathlib import Path

import numpy as np
import polars as pl

from cxr.base.hdf5 import ShardWriter
from cxr.base.tables import write_excluded, write_lines, write_table
from cxr.base.vocabulary import ANATOMY_LABELS, ORGAN_LABELS

COLUMNS = ("x1", "y1", "x2", "y2")
RULES = {
    "min_component_px": 4,
    "grow_tolerance": 10,
    "grow_px": 0,
    "effusion_fill_share": 0.25,
    "ground_min_px": 4,
    "ground_min_share": 0.05,
    "name_min_share": 0.10,
    "weak_hedges": "tentative",
    "predicted_other": "strict",
    "blocking": "strict",
    "kinds": "strict",
    "joint_location": "strict",
    "one_answer": "strict",
}
"""Rules of the stage for pictures of 24 to 64 pixels."""


def said(entity="opacity", labels=(), *, lesion="opacity", certainty="definitive", sentence=1, **more) -> dict:
    """One positive tuple of a report line, in the schema of the reports stage."""
    return {
        "entity": entity,
        "sentence_index": sentence,
        "presence": "positive",
        "certainty": certainty,
        "location": None,
        "predicted_lesion_type": None,
        "category": "lung",
        "labels": list(labels),
        "lesion_type": lesion,
        "hedge": "definite" if certainty == "definitive" else "strong",
        "span": [0, 0],
        "candidates": [],
        "predicted_hedge": None,
        "related": None,
        "block": [],
        "denies": True,
    } | more


def write_inputs(folder: Path, studies: list[dict]) -> dict[str, str]:
    """Write a shard and return the stage's input paths by name.

    A study: study_id, image_id, zones {label: bool (H, W)} of the anatomy, heart bool, lungs {label: bool} of the
    organs (unlike the zones' lungs, as the paper's engines give them), anomaly and image uint8, boxes [(x1, y1, x2, y2,
    confidence)], tuples, and further fields of the report line in ``line``; ``kept`` (a flag for each box),
    ``to_original``, ``subject_id``, ``split``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = {name: str(folder / f"{name}.h5") for name in ("frames", "organs", "anomaly", "anatomy")}
    names |= {name: str(folder / f"{name}.parquet") for name in ("cohort", "boxes", "boxes_excluded")}
    names["reports"] = str(folder / "reports.jsonl")
    rows = sorted(studies, key=lambda study: study["image_id"])
    shape = rows[0]["anomaly"].shape if rows else (512, 512)
    none = np.zeros(shape, bool)
    with (
        ShardWriter(names["frames"], pictures=("image",), empty={"image": (shape, np.uint8)}) as frames,
        ShardWriter(names["organs"], labels=ORGAN_LABELS, empty={"mask": ((3, *shape), bool)}) as organs,
        ShardWriter(names["anomaly"], empty={"anomaly": (shape, np.uint8)}) as anomaly,
        ShardWriter(names["anatomy"], labels=ANATOMY_LABELS, empty={"mask": ((16, *shape), bool)}) as anatomy,
    ):
        for row in rows:
            heart = row.get("heart", none)
            lungs = row["lungs"]
            zones = dict.fromkeys(ANATOMY_LABELS, none) | row["zones"] | {"heart": heart}
            affine = row.get("to_original", np.eye(2, 3))
            frames.append(row["image_id"], image=row["image"], to_original=affine, original_shape=np.int32(shape))
            organs.append(
                row["image_id"], mask=np.stack([lungs.get("right lung", none), lungs.get("left lung", none), heart])
            )
            anomaly.append(row["image_id"], edited=row["image"], anomaly=row["anomaly"])
            anatomy.append(row["image_id"], mask=np.stack([zones[label] for label in ANATOMY_LABELS]))
    boxes = [
        {"image_id": row["image_id"], **dict(zip(COLUMNS, map(float, box), strict=False)), "confidence": float(box[4])}
        | {"class_name": "Lung Opacity", "is_used": kept}
        for row in rows
        for box, kept in zip(row["boxes"], row.get("kept", [True] * len(row["boxes"])), strict=True)
    ]
    schema = {"image_id": pl.String, **dict.fromkeys((*COLUMNS, "confidence"), pl.Float64)}
    write_table(names["boxes"], pl.DataFrame(boxes, schema=schema | {"class_name": pl.String, "is_used": pl.Boolean}))
    write_excluded(names["boxes_excluded"], [])
    cohort = [
        {
            "image_id": row["image_id"],
            "study_id": row["study_id"],
            "subject_id": row.get("subject_id", "p1"),
            "split": row.get("split", "train"),
        }
        for row in rows
    ]
    columns = dict.fromkeys(("image_id", "study_id", "subject_id", "split"), pl.String)
    write_table(names["cohort"], pl.DataFrame(cohort, schema=columns))
    lines = {
        row["study_id"]: {"study_id": row["study_id"], "subject_id": row.get("subject_id", "p1")}
        | {"tuples": row["tuples"], "other_tuples": [], "related": []}
        | row.get("line", {})
        for row in rows
    }
    write_lines(names["reports"], [lines[study] for study in sorted(lines)])
    return names


def outputs(folder: Path) -> dict[str, str]:
    """Return the output paths of ``make_masks.run_shard`` by name."""
    folder.mkdir(parents=True, exist_ok=True)
    tables = ("findings", "units", "studies", "excluded")
    return {"output": str(folder / "00.h5")} | {name: str(folder / f"00.{name}.parquet") for name in tables}
