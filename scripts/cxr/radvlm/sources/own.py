"""The source own: facts from the cohort's own stages: labels, regions, boxes, phrases and texts."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack

import numpy as np
import polars as pl

from cxr.base.hdf5 import Shard
from cxr.base.tables import read_lines, read_table
from cxr.geometry.affine import affine_to_upright, boxes_to_original
from cxr.geometry.boxes import bounding_box
from cxr.geometry.masks import component_boxes
from cxr.radvlm.labels import ABSENT, PRESENT, UNCERTAIN, names, report_labels
from cxr.radvlm.sources.facts import BOX, IMAGES, LABELS, PHRASE, REGION, TEXTS, Held, add_boxes, labelled

SEX = {"f": "F", "female": "F", "w": "F", "m": "M", "male": "M"}
STATED = {"1": PRESENT, "1.0": PRESENT, "0": ABSENT, "0.0": ABSENT, "-1": UNCERTAIN, "-1.0": UNCERTAIN}


def region_boxes(organs: Mapping[str, np.ndarray], anatomy: Mapping[str, np.ndarray]) -> dict[str, tuple[float, ...]]:
    """Return {region: box} in frame pixels, of the masks bool (H, W) by name. What has no mask has no box.

    A region is the box of a mask, or a part of the box of a lung: ``across`` in fractions of its width from the
    patient's outer side (the image's left for the right lung), ``down`` of its height from above.
    """
    box_by_region = {}
    for region, region_rule in names().regions.items():
        masks, mask = (
            (organs, region_rule.get("organs")) if "organs" in region_rule else (anatomy, region_rule["anatomy"])
        )
        if mask not in masks or not masks[mask].any():
            continue
        x1, y1, x2, y2 = map(float, bounding_box(masks[mask]))
        (near, far), (high, low) = region_rule.get("across", (0.0, 1.0)), region_rule.get("down", (0.0, 1.0))
        if region.startswith("left "):
            near, far = 1.0 - far, 1.0 - near
        width, height = x2 - x1, y2 - y1
        box_by_region[region] = (x1 + near * width, y1 + high * height, x1 + far * width, y1 + low * height)
    return box_by_region


def mask_boxes(masks: Iterable[np.ndarray], smallest: int) -> np.ndarray:
    """Return the boxes (N, 4), in frame pixels, of the parts of the union of masks bool (H, W), the largest first."""
    return component_boxes(np.logical_or.reduce(list(masks)), smallest)


def read_own(
    options,
    *,
    images: str,
    cohort: str,
    frames: str,
    reports: str,
    organs: str,
    anatomy: str,
    findings: str,
    masks: str,
    labels: Sequence[str] = (),
) -> Held:
    """Return the facts of one shard of the cohort. ``options``: of the stage; ``labels``: files of a model's labels.

    Raises StoreError for a damaged file.
    """
    records = Held()
    cohort_row_by_image = {row["image_id"]: row for row in read_table(cohort).iter_rows(named=True)}
    table_row_by_image = {
        row["image_id"]: row
        for row in read_table(images).iter_rows(named=True)
        if row["image_id"] in cohort_row_by_image
    }
    lines = {line["study_id"]: line for line in read_lines(reports)}
    labels_by_study = {line["study_id"]: line["labels"] for path in labels for line in read_lines(path)}
    grounded: dict[str, list[dict]] = {}
    masked_findings = read_table(findings).filter(
        pl.col("mask_id").fill_null("") != "", pl.col("word").fill_null("") != ""
    )
    for row in masked_findings.iter_rows(named=True):
        grounded.setdefault(row["image_id"], []).append(row)
    with ExitStack() as stack:
        frame, organ, zone = (stack.enter_context(Shard(path)) for path in (frames, organs, anatomy))
        lesions = stack.enter_context(Shard(masks, key="mask_id"))
        studies: dict[str, list[str]] = {}
        for image_id in sorted(frame.ids):
            row = cohort_row_by_image[image_id]
            stored = tuple(map(int, frame.get("original_shape", image_id)))
            affine, shape = affine_to_upright(frame.get("to_original", image_id), stored)
            studies.setdefault(row["study_id"], []).append(image_id)
            records.images.append(_image(row, table_row_by_image[image_id], shape))
            line = lines.get(row["study_id"])
            stated = (
                labels_by_study.get(row["study_id"], {})
                if labels
                else _labels(options, table_row_by_image[image_id], line)
            )
            records.rows[LABELS] += 1
            if stated:
                records.facts += labelled(image_id, stated, _uncertain(options))
                records.kept[LABELS] += 1
            else:
                records.leave_out("no_labels", image_id, row["study_id"], record_kind=LABELS)
            place = _Placer(records, image_id, affine, shape, options.min_box)
            if options.regions == "zones":
                mask_sets = (
                    (organ.masks(image_id) if image_id in organ else {}),
                    (zone.masks(image_id) if image_id in zone else {}),
                )
                for region, box in region_boxes(*mask_sets).items():
                    records.rows[REGION] += 1
                    records.kept[REGION] += place(REGION, region, np.array([box]))
            _lesions(place, grounded.get(image_id, []), line, lesions, options.smallest)
        for study_id, image_ids in studies.items():
            line = lines.get(study_id)
            if line is None or not line["section_text"].strip():
                records.leave_out("no_report", image_ids[0], study_id, record_kind=TEXTS)
                continue
            records.texts.append(_text(cohort_row_by_image[image_ids[0]], image_ids, line))
    records.counts["images"] = len(records.images)
    records.rows.update({IMAGES: len(cohort_row_by_image), TEXTS: len(studies)} | _findings(masked_findings))
    records.kept.update({IMAGES: len(records.images), TEXTS: len(records.texts)})
    records.gone[IMAGES, "no_image"] = len(cohort_row_by_image.keys() - {image["image_id"] for image in records.images})
    return records


class _Placer:
    """Adds the boxes of an image, given in frame pixels, to the facts."""

    def __init__(self, records: Held, image_id: str, affine: np.ndarray, shape: tuple[int, int], least: float):
        self.held, self.image_id, self.affine, self.shape, self.least = records, image_id, affine, shape, least

    def __call__(self, kind: str, name: str, boxes: np.ndarray, **more: object) -> int:
        placed = boxes_to_original(np.asarray(boxes, np.float64), self.affine)
        return add_boxes(self.held, self.image_id, kind, name, placed, self.shape, self.least, **more)

    def masks(self, kind: str, name: str, masks: list[np.ndarray], smallest: int) -> None:
        """Add the boxes of the parts of masks, which are one finding or phrase; it is left out if they are empty."""
        boxes = mask_boxes(masks, smallest)
        if not len(boxes):
            self.held.leave_out("no_boxes", self.image_id, detail=f"{kind}: the mask is empty")
        elif self(kind, name, boxes, record_kind=""):
            self.held.kept[kind] += 1
            return
        self.held.gone[kind, "no_area" if len(boxes) else "no_boxes"] += 1


def _image(row: Mapping, table_row: Mapping, shape: tuple[int, int]) -> dict:
    sex = SEX.get(str(table_row.get("sex") or "").strip().lower())
    fields = {name: row[name] for name in ("image_id", "study_id", "subject_id", "split", "view", "path")}
    return fields | {"sex": sex, "rows": shape[0], "columns": shape[1], "frames": "own"}


def _uncertain(options) -> str:
    return options.weak_hedges if options.labels == "rules" else options.uncertain


def _labels(options, table_row: Mapping, line: Mapping | None) -> dict[str, str]:
    if options.labels == "table":
        cells = {name: str(table_row.get(name) or "").strip() for name in names().names if name in table_row}
        return {name: STATED[cell] for name, cell in cells.items() if cell in STATED}
    if line is None:
        return {}
    return report_labels([*line["tuples"], *line["other_tuples"]], line["sentences"])


def _lesions(place: _Placer, finding_rows: list[dict], line: Mapping | None, lesions: Shard, smallest: int) -> None:
    """Add the boxes of an image's grounded findings: of each name, and of each sentence."""
    by_name: dict[str, list[np.ndarray]] = {}
    by_sentence: dict[int, list[np.ndarray]] = {}
    for row in finding_rows:
        mask = lesions.get("mask", row["mask_id"])
        by_name.setdefault(names().lesions[row["word"]][0], []).append(mask)
        by_sentence.setdefault(row["sentence_index"], []).append(mask)
    for name, masks in sorted(by_name.items()):
        place.masks(BOX, name, masks, smallest)
    for index, masks in sorted(by_sentence.items()):
        if line is not None and 0 < index <= len(line["sentences"]):
            place.masks(PHRASE, line["sentences"][index - 1], masks, smallest)
        else:
            place.held.leave_out(
                "bad_row", place.image_id, detail="no sentence of the finding's number", record_kind=PHRASE
            )


def _findings(masked_findings: pl.DataFrame) -> dict[str, int]:
    """Return how many findings of images and how many of their sentences a table of findings with masks has."""
    name = pl.col("word").replace_strict({word: lesion[0] for word, lesion in names().lesions.items()})
    return {
        BOX: masked_findings.select(pl.struct("image_id", name).n_unique()).item() if len(masked_findings) else 0,
        PHRASE: masked_findings.select(pl.struct("image_id", "sentence_index").n_unique()).item()
        if len(masked_findings)
        else 0,
    }


def _text(row: Mapping, images: list[str], line: Mapping) -> dict:
    return {
        "source": "own", "study_id": row["study_id"], "subject_id": row["subject_id"], "split": row["split"],
        "image_ids": images, "section": line["section_name"], "text": line["section_text"],
    }  # fmt: skip
