"""Write NIH's X-rays as a cohort for SemiSynCXR: ``semisyn_films.py DATA OUT``.

DATA contains nih and nih_more in the layout of CXR_ILS_SHARED. OUT/films gets manifest.csv, labels, human boxes of
opacities, and mine.yaml. OUT/ils gets the settings with which ILS runs on the edited X-rays.
"""

import argparse
import csv
import json
from collections.abc import Iterator
from pathlib import Path

SETS = ("nih", "nih_more")
OPACITIES = ("Infiltrate", "Infiltration", "Pneumonia", "Consolidation")
"""NIH's labels of boxes that show opacities. NIH's boxes are used only for images without boxes of RSNA's readers."""
FILMS = """\
cohort: {source: manifest, manifest: manifest.csv, shards: 3, split: {train: 100, validate: 0, test: 0}}
semisyn:
  references: {people: {format: coco, path: people.json}}
  healthy: {labels: chexpert, chexpert: chexpert.csv, views: [PA, AP]}
  dataset: {per_finding: 60, sizes: [420]}
  selection: {samples: 20}
  realism: {reference: people, features: [lite]}
"""
ILS = """\
cohort: {source: manifest, manifest: ../films/results/semisyn/dataset/cohort/manifest.csv, shards: 3}
training: {runs: {base: {weights: lite, trained: false}}}
inference: {split: train, text: false}
"""


def read_films(data: Path) -> Iterator[dict]:
    """Yield {image, patient, path, view, width, height, boxes: human boxes, healthy} of each X-ray."""
    for name in SETS:
        with open(data / name / f"{name}.csv", newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                boxes = json.loads(row.get("rsna_boxes") or "[]")
                nih = json.loads(row.get("nih_boxes") or "[]")
                boxes = boxes or [box for box in nih if box["label"] in OPACITIES]
                is_healthy = row["nih_labels"] == "No Finding" and row["rsna_class"] in ("", "Normal")
                facts = {"image": f"{name}-{Path(row['image']).stem}", "patient": f"nih-{row['patient_id']}"}
                facts |= {"path": str((data / name / "images" / row["image"]).resolve()), "view": row["view"]}
                facts |= {"width": int(row["width"]), "height": int(row["height"]), "boxes": boxes}
                yield facts | {"healthy": is_healthy and not boxes}


def coco_boxes(films: list[dict]) -> dict:
    """Return the human boxes as COCO, all of one class."""
    boxed = [film for film in films if film["boxes"]]
    regions = [(at, [box[side] for side in "xywh"]) for at, film in enumerate(boxed, 1) for box in film["boxes"]]
    return {
        "categories": [{"id": 1, "name": "Lung Opacity"}],
        "images": [
            {"id": at, "file_name": f"{film['image']}.png", "width": film["width"], "height": film["height"]}
            for at, film in enumerate(boxed, 1)
        ],
        "annotations": [
            {"id": number, "image_id": image, "category_id": 1, "bbox": box}
            for number, (image, box) in enumerate(regions, 1)
        ],
    }


def main(data: Path, out: Path) -> None:
    """Write all files."""
    for name, text in (("films", FILMS), ("ils", ILS)):
        (out / name).mkdir(parents=True, exist_ok=True)
        (out / name / "mine.yaml").write_text(text, encoding="utf-8")
    films = list(read_films(data))
    manifest = [(film["patient"], film["image"], film["image"], film["path"], "", film["view"]) for film in films]
    _write_csv(out / "films/manifest.csv", "subject_id study_id image_id image_path findings view", manifest)
    labels = [(film["image"], "1.0" if film["healthy"] else "", "") for film in films]
    with open(out / "films/chexpert.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("study_id", "No Finding", "Support Devices"), *labels])
    (out / "films/people.json").write_text(json.dumps(coco_boxes(films)), encoding="utf-8")


def _write_csv(path: Path, names: str, lines: list[tuple]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([names.split(), *lines])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    main(arguments.data, arguments.out)
