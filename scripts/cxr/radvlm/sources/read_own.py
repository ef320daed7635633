"""Reader of the source ``own``, the cohort. A job reads the cohort's results per shard, and another joins the files."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from cxr.base.conservation import CONSERVED
from cxr.base.hdf5 import Shard
from cxr.base.tables import EXCLUDED, read_lines, read_table, write_lines, write_table
from cxr.geometry.affine import affine_to_upright, boxes_to_original
from cxr.geometry.boxes import bounding_box
from cxr.geometry.masks import component_boxes
from cxr.radvlm.labels import ABSENT, PRESENT, UNCERTAIN, label_report, load_label_names
from cxr.radvlm.settings import COHORT, FactSources
from cxr.radvlm.sources import facts as source_facts
from cxr.radvlm.sources.facts import BOX, IMAGES, LABELS, PHRASE, REGION, TEXTS, SourceRecords

SEX_BY_WORD = {"f": "F", "female": "F", "w": "F", "m": "M", "male": "M"}
VALUE_BY_CELL = {"1": PRESENT, "1.0": PRESENT, "0": ABSENT, "0.0": ABSENT, "-1": UNCERTAIN, "-1.0": UNCERTAIN}


def region_boxes(organs: Mapping[str, np.ndarray], anatomy: Mapping[str, np.ndarray]) -> dict[str, tuple[float, ...]]:
    """Return {region: box in frame pixels}. Regions without a mask are omitted.

    ``organs``, ``anatomy``: {name: mask, bool (H, W)}. A region is the bounding box of a mask, or the part of this box
    that labels.yaml gives: ``across`` from the outer side of the body, ``down`` from the top, both as fractions.
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


def read_own(options: FactSources, smallest: int, *, labels: Sequence[str] = (), **files) -> SourceRecords:
    """Return the records of one shard of the cohort. Raises StoreError for a damaged file.

    ``files``: paths of manifest, cohort, frames, reports, organs, anatomy, findings and masks; ``labels``: files of
    CheXbert labels, if used; ``smallest``: minimum area of a mask component that gets a box, in frame pixels.
    """
    records = SourceRecords()
    cohort_rows = {row["image_id"]: row for row in read_table(files["cohort"]).iter_rows(named=True)}
    image_table = read_table(files["manifest"]).filter(pl.col("image_id").is_in(list(cohort_rows)))
    table_rows = {row["image_id"]: row for row in image_table.iter_rows(named=True)}
    lines = {line["study_id"]: line for line in read_lines(files["reports"])}
    labels_by_study = {line["study_id"]: line["labels"] for path in labels for line in read_lines(path)}
    masked_findings = read_table(files["findings"]).filter(pl.col("mask_id") != "", pl.col("word") != "")
    findings_by_image = masked_findings.rows_by_key("image_id", named=True, include_key=True)
    uncertain = options.weak_hedges if options.labels == "rules" else options.uncertain
    studies: dict[str, list[str]] = {}
    with (
        Shard(files["frames"]) as frame,
        Shard(files["organs"]) as organ,
        Shard(files["anatomy"]) as zone,
        Shard(files["masks"], key="mask_id") as lesions,
    ):
        for image_id in sorted(frame.ids):
            row, table_row = cohort_rows[image_id], table_rows[image_id]
            stored = tuple(map(int, frame.get("original_shape", image_id)))
            affine, shape = affine_to_upright(frame.get("to_original", image_id), stored)
            studies.setdefault(row["study_id"], []).append(image_id)
            sex = SEX_BY_WORD.get(str(table_row.get("sex") or "").strip().lower())
            fields = {name: row[name] for name in ("image_id", "study_id", "subject_id", "split", "view", "path")}
            records.images.append(fields | {"sex": sex, "rows": shape[0], "columns": shape[1], "frames": COHORT})
            line = lines.get(row["study_id"])
            stated = labels_by_study.get(row["study_id"], {}) if labels else _stated_labels(options, table_row, line)
            records.num_rows[LABELS] += 1
            if stated:
                records.facts += source_facts.image_label_facts(image_id, stated, uncertain)
                records.num_kept[LABELS] += 1
            else:
                records.exclude("no_labels", image_id, row["study_id"], record_kind=LABELS)
            organ_masks, zone_masks = (shard.masks(image_id) if image_id in shard else {} for shard in (organ, zone))
            for region, box in region_boxes(organ_masks, zone_masks).items():
                records.num_rows[REGION] += 1
                records.add_boxes(image_id, REGION, region, boxes_to_original(np.array([box]), affine), shape)
            sentences = line["sentences"] if line is not None else ()
            for kind, name, finding_masks in _group_masks(findings_by_image.get(image_id, []), sentences, lesions):
                boxes = component_boxes(np.logical_or.reduce(finding_masks), smallest)
                _add_finding(records, image_id, kind, name, boxes_to_original(boxes, affine), shape)
    for study_id, image_ids in studies.items():
        line = lines.get(study_id)
        if line is None or not line["section_text"].strip():
            records.exclude("no_report", image_ids[0], study_id, record_kind=TEXTS)
        else:
            section = line["section_name"], line["section_text"]
            records.texts.append(source_facts.text_line(COHORT, cohort_rows[image_ids[0]], image_ids, *section))
    records.counts["images"] = len(records.images)
    records.num_rows.update({IMAGES: len(cohort_rows), TEXTS: len(studies)} | _count_findings(masked_findings))
    records.num_excluded[IMAGES, "no_image"] = len(cohort_rows.keys() - {image["image_id"] for image in records.images})
    return records


def _stated_labels(options: FactSources, table_row: Mapping, line: Mapping | None) -> dict[str, str]:
    if options.labels == "table":
        cells = {name: str(table_row.get(name) or "").strip() for name in load_label_names().names if name in table_row}
        return {name: VALUE_BY_CELL[cell] for name, cell in cells.items() if cell in VALUE_BY_CELL}
    return label_report([*line["tuples"], *line["other_tuples"]], line["sentences"]) if line is not None else {}


def _group_masks(
    finding_rows: Sequence[Mapping], sentences: Sequence[str], lesions: Shard
) -> Iterator[tuple[str, str, list[np.ndarray]]]:
    """Yield (BOX, label, masks) per label, then (PHRASE, sentence, masks) per sentence ("" if not known)."""
    masks_by_group: dict[tuple, list[np.ndarray]] = {}
    for row in finding_rows:
        mask = lesions.get("mask", row["mask_id"])
        for group in ((BOX, load_label_names().lesions[row["word"]][0]), (PHRASE, row["sentence_index"])):
            masks_by_group.setdefault(group, []).append(mask)
    for (kind, key), masks in sorted(masks_by_group.items()):
        yield kind, key if kind == BOX else sentences[key - 1] if 0 < key <= len(sentences) else "", masks


def _add_finding(
    records: SourceRecords, image_id: str, kind: str, name: str, boxes: np.ndarray, shape: tuple[int, int]
) -> None:
    """Add the boxes of a finding or phrase as one record. Exclude the record if it has no name or no box."""
    if not name:
        records.exclude(
            "bad_row", image_id, detail="the report has no sentence with the finding's number", record_kind=kind
        )
    elif not len(boxes):
        records.exclude("no_boxes", image_id, detail=f"{kind}: the mask is empty", record_kind=kind)
    elif len(records.add_boxes(image_id, kind, name, boxes, shape, record_kind="")):
        records.num_kept[kind] += 1
    else:
        records.num_excluded[kind, "no_area"] += 1


def _count_findings(masked_findings: pl.DataFrame) -> dict[str, int]:
    rows = masked_findings.select("image_id", "word", "sentence_index").rows()
    names = {(image_id, load_label_names().lesions[word][0]) for image_id, word, _ in rows}
    return {BOX: len(names), PHRASE: len({(image_id, index) for image_id, _, index in rows})}


def run_shard(*, options: FactSources, smallest: int, **files) -> None:
    """Read a shard of the cohort and write the files of a source. ``files``: {name: path} of inputs and outputs."""
    outputs = {name: files.pop(name) for name in source_facts.OUTPUTS}
    source_facts.write_source(read_own(options, smallest, **files), COHORT, outputs)


def run_tables(**files) -> None:
    """Join and sort the shards' files. ``files``: {``x``: files of the shards, ``x_out``: joined file} per output."""
    images, facts, excluded, counts, conserved = (
        pl.concat(map(read_table, files[name])) for name in ("images", "facts", "excluded", "counts", "conservation")
    )
    write_table(files["images_out"], images.sort("image_id"), source_facts.IMAGE_COLUMNS)
    write_table(files["facts_out"], facts.sort("image_id", "kind", "name", "fact_id"), source_facts.FACT_COLUMNS)
    lines = sorted((line for path in files["texts"] for line in read_lines(path)), key=lambda line: line["study_id"])
    write_lines(files["texts_out"], lines, checked=True)
    write_table(files["excluded_out"], excluded.sort(excluded.columns), EXCLUDED)
    total_counts = counts.group_by("what").agg(pl.sum("number")).sort("what")
    write_table(files["counts_out"], total_counts, source_facts.COUNT_COLUMNS)
    write_table(files["conservation_out"], source_facts.conservation_table(conserved.iter_rows()), CONSERVED)
