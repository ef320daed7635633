"""The anomaly stage: makes edited images and anomaly maps from frames and organ masks."""

from collections.abc import Iterable, Mapping
from heapq import merge
from operator import itemgetter
from pathlib import Path

import numpy as np

from cxr.base.edited_images import ANOMALY, BRIGHTER, UNEDITED, brightening
from cxr.base.engines import Setup
from cxr.base.hdf5 import FRAME_SIZE, Shard, ShardWriter
from cxr.base.ledger import Ledger
from cxr.base.tables import read_lines, read_table
from cxr.base.vocabulary import LUNG_LESIONS
from cxr.base.workers import EngineFault, process_rows
from cxr.imaging.anomaly.engine import BadMap, compose, edit_region, load_engine
from cxr.imaging.anomaly.settings import AnomalySettings

FIELDS = (ANOMALY, BRIGHTER, UNEDITED)
UNITS = {ANOMALY: "grey levels", BRIGHTER: "grey levels"}
MAPPED_LESIONS = frozenset(LUNG_LESIONS)  # lesions whose masks come from the map; cardiomegaly's mask is the heart


def needs_anomaly_map(tuples: Iterable[Mapping]) -> bool:
    """Return True if a report states, with any certainty, a lesion whose mask is made from the anomaly map.

    ``tuples``: the findings that were read from the report, one dict each.
    """
    for finding in tuples:
        predicted = finding.get("predicted_lesion_type") or ()
        type_names = [finding.get("lesion_type"), *([predicted] if isinstance(predicted, str) else predicted)]
        lesions = {name.strip().lower() for name in [*type_names, *(finding.get("candidates") or ())] if name}
        if finding.get("presence") == "positive" and not MAPPED_LESIONS.isdisjoint(lesions):
            return True
    return False


def images_with_findings(cohort: str | Path, reports: str | Path) -> set[str]:
    """Return the ids of a shard's images whose report states a lesion whose mask is made from the anomaly map.

    Later rules that drop findings are ignored, so that a change of mask rules or thresholds does not rerun the editor.
    """
    studies = {line["study_id"] for line in read_lines(reports) if needs_anomaly_map(line["tuples"])}
    rows = read_table(cohort).select("image_id", "study_id").iter_rows()
    return {image_id for image_id, study_id in rows if study_id in studies}


def run_shard(
    *,
    frames: str | Path,
    organs: str | Path,
    output: str | Path,
    excluded: str | Path,
    options: AnomalySettings,
    attrs: dict,
    threads: int,
    seed: int = 0,
    compute: dict | None = None,
    cohort: str | Path | None = None,
    reports: str | Path | None = None,
    **files: str,
) -> None:
    """Remove the lesions from every image of a shard that has organ masks.

    Writes the table ``excluded``, and ``output`` (HDF5) with two maps per image, uint8 (512, 512): ``anomaly`` =
    max(frame - edited, 0) and ``brighter`` = max(edited - frame, 0). :mod:`cxr.base.edited_images` restores the edited
    image. With the setting ``images: with_findings``, the tables ``cohort`` and ``reports`` tell which reports state a
    lesion that needs the map. Other images are not edited: their maps are 0, and ``unedited`` is 1. ``files``: the
    engine's input files; ``attrs``: provenance, attributes of ``output``; ``compute``: settings section ``compute``.
    """
    engine = load_engine(options.engine, options, Setup.of_job(files, compute, options.engine, seed=seed))
    ledger = Ledger("anomaly")

    def compose_row(image: np.ndarray, masks: dict[str, np.ndarray], proposal: np.ndarray):
        try:
            edited, darker = compose(image, np.asarray(proposal), edit_region(masks))
            return (darker, brightening(image, edited), np.uint8(0)), None
        except BadMap as fault:
            return None, EngineFault.from_error(fault, "bad_map", str(fault))

    batch = getattr(engine, "batch", None)

    def work(rows: list[tuple]):
        images, masks, names = map(list, zip(*rows, strict=True))
        copies = [image.copy() for image in images]
        edited = map(engine.edit, copies, masks) if batch is None else engine.edit_batch(copies, masks, names)
        return [compose_row(*row) for row in zip(images, masks, edited, strict=True)]

    nothing = np.zeros((FRAME_SIZE, FRAME_SIZE), np.uint8)
    empty = dict.fromkeys(UNITS, ((FRAME_SIZE, FRAME_SIZE), np.uint8)) | {UNEDITED: ((), np.uint8)}
    with (
        Shard(frames) as frame_shard,
        Shard(organs) as shard,
        ShardWriter(output, attrs=attrs, units=UNITS, empty=empty) as writer,
    ):

        def read(name: str) -> tuple[np.ndarray, dict[str, np.ndarray], str]:
            return frame_shard.get("image", name), shard.masks(name), name

        needed = set(shard.ids) if options.images == "all" else images_with_findings(cohort, reports)
        edited_ids = sorted(needed.intersection(shard.ids))
        rows = process_rows(ledger, edited_ids, read, work, batch, threads, compute)
        unedited_ids = sorted(set(shard.ids) - needed)
        for name in unedited_ids:
            ledger.accept(name)
        unedited_rows = ((name, (nothing, nothing, np.uint8(1))) for name in unedited_ids)
        for image_id, values in merge(rows, unedited_rows, key=itemgetter(0)):
            writer.append(image_id, **dict(zip(FIELDS, values, strict=True)))
        ledger.finish(excluded, shard.ids)
