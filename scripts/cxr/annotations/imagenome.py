"""Chest ImaGenome (PhysioNet): scene graphs of the silver set, one JSON file per image of MIMIC-CXR."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cxr.annotations.label_tables import SEX
from cxr.annotations.regions import Annotation, Annotations
from cxr.annotations.tabular import refuse_damaged
from cxr.base.errors import UserError

WHAT = "folder of Chest ImaGenome's scene graphs (*_SceneGraph.json)"
FOLDER = True
HOLDS = ("box",)
LESIONS: dict[str, str] = {}
"""Its labels are regions."""
ENDING = "_SceneGraph.json"
CORNERS = ("original_x1", "original_y1", "original_x2", "original_y2")


@dataclass(frozen=True)
class SceneGraph:
    """The regions of an image: names, boxes (N, 4) in original pixels (NaN: no number), and the patient's sex."""

    image_id: str
    names: list[str]
    boxes: np.ndarray
    sex: str | None


def graph_folder(path: Path) -> Path:
    """Return the folder of the graphs, given that folder or the release's."""
    inner = path / "silver_dataset" / "scene_graph"
    return inner if inner.is_dir() else path


def read_graphs(key: str, path: Path) -> Iterator[SceneGraph]:
    """Yield the graphs of a folder by file name. Raises UserError if there is none, or if one is damaged."""
    files = sorted(graph_folder(path).glob(f"*{ENDING}"))
    if not files:
        raise UserError(f"{key}: {path} has no scene graph (*{ENDING}): give the folder of Chest ImaGenome")
    for file in files:
        with refuse_damaged(file, f"{key}: {file.name} is no whole scene graph"):
            content = json.loads(file.read_text(encoding="utf-8"))
            rows = [
                (str(entry["bbox_name"]), [_parse_number(entry.get(name)) for name in CORNERS])
                for entry in content["objects"]
            ]
        boxes = np.array([box for _, box in rows], np.float64).reshape(-1, 4)
        sex = SEX.get(str(content.get("gender") or "").strip().lower())
        yield SceneGraph(file.name.removesuffix(ENDING), [name for name, _ in rows], boxes, sex)


def _parse_number(cell: Any) -> float:
    try:
        return float(cell)
    except (TypeError, ValueError):
        return float("nan")


def read(key: str, path: Path) -> Annotations:
    """Read the boxes of all graphs. Raises UserError."""
    regions, image_names = [], set()
    for graph in read_graphs(key, path):
        image_names.add(graph.image_id)
        for name, box in zip(graph.names, graph.boxes.tolist(), strict=True):
            regions.append(Annotation(graph.image_id, name, None if np.isnan(box).any() else tuple(box)))
    return Annotations(regions, image_names)


def write(path: Path, annotations: Annotations) -> None:
    """Write a graph for each image."""
    path.mkdir(parents=True, exist_ok=True)
    for image in sorted(annotations.seen | {region.image for region in annotations.regions}):
        objects = [
            {"bbox_name": region.label} | dict(zip(CORNERS, region.box or (None,) * 4, strict=True))
            for region in annotations.regions
            if region.image == image
        ]
        text = json.dumps({"image_id": image, "viewpoint": "PA", "objects": objects})
        (path / f"{image}{ENDING}").write_text(text, encoding="utf-8")
