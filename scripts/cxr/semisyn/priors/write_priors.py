"""Write the priors: the paper's, the user's, or those fitted to experts' boxes."""

import json
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import yaml

from cxr.annotations.box_table import region_box
from cxr.annotations.regions import Annotation, image_name, read_annotations
from cxr.base.atomic import atomic_file
from cxr.base.columns import read_columns, schema
from cxr.base.errors import UserError
from cxr.base.hdf5 import Shard
from cxr.base.tables import read_table, write_rows, write_table
from cxr.base.vocabulary import HEART, SIDES
from cxr.geometry.affine import box_to_frame
from cxr.geometry.boxes import bounding_box
from cxr.semisyn.findings.catalogue import RATIO, read_catalogue
from cxr.semisyn.priors.fitting import NUMBERS_BY_ELEMENT, Fit, compare_sides, fit_prior
from cxr.semisyn.references import Reference, finding_by_label

_LUNG = "% of the lung's box"
RESOURCE_FILES = ("columns/semisyn_priors.toml",)
SAMPLES = read_columns("semisyn_priors", "samples")
"""Columns of the samples, which are boxes or, for findings of the heart, images."""
FITS = read_columns("semisyn_priors", "fits")
ZONES = read_columns("semisyn_priors", "zones")
SYMMETRY = read_columns("semisyn_priors", "symmetry")
log = logging.getLogger("cxr.semisyn.priors")
MAX_OUTSIDE = 50.0
"""Maximum distance of a box's centre from the lung's box, percent of the size of the lung's box."""
ZONE_PERCENTILES, MIN_ZONE_PATIENTS = (5.0, 95.0), 20
"""Percentiles of the boxes' (x1, y1) and (x2, y2) that become a zone's edges, and fewest patients of a fitted zone."""
MIN_BOXES = 20
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Chest:
    """The organs of an image. right, left, heart: boxes in frame pixels; to_original: affine to original pixels; shape:
    (rows, columns) of the original; posed: whether the heart can be measured (PA view, erect or unknown position);
    patient: subject_id."""

    right: Box
    left: Box
    heart: Box
    to_original: np.ndarray
    shape: tuple[int, int]
    posed: bool
    patient: str


def nearest_lung(box: Box, chest: Chest) -> str:
    """Return the side of the lung whose nearer vertical edge is closest to the box's centre (authors' code)."""
    centre = (box[0] + box[2]) / 2
    near = {side: min(abs(centre - getattr(chest, side)[edge]) for edge in (0, 2)) for side in SIDES}
    return min(near, key=near.__getitem__)


def lung_percent(box: Box, lung: Box, side: str) -> Box:
    """Return (centre x, centre y, width, height) in percent of the lung's box, with x from its lateral edge."""
    width, height = lung[2] - lung[0], lung[3] - lung[1]
    x = 100 * ((box[0] + box[2]) / 2 - lung[0]) / width
    y = 100 * ((box[1] + box[3]) / 2 - lung[1]) / height
    return (100 - x if side == "left" else x), y, 100 * (box[2] - box[0]) / width, 100 * (box[3] - box[1]) / height


def box_fault(region: Annotation, box: Box | None, chest: Chest | None) -> str:
    """Return why a box cannot be used, or "" if it can. ``chest``: organs of its image, or None if they are missing."""
    if chest is None:
        return "no organs of its image"
    if box is None:
        return "no box, or a coordinate is not a number"
    if box[0] >= box[2] or box[1] >= box[3]:
        return "no area"
    if region.size is not None and tuple(region.size) != chest.shape:
        return "drawn on an image of another size"
    if box[0] >= chest.shape[1] or box[1] >= chest.shape[0] or box[2] <= 0 or box[3] <= 0:
        return "outside the picture"
    return ""


def sample_rows(
    regions: Iterable[Annotation], source: Reference, chests: Mapping[str, Chest], placements: Mapping[str, str]
) -> list[tuple]:
    """Return rows of :data:`SAMPLES` for each box of lung findings and each image of heart findings. Unusable ones have
    an exclusion reason. ``chests``: {image: its organs}; ``placements``: {finding: lung or heart}."""
    names, rows, hearts = finding_by_label(source.format, source.classes, placements), [], set()
    for region in regions:
        name = names.get(region.label.lower())
        if name is None:
            continue
        image = image_name(source.image_id, region.image)
        box, chest = region_box(region), chests.get(image)
        side, numbers, ratio, reason = "", (None,) * 4, None, box_fault(region, box, chest)
        if placements[name] == "heart":
            if (name, image) in hearts:
                continue
            hearts.add((name, image))
            reason = "no organs of its image" if chest is None else "" if chest.posed else "not PA, or not erect"
            if chest is not None:  # the heart's width over the thorax's, outer edge to outer edge
                ratio = 100 * (chest.heart[2] - chest.heart[0]) / (chest.left[2] - chest.right[0])
        elif not reason:
            frame_box = tuple(box_to_frame(box, chest.to_original).tolist())
            side = nearest_lung(frame_box, chest)
            numbers = lung_percent(frame_box, getattr(chest, side), side)
            if not all(-MAX_OUTSIDE <= value <= 100 + MAX_OUTSIDE for value in numbers[:2]):
                reason = "far outside the lung"
        rows.append((name, source.name, image, side, *numbers, ratio, reason))
    return sorted(rows, key=lambda row: tuple(str(cell) for cell in row))


SIMPLE_ZONES = ("apical zone", "hilar structures", "lower lung zone", "mid lung zone", "upper lung zone")
ZONES_OF_BOTH = {zone: (zone,) for zone in SIMPLE_ZONES} | {
    "hemidiaphragm and costophrenic angle": ("hemidiaphragm", "costophrenic angle")
}
PARTS: dict[str, dict[str, tuple[str, ...]]] = {
    "right": ZONES_OF_BOTH | {"lower lung lobe": ("lower lung zone",), "mid lung lobe": ("mid lung zone",),
                              "upper lung lobe": ("upper lung zone",)},
    "left": ZONES_OF_BOTH | {"lower lung lobe": ("lower lung zone", "mid lung zone"),
                             "upper lung lobe": ("upper lung zone", "mid lung zone")},
}  # fmt: skip
"""{side: {zone: names, without the side, of the Chest ImaGenome boxes whose union is the zone}}. Unions for lobes
follow from the authors' numbers."""


def fit_zones(
    regions: Iterable[Annotation], chests: Mapping[str, Chest]
) -> dict[tuple[str, str], tuple[tuple[float, ...], int]]:
    """Return {(side, zone): (box in percent of the lung's, x from the image's left; number of patients)} for zones with
    boxes of at least :data:`MIN_ZONE_PATIENTS` patients."""
    edges: dict[str, list[tuple[str, np.ndarray]]] = defaultdict(list)
    for region in regions:
        side, box = region.label.partition(" ")[0], region_box(region)
        chest = chests.get(image_name("{stem}", region.image))
        if side in SIDES and not box_fault(region, box, chest):
            lung = np.array(getattr(chest, side))
            size = np.tile(lung[2:] - lung[:2], 2)
            numbers = 100 * (box_to_frame(box, chest.to_original) - np.tile(lung[:2], 2)) / size
            edges[region.label.lower()].append((chest.patient, numbers))
    bounds = {}
    for label, rows in edges.items():
        if (patients := len({patient for patient, _ in rows})) >= MIN_ZONE_PATIENTS:
            low, high = np.percentile(np.stack([numbers for _, numbers in rows]), ZONE_PERCENTILES, axis=0)
            bounds[label] = *low[:2], *high[2:], patients
    zones: dict[tuple[str, str], tuple] = {}
    for side, zone, parts in ((name, *item) for name, items in PARTS.items() for item in items.items()):
        if all(f"{side} {part}" in bounds for part in parts):
            x1, y1, x2, y2, patients = zip(*(bounds[f"{side} {part}"] for part in parts), strict=True)
            zones[side, zone] = tuple(map(float, (min(x1), min(y1), max(x2), max(y2)))), min(patients)
    return zones


def run(
    *, priors: str, samples: str, fits: str, zones: str, symmetry_table: str, findings: list[str],
    findings_file: str = "", boxes: str = "", zone_boxes: str = "", images: str = "", frames: Sequence[str] = (),
    organs: Sequence[str] = (),
    own_images: str = "", own_frames: str = "", own_organs: str = "", reference: str = "", format: str = "",
    image_id: str = "", classes: Mapping[str, str], organ_engine: str = "", min_boxes: int = MIN_BOXES,
) -> None:  # fmt: skip
    """Write ``priors`` (YAML) and the tables. All inputs are empty if nothing is fitted. ``boxes``: file of the
    ``reference``; ``zone_boxes``: file of anatomical zones; ``own_...``: files of a reference's images outside the
    cohort; ``organ_engine``: engine of the organ masks. Raise UserError if the reference has no box of a finding."""
    catalogue = read_catalogue(findings_file)
    chests = read_chests(images, frames, organs) if images else {}
    rows = []
    if boxes:
        placements = {name: catalogue.findings[name].prior.placement for name in findings}
        reference_chests = read_chests(own_images, [own_frames], [own_organs]) if own_images else chests
        source = Reference(reference, format, boxes, image_id, "", classes)
        regions = read_annotations(source.key, boxes, format).regions
        rows = sample_rows(regions, source, reference_chests, placements)
        if not rows:
            raise UserError(
                f"{source.key} is {boxes!r}, which has no box of {', '.join(placements)}: map its labels in "
                f"semisyn.references.{reference}.classes, or choose another semisyn.priors.reference"
            )
        log.info("%s: %d boxes of findings, %d used", reference, len(rows), sum(not row[-1] for row in rows))
    table = pl.DataFrame(rows, schema=schema(SAMPLES), orient="row")
    priors_by_finding, fit_rows, symmetry_rows = {}, [], []
    for name in findings:
        prior, finding_samples = catalogue.findings[name].prior, table.filter(finding=name, exclusion_reason="")
        numbers = sum(NUMBERS_BY_ELEMENT.values(), ()) if prior.placement == "lung" else (RATIO,)
        values, count = {number: finding_samples[number].to_numpy() for number in numbers}, len(finding_samples)
        if boxes and count >= min_boxes:
            prior, prior_fits = fit_prior(prior, values)
        else:
            prior_fits = [Fit(element, law, count, None, None, True) for element, law in prior.laws.items()]
            if boxes:
                log.info("%s: %d samples, fewer than %d: its prior is not fitted", name, count, min_boxes)
        priors_by_finding[name] = prior
        for fit in prior_fits:
            law = fit.law.family, json.dumps(dict(fit.law.parameters))
            fit_rows.append((name, fit.element, *law, fit.n, fit.rss, fit.spearman_p, fit.is_chosen, prior.origin))
        if prior.placement == "lung" and count:
            is_left = (finding_samples["side"] == "left").to_numpy()
            symmetry_rows += [(name, *row) for row in compare_sides(values, is_left)]
    fitted_zones = {}
    if zone_boxes:
        regions = read_annotations("semisyn.priors.zones_table", zone_boxes, "chest_imagenome").regions
        fitted_zones = fit_zones(regions, chests)
        log.info("%d zones fitted", len(fitted_zones))
    zone_rows, zones_by_side = [], {side: {} for side in SIDES}
    for side in SIDES:
        for zone, box in catalogue.zones[side].items():
            zone_box, patients = fitted_zones.get((side, zone), (box, None))
            zones_by_side[side][zone] = list(zone_box)
            zone_rows.append((side, zone, *zone_box, patients, "paper" if patients is None else "fit"))
    is_fitted = bool(zone_boxes) or any(prior.origin == "fit" for prior in priors_by_finding.values())
    document = {
        "lungs": f"{catalogue.lungs}; fitted ones: {organ_engine}" if is_fitted else catalogue.lungs,
        "findings": {name: prior.to_dict() for name, prior in priors_by_finding.items()},
        "zones": zones_by_side,
    }
    with atomic_file(priors) as temporary:
        temporary.write_text(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120), encoding="utf-8")
    write_table(samples, table, SAMPLES)
    write_rows(fits, fit_rows, FITS)
    write_rows(zones, zone_rows, ZONES)
    write_rows(symmetry_table, symmetry_rows, SYMMETRY)


def read_chests(images: str, frames: Sequence[str], organs: Sequence[str]) -> dict[str, Chest]:
    """Return {image: its organs} of all images in which both lungs and the heart have a box."""
    facts = {row["image_id"]: row for row in read_table(images).iter_rows(named=True)}
    chests = {}
    for frame_path, organ_path in zip(frames, organs, strict=True):
        with Shard(frame_path) as frame, Shard(organ_path) as organ:
            for name in organ.ids:
                masks = organ.masks(name)
                boxes = [bounding_box(masks[label]) for label in (*(f"{side} lung" for side in SIDES), HEART)]
                if all(box[2] > box[0] for box in boxes):
                    fact = facts.get(name, {})
                    posed = fact.get("view") == "PA" and (fact.get("position") or "Erect") == "Erect"
                    shape = tuple(int(side) for side in frame.get("original_shape", name))
                    patient = fact.get("subject_id") or name
                    chests[name] = Chest(*boxes, frame.get("to_original", name), shape, posed, patient)
    return chests
