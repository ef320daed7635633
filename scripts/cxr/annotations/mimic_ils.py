"""MIMIC-ILS, the dataset that the authors of ILS released: a folder with a JSON file, {split: {study: entry}}, and the
masks as image files. An entry has instruction-answer pairs. A pair with a mask has the name of the mask's file."""

import json
from pathlib import Path

from cxr.annotations.regions import Annotation, Annotations
from cxr.annotations.tabular import refuse_damaged

WHAT = "folder of MIMIC-ILS, or of a dataset in its layout"
FOLDER = True
JSON, MASKS = "mimic_ils_instruction_answer.json", "lesion_mask"


def read(key: str, path: Path) -> Annotations:
    """Read the masks that instruction-answer pairs name, each mask once. ``key``: the setting that names the folder
    ``path``. Raises UserError for a damaged JSON file."""
    with refuse_damaged(path / JSON, f"{key} is {str(path)!r}, whose {JSON} is missing or damaged"):
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
        regions.append(Annotation(image, target, mask_source=path / MASKS / name, split=split))
    return Annotations(regions, set())
