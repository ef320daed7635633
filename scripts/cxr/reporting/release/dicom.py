"""Write the DICOM segmentations of a shard: one per DICOM image, in the image's pixel grid, with a segment per mask.

Images in other formats get no segmentation. A segmentation refers to its X-ray by UIDs and contains the patient's
identifier, so that viewers can match the two. Nothing else about the patient is copied. Files are compressed (deflate).
"""

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from pydicom.dataset import Dataset
from pydicom.uid import DeflatedExplicitVRLittleEndian

from cxr.base.atomic import atomic_folder
from cxr.base.faults import broken_part
from cxr.base.hdf5 import Shards
from cxr.base.jobs import progress
from cxr.base.regular_files import open_regular
from cxr.base.tables import read_table
from cxr.dicom.files import HEAD_BYTES, HeaderError, detect_file_kind, read_dicom
from cxr.dicom.segmentation import REQUIRED_ELEMENTS, NoSegmentation, Segment, build_segmentation
from cxr.reporting.release.export_tables import map_to_original, read_geometry
from cxr.reporting.release.settings import PackageSettings
from cxr.reporting.release.withheld import IDS, group_units, iterate_studies, read_kept_pairs

COUNTS = "counts.json"
HEADER_ELEMENTS = (*REQUIRED_ELEMENTS, "PatientID", "Modality")
"""Header elements of an X-ray that the segmentation or its references need."""


def run_shard(
    *,
    lines: Sequence[str],
    filtered: str | Sequence[str],
    cohort: str,
    masks: Sequence[str],
    frames: Sequence[str],
    segmentations: str,
    options: PackageSettings,
    thresholds: str,
) -> None:
    """Write ``<subject[:3]>/<subject>/<study>/<image>.dcm`` and ``counts.json`` into ``segmentations``.

    ``lines`` has the pairs of all shards, one file per split. ``filtered`` is a file with the test pairs to keep, or
    empty for all. ``counts.json`` has the numbers of files and of segments, and, by reason, of the images with masks
    that got no segmentation.
    """
    kept_pair_ids, counts = read_kept_pairs(filtered), Counter()
    paths = dict(read_table(cohort).select("image_id", "path").iter_rows())
    units_by_image: dict[str, list[dict]] = {}
    for unit in (
        u for split in lines for _, group in iterate_studies(split, kept_pair_ids) for u in group_units(group)
    ):
        if unit["image_id"] in paths:
            units_by_image.setdefault(unit["image_id"], []).append(unit)
    with (
        atomic_folder(segmentations) as folder,
        Shards(masks, "mask_id") as mask_shards,
        Shards(frames) as frame_shards,
    ):
        for image_units in progress(units_by_image.values(), len(units_by_image), "release, DICOM"):
            try:
                if IDS in options.withhold:
                    raise NoSegmentation("identifiers are withheld")
                path = paths[image_units[0]["image_id"]]
                dataset = _build_segmentation(image_units, path, mask_shards, frame_shards, options.date, thresholds)
            except NoSegmentation as reason:
                counts[str(reason)] += 1
                continue
            line = image_units[0]  # the authors' release names folders in this way
            subject_id, study_id, image_id = line["subject_id"], line["study_id"], line["image_id"]
            target = folder / subject_id[:3] / subject_id / study_id / f"{image_id}.dcm"
            target.parent.mkdir(parents=True, exist_ok=True)
            dataset.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
            dataset.save_as(target)
            counts["files"] += 1
            counts["segments"] += len(dataset.SegmentSequence)
        (folder / COUNTS).write_text(json.dumps(counts, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def read_header(path: str) -> Dataset:
    """Return :data:`HEADER_ELEMENTS` of an X-ray. Raises NoSegmentation if it is no DICOM or cannot be read."""
    try:
        with open_regular(path) as file:
            if detect_file_kind(file.read(HEAD_BYTES)) != "dicom":
                raise NoSegmentation("the image is not a DICOM file")
        whole_header = read_dicom(path, list(HEADER_ELEMENTS))
    except (OSError, HeaderError) as error:
        if broken_part(error):
            raise
        raise NoSegmentation("the DICOM file can no longer be read") from None
    header = Dataset()
    for name in HEADER_ELEMENTS:
        if name in whole_header:
            setattr(header, name, whole_header.get(name))
    return header


def _build_segmentation(
    image_units: list[dict], path: str, masks: Shards, frames: Shards, date: str, thresholds: str
) -> Dataset:
    header = read_header(path)
    image_id = image_units[0]["image_id"]
    shape, _ = read_geometry(frames, image_id)
    if (header.get("Rows"), header.get("Columns")) != shape:
        raise NoSegmentation("Rows and Columns in the header differ from the pixels' shape")
    segments = [
        Segment(
            f"{unit['target']}, {unit['certainty'] or 'stated'}, thresholds {thresholds}",
            map_to_original(masks.get("mask", unit["mask_id"]), frames, image_id),
            lesion=unit["target"],
            locations=tuple(unit["location"]),
            name=unit["mask_id"],
        )
        for unit in image_units
    ]
    return build_segmentation(
        header,
        segments,
        version=str(masks.shard_of(image_units[0]["mask_id"]).attrs.get("code_digest", "unknown")),
        model=f"cxr-ils masks, thresholds {thresholds}",
        created_at=datetime.fromisoformat(date),
        device="cxr-ils masks",
        content="Lesions of the report",
    )
