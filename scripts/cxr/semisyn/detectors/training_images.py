"""Read the training images of a run: real ones of references, synthetic ones of the dataset, and controls."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import polars as pl

from cxr.base.errors import UserError
from cxr.base.hdf5 import Shards
from cxr.geometry.affine import boxes_to_frame
from cxr.geometry.boxes import CORNERS
from cxr.semisyn.detectors.engine import DetectorsOptions, Validation
from cxr.semisyn.detectors.pools import LazySample, shuffle_boxes, take_patients
from cxr.semisyn.references import Reference, ReferenceBoxes, map_patients, read_patients, read_reference
from cxr.semisyn.shared import PARTS, TRAIN_SUBSET, images_per_finding


@dataclass(frozen=True)
class FrameShards:
    """Shards of frames: of edited images, of the cohort, and {reference: of its images outside the cohort}."""

    edited: Shards
    frames: Shards
    by_reference: Mapping[str, Shards]

    def shards_of(self, reference: str) -> Shards:
        """Return the shards with a reference's images."""
        return self.by_reference.get(reference, self.frames)


@contextmanager
def open_frames(
    edited: Sequence[str], frames: Sequence[str], reference_frames: Mapping[str, str]
) -> Iterator[FrameShards]:
    """Open shards of frames."""
    with ExitStack() as entered:
        opened = [entered.enter_context(Shards(paths)) for paths in (edited, frames)]
        yield FrameShards(
            *opened, {name: entered.enter_context(Shards(path)) for name, path in reference_frames.items()}
        )


def real_samples(
    reference_boxes: ReferenceBoxes, shards: Shards, patients: Sequence[pl.DataFrame], classes: Sequence[str]
) -> list[LazySample]:
    """Return the images of a reference that have a frame, with their boxes.

    A finding with at least one box counts as completely labelled in the reference; the others as unlabelled.
    """
    number = {name: place for place, name in enumerate(classes)}
    patient = map_patients(reference_boxes.image_ids, patients)
    labelled_classes = tuple(sorted(number[name] for name in set(reference_boxes.boxes["finding"]) if name in number))
    rows: dict[str, list[tuple]] = {}
    for image, finding, *box in reference_boxes.boxes.select("image_id", "finding", *CORNERS).iter_rows():
        if finding in number:
            rows.setdefault(image, []).append((number[finding], *box))
    samples = []
    for image in sorted(image for image in reference_boxes.image_ids if image in shards):
        shard, box_rows = shards.shard_of(image), rows.get(image, [])
        corners = np.array([box[1:] for box in box_rows], np.float64)
        framed = boxes_to_frame(corners, shard.get("to_original", image))
        boxes = tuple((box[0], *map(float, new)) for box, new in zip(box_rows, framed, strict=True))
        samples.append(LazySample(boxes, labelled_classes, image, patient[image], partial(shard.get, "image", image)))
    return samples


def synthetic_samples(
    images: pl.DataFrame, boxes: pl.DataFrame, options: DetectorsOptions, shards: Shards
) -> list[LazySample]:
    """Return the dataset's train images of all sizes in order of job_id, with their boxes.

    ``images``, ``boxes``: its tables. Every finding is labelled: the healthy source has none.
    """
    number = {name: place for place, name in enumerate(options.findings)}
    selected_boxes = boxes.filter((pl.col("kind") == options.kind) & (pl.col("target") == options.target))
    rows: dict[str, list[tuple]] = {}
    for job, finding, *box in selected_boxes.select("job_id", "finding", *CORNERS).iter_rows():
        rows.setdefault(job, []).append((number[finding], *box))
    every = tuple(range(len(number)))
    train_images = images.filter(pl.col("subset") == TRAIN_SUBSET).sort("job_id")
    return [
        LazySample(tuple(rows.get(job, ())), every, job, subject, partial(shards.shard_of(job).get, "image", job))
        for job, subject in train_images.select("job_id", "subject_id").iter_rows()
    ]


def unedited_samples(samples: Sequence[LazySample], sources: Mapping[str, str], shards: Shards) -> list[LazySample]:
    """Return the healthy sources of synthetic images, without boxes, in the same order.

    ``sources``: {job_id: image_id}.
    """
    return [
        replace(sample, boxes=(), read_frame=partial(shards.shard_of(source).get, "image", source))
        for sample in samples
        for source in [sources[sample.image_id]]
    ]


def take_size(samples: Sequence[LazySample], images: pl.DataFrame, size: int | str, findings: int) -> list[LazySample]:
    """Return the images of a size: those of the lowest ranks. ``images``: the dataset's image table.

    Raises UserError for more images than the dataset has.
    """
    quota = images["asked"].max() or 0
    num_each = images_per_finding(size, quota, findings)
    if size not in PARTS and num_each > quota:
        raise UserError(
            f"semisyn.detectors.runs: a run asks for {size} synthetic images, but the dataset has {quota * findings}: "
            f"lower it, name one of {', '.join(PARTS)}, or raise semisyn.dataset.per_finding"
        )
    rank = dict(images.select("job_id", "rank").iter_rows())
    return [sample for sample in samples if rank[sample.image_id] < num_each]


def read_pools(
    options: DetectorsOptions,
    pictures: FrameShards,
    images: pl.DataFrame,
    boxes: pl.DataFrame,
    patients: str | Sequence[str],
    seed: int,
) -> tuple[dict[str, list[LazySample]], Counter]:
    """Return {pool: images} of a run, and {reference: number of its images without a frame}.

    ``images``, ``boxes``: the dataset's tables, or empty ones; ``patients``: tables with image_id and subject_id.
    Raises UserError if a pool of the run is empty.
    """
    real, lacking = [], Counter()
    patient_tables = read_patients(patients)
    for settings in options.references:
        reference = Reference(**settings)
        reference_boxes = read_reference(reference, options.findings)
        samples = real_samples(reference_boxes, pictures.shards_of(reference.name), patient_tables, options.findings)
        lacking[reference.name] = len(reference_boxes.image_ids) - len(samples)
        if not samples:
            raise UserError(
                f"{reference.key}: none of its {len(reference_boxes.image_ids)} images has a frame: they are not the "
                f"cohort's; name their folder in semisyn.references.{reference.name}.images"
            )
        real += samples
    pools = {"real": take_patients(real, options.real_share, seed)} if real else {}
    uses_synthetic = options.synthetic or options.extra
    edited_films = synthetic_samples(images, boxes, options, pictures.edited) if uses_synthetic else []
    count = len(options.findings)
    if options.synthetic:
        pools["synthetic"] = take_size(edited_films, images, options.synthetic, count)
    extra_films = take_size(edited_films, images, options.extra_size, count) if options.extra else []
    if "unedited" in options.extra:
        sources = dict(images.select("job_id", "image_id").iter_rows())
        pools["unedited"] = unedited_samples(extra_films, sources, pictures.frames)
    if "shuffled" in options.extra:
        pools["shuffled"] = shuffle_boxes(extra_films, seed)
    for name, pool in pools.items():
        if not pool:
            raise UserError(
                f"semisyn.detectors.runs: the pool {name} has no image of the split train: raise "
                f"semisyn.dataset.per_finding, or remove the pool from the run"
            )
    return pools, lacking


def read_validation(
    options: DetectorsOptions, pictures: FrameShards, patients: str | Sequence[str]
) -> Validation | None:
    """Return the validation images; None without a reference with the role val."""
    samples, patient_tables = [], read_patients(patients)
    for settings in options.validation:
        reference = Reference(**settings)
        reference_boxes = read_reference(reference, options.findings)
        samples += real_samples(reference_boxes, pictures.shards_of(reference.name), patient_tables, options.findings)
    return Validation(samples) if samples else None
