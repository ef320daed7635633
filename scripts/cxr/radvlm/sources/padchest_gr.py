"""Reader of the format ``padchest_gr``. Its English sentences become texts. Sentences with boxes become phrases too."""

from pathlib import Path

import numpy as np

from cxr.annotations import padchest_gr as layout
from cxr.imaging.cohort.split import split_name
from cxr.radvlm.sources.facts import IMAGES, PHRASE, ReadOptions, SourceRecords, find_ending

EXTRA_READER = "extra"  # annotator of extra boxes of a sentence; no task uses facts with an annotator


def read_padchest_gr(options: ReadOptions) -> SourceRecords:
    """Return the frontal images with their sentences and phrases. Raises UserError for a missing file or column."""
    key = options.key
    names = (layout.TABLE, layout.MASTER, layout.REPORTS)
    table, master, reports = (layout.find_one_file(key, options.folder, name) for name in names)
    images = {row["image_id"]: row for row in layout.read_images(key, table).iter_rows(named=True)}
    splits = dict(layout.read_master(key, master).iter_rows())
    records, seen_ids = SourceRecords(), set()
    for report in layout.read_reports(key, reports):
        records.counts["table rows"] += 1
        records.num_rows[IMAGES] += 1
        row, split = images.get(report.image_id), split_name(splits.get(report.image_id, "")) or ""
        reason = "no_image" if row is None else "not_frontal" if row["view"] is None else ""
        reason = reason or ("no_split" if not split else "duplicate_image" if report.image_id in seen_ids else "")
        if reason:
            records.exclude(reason, report.image_id, report.study_id, record_kind=IMAGES)
            continue
        seen_ids.add(report.image_id)
        fields = {name: row[name] for name in ("image_id", "study_id", "subject_id", "view", "sex", "rows", "columns")}
        fields |= {"split": split, "path": str(options.pictures / report.image_id), "frames": options.name}
        records.images.append(fields)
        text = " ".join(sentence.text for sentence in report.sentences if sentence.text)
        records.add_text(options, fields, [row["image_id"]], "findings", text)
        size = row["rows"], row["columns"]
        boxes = sum(len(sentence.boxes) + len(sentence.extra) for sentence in report.sentences)
        records.num_rows[PHRASE] += boxes
        if None in size:
            detail = "the table has no image size"
            records.exclude("no_area", report.image_id, report.study_id, detail, record_kind=PHRASE, number=boxes)
            continue
        if not any(sentence.boxes for sentence in report.sentences):
            records.exclude("no_boxes", report.image_id, report.study_id)
        for sentence in report.sentences:
            for boxes, reader in ((sentence.boxes, {}), (sentence.extra, {"reader": EXTRA_READER})):
                if boxes and sentence.text:
                    records.add_boxes(report.image_id, PHRASE, sentence.text, _to_pixels(boxes, size), size, **reader)
                else:
                    ids, detail = (report.image_id, report.study_id), "the boxes belong to a sentence without words"
                    records.exclude("bad_row", *ids, detail, record_kind=PHRASE, rows=len(boxes))
    if ending := find_ending(options, [row["image_id"] for row in records.images]):
        for row in records.images:
            row["path"] = str(Path(row["path"]).with_suffix(ending))
    return records


def _to_pixels(boxes: list, size: tuple[int, int]) -> np.ndarray:
    """Return boxes, given as fractions of the image, in pixels (N, 4). Malformed boxes become NaN."""
    unit_boxes = np.full((len(boxes), 4), np.nan)
    for place, box in enumerate(boxes):
        if isinstance(box, list) and len(box) == 4 and all(isinstance(part, int | float) for part in box):
            unit_boxes[place] = box
    return unit_boxes * np.array([size[1], size[0], size[1], size[0]], np.float64)
