"""The source own: facts of the cohort's own stages, read by one job per shard; another job joins the shards."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import polars as pl

from cxr.base.columns import schema
from cxr.base.conservation import ALL, CONSERVED, CountRow
from cxr.base.hdf5 import Shard
from cxr.base.tables import EXCLUDED, read_lines, read_table, write_excluded, write_lines, write_table
from cxr.geometry.affine import affine_to_upright, boxes_to_original
from cxr.geometry.boxes import bounding_box
from cxr.geometry.masks import component_boxes
from cxr.radvlm.labels import ABSENT, PRESENT, UNCERTAIN, label_report, load_label_names
from cxr.radvlm.sources.facts import (
    BOX,
    COUNT_COLUMNS,
    FACT_COLUMNS,
    IMAGE_COLUMNS,
    IMAGES,
    IMAGES_SCHEMA,
    KEPT,
    LABELS,
    PHRASE,
    REGION,
    TEXTS,
    SourceRecords,
    add_boxes,
    facts_table,
    image_label_facts,
)
from cxr.radvlm.sources.settings import OWN, FactSources

SEX_BY_WORD = {"f": "F", "female": "F", "w": "F", "m": "M", "male": "M"}
VALUE_BY_CELL = {"1": PRESENT, "1.0": PRESENT, "0": ABSENT, "0.0": ABSENT, "-1": UNCERTAIN, "-1.0": UNCERTAIN}


def region_boxes(organs: Mapping[str, np.ndarray], anatomy: Mapping[str, np.ndarray]) -> dict[str, tuple[float, ...]]:
    """Return {region: box} in frame pixels, from masks bool (H, W) by name; regions without a mask are missing.

    A region is the box of a mask or a part of a lung's box: ``across`` is a range of its width, counted from the
    patient's outer side (left in the image for the right lung); ``down`` a range of its height from the top.
    """
    box_by_region = {}
    for region, region_rule in load_label_names().regions.items():
        masks, mask = (organs, region_rule["organs"]) if "organs" in region_rule else (anatomy, region_rule["anatomy"])
        if mask not in masks or not masks[mask].any():
            continue
        x1, y1, x2, y2 = map(float, bounding_box(masks[mask]))
        (near, far), (high, low) = region_rule.get("across", (0.0, 1.0)), region_rule.get("down", (0.0, 1.0))
        if region.startswith("left "):
            near, far = 1.0 - far, 1.0 - near
        width, height = x2 - x1, y2 - y1
        box_by_region[region] = (x1 + near * width, y1 + high * height, x1 + far * width, y1 + low * height)
    return box_by_region


def read_own(
    options: FactSources,
    smallest: int,
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
) -> SourceRecords:
    """Read one shard of the cohort.

    ``smallest``: least mask part, in frame pixels, that gets a box; ``labels``: label files of a model. Raises
    StoreError for a damaged file.
    """
    records = SourceRecords()
    cohort_rows = {row["image_id"]: row for row in read_table(cohort).iter_rows(named=True)}
    image_table = read_table(images).filter(pl.col("image_id").is_in(list(cohort_rows)))
    table_rows = {row["image_id"]: row for row in image_table.iter_rows(named=True)}
    lines = {line["study_id"]: line for line in read_lines(reports)}
    labels_by_study = {line["study_id"]: line["labels"] for path in labels for line in read_lines(path)}
    is_masked = (pl.col("mask_id").fill_null("") != "") & (pl.col("word").fill_null("") != "")
    masked_findings = read_table(findings).filter(is_masked)
    findings_by_image: dict[str, list[dict]] = {}
    for row in masked_findings.iter_rows(named=True):
        findings_by_image.setdefault(row["image_id"], []).append(row)
    uncertain = options.weak_hedges if options.labels == "rules" else options.uncertain
    studies: dict[str, list[str]] = {}
    with Shard(frames) as frame, Shard(organs) as organ, Shard(anatomy) as zone, Shard(masks, key="mask_id") as lesions:
        for image_id in sorted(frame.ids):
            row, table_row = cohort_rows[image_id], table_rows[image_id]
            stored = tuple(map(int, frame.get("original_shape", image_id)))
            affine, shape = affine_to_upright(frame.get("to_original", image_id), stored)
            studies.setdefault(row["study_id"], []).append(image_id)
            records.images.append(_image_row(row, table_row, shape))
            line = lines.get(row["study_id"])
            stated = labels_by_study.get(row["study_id"], {}) if labels else _stated_labels(options, table_row, line)
            records.num_rows[LABELS] += 1
            if stated:
                records.facts += image_label_facts(image_id, stated, uncertain)
                records.num_kept[LABELS] += 1
            else:
                records.exclude("no_labels", image_id, row["study_id"], record_kind=LABELS)
            add = _BoxAdder(records, image_id, affine, shape, smallest)
            organ_masks, zone_masks = (shard.masks(image_id) if image_id in shard else {} for shard in (organ, zone))
            for region, box in region_boxes(organ_masks, zone_masks).items():
                records.num_rows[REGION] += 1
                records.num_kept[REGION] += add(REGION, region, np.array([box]))
            _add_findings(add, findings_by_image.get(image_id, []), line, lesions)
    for study_id, image_ids in studies.items():
        line = lines.get(study_id)
        if line is None or not line["section_text"].strip():
            records.exclude("no_report", image_ids[0], study_id, record_kind=TEXTS)
        else:
            records.texts.append(_text_line(cohort_rows[image_ids[0]], image_ids, line))
    records.counts["images"] = len(records.images)
    records.num_rows.update({IMAGES: len(cohort_rows), TEXTS: len(studies)} | _count_findings(masked_findings))
    records.num_kept.update({IMAGES: len(records.images), TEXTS: len(records.texts)})
    records.num_excluded[IMAGES, "no_image"] = len(cohort_rows.keys() - {image["image_id"] for image in records.images})
    return records


class _BoxAdder:
    """Adds boxes of an image, in frame pixels, to the facts."""

    def __init__(
        self, records: SourceRecords, image_id: str, affine: np.ndarray, shape: tuple[int, int], smallest: int
    ):
        self.records, self.image_id, self.affine, self.shape, self.smallest = records, image_id, affine, shape, smallest

    def __call__(self, kind: str, name: str, boxes: np.ndarray, **more: object) -> int:
        placed = boxes_to_original(np.asarray(boxes, np.float64), self.affine)
        return add_boxes(self.records, self.image_id, kind, name, placed, self.shape, **more)

    def masks(self, kind: str, name: str, masks: list[np.ndarray]) -> None:
        """Add boxes around the parts of the masks of one finding or phrase; exclude it if they are empty."""
        boxes = component_boxes(np.logical_or.reduce(masks), self.smallest)
        if not len(boxes):
            self.records.exclude("no_boxes", self.image_id, detail=f"{kind}: the mask is empty")
        elif self(kind, name, boxes, record_kind=""):
            self.records.num_kept[kind] += 1
            return
        self.records.num_excluded[kind, "no_area" if len(boxes) else "no_boxes"] += 1


def _image_row(row: Mapping, table_row: Mapping, shape: tuple[int, int]) -> dict:
    sex = SEX_BY_WORD.get(str(table_row.get("sex") or "").strip().lower())
    fields = {name: row[name] for name in ("image_id", "study_id", "subject_id", "split", "view", "path")}
    return fields | {"sex": sex, "rows": shape[0], "columns": shape[1], "frames": "own"}


def _stated_labels(options: FactSources, table_row: Mapping, line: Mapping | None) -> dict[str, str]:
    if options.labels == "table":
        cells = {name: str(table_row.get(name) or "").strip() for name in load_label_names().names if name in table_row}
        return {name: VALUE_BY_CELL[cell] for name, cell in cells.items() if cell in VALUE_BY_CELL}
    return label_report([*line["tuples"], *line["other_tuples"]], line["sentences"]) if line is not None else {}


def _add_findings(add: _BoxAdder, finding_rows: list[dict], line: Mapping | None, lesions: Shard) -> None:
    """Add boxes of an image's grounded findings, by name and by sentence."""
    by_name: dict[str, list[np.ndarray]] = {}
    by_sentence: dict[int, list[np.ndarray]] = {}
    for row in finding_rows:
        mask = lesions.get("mask", row["mask_id"])
        by_name.setdefault(load_label_names().lesions[row["word"]][0], []).append(mask)
        by_sentence.setdefault(row["sentence_index"], []).append(mask)
    for name, masks in sorted(by_name.items()):
        add.masks(BOX, name, masks)
    for index, masks in sorted(by_sentence.items()):
        if line is not None and 0 < index <= len(line["sentences"]):
            add.masks(PHRASE, line["sentences"][index - 1], masks)
        else:
            detail = "no sentence of the finding's number"
            add.records.exclude("bad_row", add.image_id, detail=detail, record_kind=PHRASE)


def _count_findings(masked_findings: pl.DataFrame) -> dict[str, int]:
    """Return the numbers of (image, finding) and (image, sentence) pairs with masks."""
    if masked_findings.is_empty():
        return {BOX: 0, PHRASE: 0}
    name = pl.col("word").replace_strict({word: lesion[0] for word, lesion in load_label_names().lesions.items()})
    pairs = {BOX: pl.struct("image_id", name), PHRASE: pl.struct("image_id", "sentence_index")}
    return masked_findings.select(**{kind: pair.n_unique() for kind, pair in pairs.items()}).row(0, named=True)


def _text_line(row: Mapping, images: list[str], line: Mapping) -> dict:
    return {
        "source": "own", "study_id": row["study_id"], "subject_id": row["subject_id"], "split": row["split"],
        "image_ids": images, "section": line["section_name"], "text": line["section_text"],
    }  # fmt: skip


def counts_table(counts: Counter) -> pl.DataFrame:
    """Return the table of counts, sorted by name."""
    return pl.DataFrame(sorted(counts.items()), schema=schema(COUNT_COLUMNS), orient="row")


def write_source(
    records: SourceRecords,
    source: str,
    *,
    images: str,
    facts: str,
    texts: str,
    excluded: str,
    counts: str,
    conservation: str,
) -> None:
    """Write the records of a source. Raises AssertionError if a row is unaccounted for or counted twice."""
    table = facts_table(source, records.facts, records.tables)
    all_counts = Counter(records.counts)
    all_counts.update(f"facts: {kind}" for kind in table["kind"])
    all_counts.update(f"left out: {row['reason']}" for row in records.excluded)
    all_counts["texts"] = len(records.texts)
    image_rows = [{"source": source} | row for row in records.images]
    write_table(images, pl.DataFrame(image_rows, schema=IMAGES_SCHEMA).sort("image_id"), IMAGE_COLUMNS)
    write_table(facts, table, FACT_COLUMNS)
    write_lines(texts, sorted(records.texts, key=lambda line: line["study_id"]), checked=True)
    write_excluded(excluded, records.excluded)
    write_table(counts, counts_table(all_counts), COUNT_COLUMNS)
    write_table(conservation, conservation_table(records.conservation_rows(source)), CONSERVED)


def conservation_table(rows: Iterable[CountRow]) -> pl.DataFrame:
    """Return a :data:`CONSERVED` table with equal (kind, outcome) rows added up; all and kept come first."""
    total: Counter = Counter()
    for record_kind, outcome, number in rows:
        total[record_kind, outcome] += number
    sorted_totals = sorted(total.items(), key=lambda row: (row[0][0], row[0][1] != ALL, row[0][1] != KEPT, row[0][1]))
    return pl.DataFrame([(*key, number) for key, number in sorted_totals], schema=schema(CONSERVED), orient="row")


def run_shard(
    *,
    options: FactSources,
    smallest: int,
    images_out: str,
    facts: str,
    texts: str,
    excluded: str,
    counts: str,
    conservation: str,
    **inputs,
) -> None:
    """Write images, facts, texts, exclusions, counts and conservation of one shard; ``inputs``: of :func:`read_own`."""
    write_source(
        read_own(options, smallest, **inputs), OWN, images=images_out, facts=facts, texts=texts, excluded=excluded,
        counts=counts, conservation=conservation,
    )  # fmt: skip


def run_tables(
    *,
    images: Sequence[str],
    facts: Sequence[str],
    texts: Sequence[str],
    excluded: Sequence[str],
    counts: Sequence[str],
    conservation: Sequence[str],
    images_out: str,
    facts_out: str,
    texts_out: str,
    excluded_out: str,
    counts_out: str,
    conservation_out: str,
) -> None:
    """Join the files of all shards, sorted by image or study."""
    write_table(images_out, pl.concat(map(read_table, images)).sort("image_id"), IMAGE_COLUMNS)
    write_table(facts_out, pl.concat(map(read_table, facts)).sort("image_id", "kind", "name", "fact_id"), FACT_COLUMNS)
    lines = sorted((line for path in texts for line in read_lines(path)), key=lambda line: line["study_id"])
    write_lines(texts_out, lines, checked=True)
    excluded_table = pl.concat(map(read_table, excluded))
    write_table(excluded_out, excluded_table.sort(excluded_table.columns), EXCLUDED)
    total: Counter = Counter()
    for path in counts:
        total.update(dict(read_table(path).iter_rows()))
    write_table(counts_out, counts_table(total), COUNT_COLUMNS)
    conservation_rows = [row for path in conservation for row in read_table(path).iter_rows()]
    write_table(conservation_out, conservation_table(conservation_rows), CONSERVED)
