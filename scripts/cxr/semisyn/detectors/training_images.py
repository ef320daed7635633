"""The training images of a run: real ones of references, synthetic ones of the dataset, and its controls."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl

from cxr.base.errors import UserError
from cxr.base.hdf5 import Shards
from cxr.geometry.affine import boxes_to_frame
from cxr.geometry.boxes import CORNERS
from cxr.semisyn.detectors.columns import TRAINED
from cxr.semisyn.detectors.engine import DetectorsOptions
from cxr.semisyn.detectors.pools import Film, fraction, shuffled
from cxr.semisyn.detectors.validation import Validation
from cxr.semisyn.references import Held, Reference, load, patients_of, read_patients
from cxr.semisyn.sizes import PARTS, images_of_each


@dataclass(frozen=True)
class Pictures:
    """Shards of frames: of the edited images, of the cohort, and {reference: of its own images, if it has any}."""

    edited: Shards
    frames: Shards
    own: Mapping[str, Shards]

    def of(self, reference: str) -> Shards:
        """Return the shards of a reference's images."""
        return self.own.get(reference, self.frames)


@contextmanager
def opened(edited: Sequence[str], frames: Sequence[str], own: Mapping[str, str]) -> Iterator[Pictures]:
    """Open shards of frames."""
    with ExitStack() as entered:
        one, other = (entered.enter_context(Shards(paths)) for paths in (edited, frames))
        yield Pictures(one, other, {name: entered.enter_context(Shards([path])) for name, path in own.items()})


def real_films(
    reference: Reference, held: Held, shards: Shards, patient: Mapping[str, str], classes: Sequence[str]
) -> list[Film]:
    """Return the images of a reference that have a frame, with their boxes.

    Its labels give every box of the findings of which it has at least one; the other findings are unknown there.
    """
    number = {name: place for place, name in enumerate(classes)}
    known = tuple(sorted(number[name] for name in set(held.boxes["finding"]) if name in number))
    rows: dict[str, list[tuple]] = {}
    for image, finding, *box in held.boxes.select("image_id", "finding", *CORNERS).iter_rows():
        if finding in number:
            rows.setdefault(image, []).append((number[finding], *box))
    films = []
    for image in sorted(image for image in held.seen if image in shards):
        shard, drawn = shards.of(image), rows.get(image, [])
        corners = np.array([box[1:] for box in drawn], np.float64)
        framed = boxes_to_frame(corners, shard.get("to_original", image))
        boxes = tuple((box[0], *map(float, new)) for box, new in zip(drawn, framed, strict=True))
        films.append(Film(boxes, known, image, patient[image], partial(shard.get, "image", image)))
    return films


def synthetic_films(images: pl.DataFrame, boxes: pl.DataFrame, options: DetectorsOptions, shards: Shards) -> list[Film]:
    """Return the dataset's train images of all sizes, in the order of their jobs, with their boxes.

    ``images``, ``boxes``: its tables. Every finding is known of them: the source has none.
    """
    number = {name: place for place, name in enumerate(options.findings)}
    kept = boxes.filter((pl.col("kind") == options.kind) & (pl.col("target") == options.target))
    rows: dict[str, list[tuple]] = {}
    for job, finding, *box in kept.select("job_id", "finding", *CORNERS).iter_rows():
        rows.setdefault(job, []).append((number[finding], *box))
    every = tuple(range(len(number)))
    chosen = images.filter(pl.col("subset") == TRAINED).sort("job_id")
    return [
        Film(tuple(rows.get(job, ())), every, job, subject, partial(shards.of(job).get, "image", job))
        for job, subject in chosen.select("job_id", "subject_id").iter_rows()
    ]


def unedited(films: Sequence[Film], sources: Mapping[str, str], shards: Shards) -> list[Film]:
    """Return the sources of synthetic films without a box, in their order; ``sources``: {job_id: image_id}."""
    found = []
    for film in films:
        source = sources[film.image_id]
        found.append(
            Film((), film.known, film.image_id, film.subject_id, partial(shards.of(source).get, "image", source))
        )
    return found


def sized(films: Sequence[Film], images: pl.DataFrame, size: int | str, findings: int) -> list[Film]:
    """Return the first films of each finding: those of a size. ``images``: the dataset's table.

    Raises UserError for a number that is more than the dataset was asked for.
    """
    asked = images["asked"].max() or 0
    each = images_of_each(size, asked, findings)
    if size not in PARTS and each > asked:
        raise UserError(
            f"semisyn.detectors.runs: a run asks for {size} synthetic images, but the dataset has {asked * findings}: "
            f"lower it, name one of {', '.join(PARTS)}, or raise semisyn.dataset.per_finding"
        )
    rank = dict(images.select("job_id", "rank").iter_rows())
    return [film for film in films if rank[film.image_id] < each]


def pools_of(
    options: DetectorsOptions,
    pictures: Pictures,
    images: pl.DataFrame,
    boxes: pl.DataFrame,
    patients: Sequence[str],
    seed: int,
) -> tuple[dict[str, list[Film]], Counter]:
    """Return {pool: images} of a run, and of each reference the number of images that no shard of frames has.

    ``images``, ``boxes``: the dataset's tables, empty without it; ``patients``: tables of image_id and subject_id.
    Raises UserError where a pool that the run asks for is empty.
    """
    real, lacking = [], Counter()
    known = read_patients(patients)
    for told in options.references:
        reference = Reference(**told)
        held = load(reference, options.findings)
        films = real_films(
            reference, held, pictures.of(reference.name), patients_of(held.seen, known), options.findings
        )
        lacking[reference.name] = len(held.seen) - len(films)
        if not films:
            raise UserError(
                f"{reference.key}: none of its {len(held.seen)} images has a frame: they are not the cohort's; name "
                f"their folder in semisyn.references.{reference.name}.images"
            )
        real += films
    pools = {"real": fraction(real, options.real_share, seed)} if real else {}
    made = synthetic_films(images, boxes, options, pictures.edited) if options.synthetic or options.extra else []
    count = len(options.findings)
    if options.synthetic:
        pools["synthetic"] = sized(made, images, options.synthetic, count)
    beside = sized(made, images, options.extra_size, count) if options.extra else []
    if "unedited" in options.extra:
        pools["unedited"] = unedited(beside, dict(images.select("job_id", "image_id").iter_rows()), pictures.frames)
    if "shuffled" in options.extra:
        pools["shuffled"] = shuffled(beside, seed)
    for name, pool in pools.items():
        if not pool:
            raise UserError(
                f"semisyn.detectors.runs: the pool {name} has no image of the split train: raise "
                f"semisyn.dataset.per_finding, or leave it out of the run"
            )
    return pools, lacking


def validation_of(options: DetectorsOptions, pictures: Pictures, patients: Sequence[str]) -> Validation | None:
    """Return the images that a training is scored on, None without a reference of the role val."""
    films, known = [], read_patients(patients)
    for told in options.validation:
        reference = Reference(**told)
        held = load(reference, options.findings)
        shards, whose = pictures.of(reference.name), patients_of(held.seen, known)
        films += real_films(reference, held, shards, whose, options.findings)
    return Validation(films, options.ious, options.recalls) if films else None
