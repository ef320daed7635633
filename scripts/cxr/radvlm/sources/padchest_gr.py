"""The source padchest_gr: English sentences, and sentences with boxes as phrases. Spanish text is not used."""

import numpy as np

from cxr.annotations.padchest_gr import (
    MASTER,
    REPORTS,
    TABLE,
    Report,
    Sentence,
    find_one_file,
    read_images,
    read_master,
    read_reports,
)
from cxr.imaging.cohort.split import split_name
from cxr.radvlm.sources.facts import (
    IMAGES,
    PHRASE,
    TEXTS,
    ReadOptions,
    SourceRecords,
    add_boxes,
    replace_control_characters,
)

EXTRA_READER = "extra"
"""Reader of a sentence's extra boxes, which become facts that no task uses."""


def read_padchest_gr(options: ReadOptions) -> SourceRecords:
    """Read the frontal images with sentences and phrases. Raises UserError for a missing file or column."""
    key, folder = options.key, options.folder
    images = {row["image_id"]: row for row in read_images(key, find_one_file(key, folder, TABLE)).iter_rows(named=True)}
    splits = dict(read_master(key, find_one_file(key, folder, MASTER)).iter_rows())
    records, seen_ids = SourceRecords(), set()
    for report in read_reports(key, find_one_file(key, folder, REPORTS)):
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
        path = str(options.pictures / report.image_id)
        records.images.append(fields | {"split": split, "path": path, "frames": options.name})
        _add_text(records, options, row, split, [sentence.text for sentence in report.sentences if sentence.text])
        size = row["rows"], row["columns"]
        boxes = sum(len(sentence.boxes) + len(sentence.extra) for sentence in report.sentences)
        records.num_rows[PHRASE] += boxes
        if None in size:
            detail = "the table has no size of the picture"
            records.exclude("no_area", report.image_id, report.study_id, detail, record_kind=PHRASE, number=boxes)
            continue
        if not any(sentence.boxes for sentence in report.sentences):
            records.exclude("no_boxes", report.image_id, report.study_id)
        for sentence in report.sentences:
            _add_phrase(records, options, report, sentence, size)
    records.num_kept.update({IMAGES: len(records.images), TEXTS: len(records.texts), PHRASE: len(records.facts)})
    return records


def _add_phrase(
    records: SourceRecords, options: ReadOptions, report: Report, sentence: Sentence, size: tuple[int, int]
) -> None:
    """Add a sentence's boxes and extra boxes as a phrase; exclude boxes of a sentence without words."""
    for boxes, more in ((sentence.boxes, {}), (sentence.extra, {"reader": EXTRA_READER})):
        if boxes and sentence.text:
            pixels = _to_pixels(boxes, size)
            add_boxes(records, report.image_id, PHRASE, sentence.text, pixels, size, **more)
        else:
            detail = "boxes of a sentence without words"
            records.exclude("bad_row", report.image_id, report.study_id, detail, record_kind=PHRASE, rows=len(boxes))


def _to_pixels(boxes: list, size: tuple[int, int]) -> np.ndarray:
    """Return boxes of the unit square in pixels (N, 4); malformed boxes are NaN."""
    unit_boxes = np.full((len(boxes), 4), np.nan)
    for place, box in enumerate(boxes):
        if isinstance(box, list) and len(box) == 4 and all(isinstance(part, int | float) for part in box):
            unit_boxes[place] = box
    return unit_boxes * np.array([size[1], size[0], size[1], size[0]], np.float64)


def _add_text(records: SourceRecords, options: ReadOptions, row: dict, split: str, sentences: list[str]) -> None:
    records.num_rows[TEXTS] += 1
    if not sentences:
        records.exclude("empty_report", row["image_id"], row["study_id"], record_kind=TEXTS)
        return
    text = replace_control_characters(" ".join(sentences))
    if len(text) > options.max_characters:
        records.exclude("too_long", row["image_id"], row["study_id"], f"{len(text)} characters", record_kind=TEXTS)
        return
    ids = {"source": options.name, "study_id": row["study_id"], "subject_id": row["subject_id"], "split": split}
    records.texts.append(ids | {"image_ids": [row["image_id"]], "section": "findings", "text": text})
