"""Files of annotations in the layout of each format: for each region what its reader reads (``cxr.annotations``)."""

import csv
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import cv2
import numpy as np

from cxr.annotations import chest_imagenome, imagenome, mimic_ils, nih, padchest_gr, rsna, vindr
from cxr.annotations.regions import Annotations
from cxr.annotations.tabular import Box

HOLDS = {
    "coco": ("box", "mask_source", "phrase", "size", "split"), "ms_cxr": ("box", "phrase", "size", "split"),
    "nih": ("box",), "rsna": ("box",), "vindr": ("box", "reader"), "chest_imagenome": ("box",), "imagenome": ("box",),
    "padchest_gr": ("box", "phrase", "size", "split"), "mimic_ils": ("mask_source", "split"),
}  # fmt: skip
"""Fields of an Annotation in a file of each format, besides ``image`` and ``label``."""


def box_sides(box: Box | None) -> tuple[float | str, ...]:
    """Return the cells x, y, width, height of a box; empty cells for None."""
    return ("",) * 4 if box is None else (box[0], box[1], box[2] - box[0], box[3] - box[1])


def write_rows(path: Path, header: Sequence[str], cells: Iterable[Sequence[object]]) -> None:
    """Write a CSV file."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(cells)


def write_coco(path: Path, annotations: Annotations) -> None:
    """Write the JSON. Size and split of an image come from its first region. Masks in files are not supported."""
    first_by_image = {region.image: region for region in reversed(annotations.regions)}
    id_by_image = {image: number for number, image in enumerate(sorted({*annotations.image_names, *first_by_image}), 1)}
    labels = sorted({region.label for region in annotations.regions})
    id_by_label = {label: number for number, label in enumerate(labels, 1)}
    images, entries = [], []
    for image, number in id_by_image.items():
        first = first_by_image.get(image)
        size = {"height": first.size[0], "width": first.size[1]} if first and first.size else {}
        split = {"split": first.split} if first and first.split else {}
        images.append({"id": number, "file_name": image} | size | split)
    for number, region in enumerate(annotations.regions, 1):
        box = list(box_sides(region.box)) if region.box else None
        parts = {"bbox": box, "segmentation": region.mask_source, "label_text": region.phrase}
        ids = {"id": number, "image_id": id_by_image[region.image], "category_id": id_by_label[region.label]}
        entries.append(ids | {name: value for name, value in parts.items() if value})
    categories = [{"id": number, "name": label} for label, number in id_by_label.items()]
    text = json.dumps({"categories": categories, "images": images, "annotations": entries})
    path.write_text(text, encoding="utf-8")


def write_ms_cxr(path: Path, annotations: Annotations) -> None:
    """Write the CSV; an image without a region has no row."""
    header = ("dicom_id", "category_name", "label_text", "path", "x", "y", "w", "h")
    rows = []
    for region in annotations.regions:
        path_cell, size = f"files/{region.image}.jpg", region.size[::-1] if region.size else ("", "")
        rows.append((region.image, region.label, region.phrase, path_cell, *box_sides(region.box), *size, region.split))
    write_rows(path, (*header, "image_width", "image_height", "split"), rows)


def write_nih(path: Path, annotations: Annotations) -> None:
    """Write the table, with the official one's empty last columns. An image without a box has no row."""
    cells = ((region.image, region.label, *box_sides(region.box), "", "", "") for region in annotations.regions)
    write_rows(path, (*nih.COLUMNS, "", "", ""), cells)


def write_rsna(path: Path, annotations: Annotations) -> None:
    """Write the table; it can hold no label but that of the format."""
    cells = [(region.image, *box_sides(region.box), 1) for region in annotations.regions]
    images_without_finding = sorted(annotations.image_names - {region.image for region in annotations.regions})
    write_rows(path, rsna.COLUMNS, [*cells, *((image, *box_sides(None), 0) for image in images_without_finding)])


def write_vindr(path: Path, annotations: Annotations) -> None:
    """Write a training file, or a test file if no region names a reader."""
    regions, has_readers = annotations.regions, any(region.reader for region in annotations.regions)
    rows = [(region.image, region.reader, region.label, *(region.box or ("",) * 4)) for region in regions]
    images_without_finding = sorted(annotations.image_names - {region.image for region in regions})
    rows += [(image, "R1", "No finding", *("",) * 4) for image in images_without_finding]
    header = ("image_id", *vindr.BESIDES, "class_name", *vindr.CORNERS)
    write_rows(
        path, *((header, rows) if has_readers else (vindr.COLUMNS, ((image, *cells) for image, _, *cells in rows)))
    )


def write_chest_imagenome(path: Path, annotations: Annotations) -> None:
    """Write the table; an image without a region has no row."""
    rows = ((region.image, region.label, *(region.box or ("",) * 4)) for region in annotations.regions)
    write_rows(path, chest_imagenome.COLUMNS, rows)


def write_imagenome(path: Path, annotations: Annotations) -> None:
    """Write a graph for each image."""
    path.mkdir(parents=True, exist_ok=True)
    for image in sorted(annotations.image_names | {region.image for region in annotations.regions}):
        regions = (region for region in annotations.regions if region.image == image)
        boxes = ((region.label, zip(imagenome.CORNERS, region.box or (None,) * 4, strict=True)) for region in regions)
        objects = [{"bbox_name": label} | dict(box) for label, box in boxes]
        text = json.dumps({"image_id": image, "viewpoint": "PA", "objects": objects})
        (path / f"{image}{imagenome.ENDING}").write_text(text, encoding="utf-8")


def write_padchest_gr(path: Path, annotations: Annotations) -> None:
    """Write the folder; an image without a region gets no sentences."""
    path.mkdir(parents=True, exist_ok=True)
    first_by_image = {region.image: region for region in reversed(annotations.regions)}
    reports, rows, master = [], [], []
    for image in sorted(annotations.image_names | first_by_image.keys()):
        size = (first_by_image[image].size if image in first_by_image else None) or (1, 1)
        phrases: dict[tuple[str, str], list] = {}
        for region in annotations.regions:
            if region.image == image and region.box:
                box = [part / size[(place + 1) % 2] for place, part in enumerate(region.box)]
                phrases.setdefault((region.phrase, region.label), []).append(box)
        sentences = [
            {"sentence_en": text, "sentence_es": "", "boxes": boxes, "labels": [label]}
            for (text, label), boxes in phrases.items()
        ]
        reports.append({"StudyID": f"study-{image}", "ImageID": image, "findings": sentences})
        rows.append((image, f"study-{image}", f"patient-{image}", "PA", "", *size))
        if image in first_by_image and first_by_image[image].split:
            master.append((f"study-{image}", image, first_by_image[image].split))
    (path / "grounded_reports_20240819.json").write_text(json.dumps(reports), encoding="utf-8")
    header = ("ImageID", "StudyID", "PatientID", "Projection", "PatientSex_DICOM", "Rows_DICOM", "Columns_DICOM")
    write_rows(path / padchest_gr.TABLE, header, rows)
    write_rows(path / padchest_gr.MASTER, ("StudyID", "ImageID", "split"), master)


def write_mimic_ils(path: Path, annotations: Annotations) -> None:
    """Write the folder: one study per image, one pair per mask, and the masks as PNG of 0 and 255."""
    studies_by_split: dict[str, dict] = {}
    for index, region in enumerate(annotations.regions):
        empty = {"dicom_id": region.image, "instruction_answer_pairs": {"positive_pairs": [], "negative_pairs": []}}
        entry = studies_by_split.setdefault(region.split, {}).setdefault(f"s{region.image}", empty)
        name = f"s{region.image}/s{region.image}_{region.label}_{index}.png"
        entry["instruction_answer_pairs"]["positive_pairs"].append({"target": region.label, "seg_mask_path": name})
        (path / mimic_ils.MASKS / name).parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path / mimic_ils.MASKS / name), np.asarray(region.mask(), np.uint8) * 255)
    path.mkdir(parents=True, exist_ok=True)
    (path / mimic_ils.JSON).write_text(json.dumps(studies_by_split), encoding="utf-8")


def write_annotations(kind: str, path: Path, annotations: Annotations) -> None:
    """Write a file of a format."""
    writers: dict[str, Callable[[Path, Annotations], None]] = {
        "coco": write_coco, "ms_cxr": write_ms_cxr, "nih": write_nih, "rsna": write_rsna, "vindr": write_vindr,
        "chest_imagenome": write_chest_imagenome, "imagenome": write_imagenome, "padchest_gr": write_padchest_gr,
        "mimic_ils": write_mimic_ils,
    }  # fmt: skip
    writers[kind](path, annotations)
