"""Chest ImaGenome (PhysioNet), silver set: scene graphs, one JSON file per image of MIMIC-CXR."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cxr.annotations.label_tables import SEX
from cxr.annotations.regions import Annotation, Annotations
from cxr.annotations.tabular import parse_numbers, refuse_damaged
from cxr.base.errors import UserError

WHAT = "folder of Chest ImaGenome's scene graphs (*_SceneGraph.json)"
FOLDER = True
ENDING = "_SceneGraph.json"
CORNERS = ("original_x1", "original_y1", "original_x2", "original_y2")


class SceneGraph(NamedTuple):
    """The regions of an image, and the patient's sex."""

    image_id: str
    names: list[str]  # names of the N regions
    boxes: np.ndarray  # boxes of the regions, (N, 4) in original pixels, NaN if invalid
    sex: str | None


def read_graphs(key: str, path: Path) -> Iterator[SceneGraph]:
    """Yield the scene graphs in the folder ``path``, or in its ``silver_dataset/scene_graph``, sorted by file name.
    Raises UserError, which names the setting ``key``, if a graph is damaged or there is none."""
    inner = path / "silver_dataset" / "scene_graph"
    files = sorted((inner if inner.is_dir() else path).glob(f"*{ENDING}"))
    if not files:
        raise UserError(f"{key}: {path} has no scene graph (*{ENDING}): give the folder of Chest ImaGenome")
    for file in files:
        with refuse_damaged(file, f"{key}: {file.name} is not a complete scene graph"):
            content = json.loads(file.read_text(encoding="utf-8"))
            objects = content["objects"]
            names = [str(entry["bbox_name"]) for entry in objects]
            numbers = [parse_numbers([entry.get(name)]) or (np.nan,) for entry in objects for name in CORNERS]
        sex = SEX.get(str(content.get("gender") or "").strip().lower())
        boxes = np.array(numbers, np.float64).reshape(-1, 4)
        yield SceneGraph(file.name.removesuffix(ENDING), names, boxes, sex)


def read(key: str, path: Path) -> Annotations:
    """Read the boxes of all scene graphs. Raises UserError if a graph is damaged or there is none."""
    regions, image_names = [], set()
    for graph in read_graphs(key, path):
        image_names.add(graph.image_id)
        for name, box in zip(graph.names, graph.boxes.tolist(), strict=True):
            regions.append(Annotation(graph.image_id, name, None if np.isnan(box).any() else tuple(box)))
    return Annotations(regions, image_names)
