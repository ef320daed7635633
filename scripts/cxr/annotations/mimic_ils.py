"""MIMIC-ILS, the authors' released dataset: a folder with one JSON and the masks as image files.

``mimic_ils_instruction_answer.json`` holds {split: {study: entry}}; a pair with a mask names the mask's file.
"""

import json
from pathlib import Path

import cv2
import numpy as np

from cxr.annotations.regions import Annotation, Annotations
from cxr.annotations.tabular import refuse_damaged

WHAT = "folder of the released MIMIC-ILS, or of that layout"
FOLDER = True
HOLDS = ("drawn", "split")
JSON, MASKS = "mimic_ils_instruction_answer.json", "lesion_mask"


def read(key: str, path: Path) -> Annotations:
    """Read each distinct mask once; negatives give no region. Raises UserError."""
    with refuse_damaged(path / JSON, f"{key} is {str(path)!r}, which holds no whole {JSON}"):
        studies_by_split = json.loads((path / JSON).read_text(encoding="utf-8"))
        distinct_masks = {
            (entry["dicom_id"], pair["target"], pair["seg_mask_path"], split): None
            for split, studies in studies_by_split.items()
            for entry in studies.values()
            for pairs in entry["instruction_answer_pairs"].values()
            for pair in pairs
            if pair.get("seg_mask_path")
        }
    regions = []
    for image, target, name, split in distinct_masks:
        regions.append(Annotation(image, target, drawn=path / MASKS / name, split=split))
    return Annotations(regions, set())


def write(path: Path, annotations: Annotations) -> None:
    """Write the folder: one study per image, one pair per mask, and the masks as PNG of 0 and 255."""
    studies_by_split: dict[str, dict] = {}
    for index, region in enumerate(annotations.regions):
        empty = {"dicom_id": region.image, "instruction_answer_pairs": {"positive_pairs": [], "negative_pairs": []}}
        entry = studies_by_split.setdefault(region.split, {}).setdefault(f"s{region.image}", empty)
        name = f"s{region.image}/s{region.image}_{region.label}_{index}.png"
        entry["instruction_answer_pairs"]["positive_pairs"].append({"target": region.label, "seg_mask_path": name})
        (path / MASKS / name).parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path / MASKS / name), np.asarray(region.mask(), np.uint8) * 255)
    path.mkdir(parents=True, exist_ok=True)
    (path / JSON).write_text(json.dumps(studies_by_split), encoding="utf-8")
