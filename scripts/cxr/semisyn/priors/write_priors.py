"""Write the priors: the paper's, the user's, or those fitted to experts' boxes."""

import json
import logging
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
import yaml

from cxr.annotations.regions import read_annotations
from cxr.base.atomic import atomic_file
from cxr.base.columns import Column, schema
from cxr.base.errors import UserError
from cxr.base.hdf5 import Shard
from cxr.base.tables import read_table, write_table
from cxr.base.vocabulary import HEART, SIDES
from cxr.geometry.boxes import bounding_box
from cxr.semisyn.findings.catalogue import RATIO, Catalogue, Prior, read_catalogue
from cxr.semisyn.priors.fitting import NUMBERS_BY_ELEMENT, Fit, compare_sides, fit_prior
from cxr.semisyn.priors.samples import BoxSource, Chest, fit_zones, sample_rows

_LUNG = "% of the lung's box"
SAMPLES = {
    "finding": Column(pl.String, "Finding."),
    "reference": Column(pl.String, "Reference that the box is from."),
    "image_id": Column(pl.String, "Image."),
    "side": Column(pl.String, "Lung of the box, right or left; empty for the heart and for a box without a lung."),
    "cx": Column(pl.Float64, "Centre from the lung's lateral edge.", _LUNG),
    "cy": Column(pl.Float64, "Centre from the lung's top.", _LUNG),
    "w": Column(pl.Float64, "Width.", _LUNG),
    "h": Column(pl.Float64, "Height.", _LUNG),
    "ctr": Column(pl.Float64, "Cardiothoracic ratio of the image, by its organs.", "%"),
    "left_out": Column(pl.String, "Why the fit excludes it; empty if it does not."),
}
"""One row for each box; one for each image of a finding of the heart."""
FITS = {
    "finding": Column(pl.String, "Finding."),
    "element": Column(pl.String, "Element: center, size, or center_x, center_y, width, height, or ctr."),
    "family": Column(pl.String, "Family of distributions, by scipy's name; mvlognormal: of two dimensions."),
    "parameters": Column(pl.String, "Its parameters as JSON."),
    "n": Column(pl.Int64, "Samples of the fit; for a prior that is not fitted, the available ones."),
    "rss": Column(pl.Float64, "Sum of squared differences between density and histogram; null if not computed."),
    "spearman_p": Column(pl.Float64, "p of Spearman's test of independence of both numbers; null for one number."),
    "chosen": Column(pl.Boolean, "Whether it becomes the prior."),
    "origin": Column(pl.String, "paper, file (the user's) or fit."),
}
ZONES = {
    "side": Column(pl.String, "Lung."),
    "zone": Column(pl.String, "Zone."),
    **{
        name: Column(pl.Float64, f"{edge_name} edge, as the image shows the lung.", _LUNG)
        for name, edge_name in (("x1", "Left"), ("y1", "Upper"), ("x2", "Right"), ("y2", "Lower"))
    },
    "patients": Column(pl.Int64, "Patients of the fit."),
    "origin": Column(pl.String, "paper, file (the user's) or fit."),
}
SYMMETRY = {
    "finding": Column(pl.String, "Finding."),
    "element": Column(pl.String, "cx, cy, w or h."),
    "n_right": Column(pl.Int64, "Boxes in right lungs."),
    "n_left": Column(pl.Int64, "Boxes in left lungs, mirrored."),
    "ks": Column(pl.Float64, "Distance of Kolmogorov and Smirnov between both."),
    "p": Column(pl.Float64, "Its p; reported, not acted on."),
}


log = logging.getLogger("cxr.semisyn.priors")


MAX_OUTSIDE = 50.0
"""Percent of the lung's box by which the centre of a box may lie outside it."""
ZONE_PERCENTILES, MIN_ZONE_PATIENTS = (5.0, 95.0), 20
"""Percentiles of the lower and the upper edges of a zone; fewest patients of a fitted one."""
MIN_BOXES = 20


def run(
    *, priors: str, samples: str, fits: str, zones: str, symmetry_table: str, findings: list[str],
    findings_file: str = "", boxes: str = "", zone_boxes: str = "", images: str = "", frames: Sequence[str] = (),
    organs: Sequence[str] = (),
    own_images: str = "", own_frames: str = "", own_organs: str = "", reference: str = "", format: str = "",
    image_id: str = "", classes: Mapping[str, str], organ_engine: str = "", min_boxes: int = MIN_BOXES,
) -> None:  # fmt: skip
    """Write ``priors`` (YAML), and the tables of samples, fits, zones and symmetry.

    ``boxes``: the file of the ``reference`` of a fit, with its ``format``, template of ``image_id`` and ``classes``;
    ``zone_boxes``: the table of anatomical zones; ``images``: the cohort's table; ``frames`` and ``organs``: shards;
    ``own_...``: the same of a reference with images outside the cohort; ``organ_engine``: that made the organs;
    ``min_boxes``: fewest boxes of a fit. All are empty if nothing is fitted. Raises UserError for a file of another
    format and a reference without usable boxes.
    """
    catalogue = read_catalogue(findings_file)
    chests = read_chests(images, frames, organs) if images else {}
    rows = []
    if boxes:
        source = BoxSource(reference, format, image_id, classes)
        placements = {name: catalogue.findings[name].prior.placement for name in findings}
        reference_chests = read_chests(own_images, [own_frames], [own_organs]) if own_images else chests
        rows = _read_samples(boxes, source, reference_chests, placements)
    table = pl.DataFrame(rows, schema=schema(SAMPLES), orient="row")
    prior_by_finding, fit_rows, symmetry_rows = {}, [], []
    for name in findings:
        prior, finding_samples = catalogue.findings[name].prior, table.filter(finding=name, left_out="")
        numbers = sum(NUMBERS_BY_ELEMENT.values(), ()) if prior.placement == "lung" else (RATIO,)
        values = {number: finding_samples[number].to_numpy() for number in numbers}
        prior_by_finding[name], new_rows = _fit_finding(name, prior, values, min_boxes if boxes else None)
        fit_rows += new_rows
        if prior.placement == "lung" and len(finding_samples):
            is_left = (finding_samples["side"] == "left").to_numpy()
            symmetry_rows += [(name, *row) for row in compare_sides(values, is_left)]
    bounds_of, zone_rows = _read_zones(zone_boxes, chests, catalogue)
    is_fitted = bool(zone_boxes) or any(prior.origin == "fit" for prior in prior_by_finding.values())
    document = {
        "lungs": f"{catalogue.lungs}; fitted ones: {organ_engine}" if is_fitted else catalogue.lungs,
        "findings": {name: prior.to_dict() for name, prior in prior_by_finding.items()},
        "zones": bounds_of,
    }
    with atomic_file(priors) as temporary:
        temporary.write_text(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120), encoding="utf-8")
    write_table(samples, table, SAMPLES)
    write_table(fits, pl.DataFrame(fit_rows, schema=schema(FITS), orient="row"), FITS)
    write_table(zones, pl.DataFrame(zone_rows, schema=schema(ZONES), orient="row"), ZONES)
    write_table(symmetry_table, pl.DataFrame(symmetry_rows, schema=schema(SYMMETRY), orient="row"), SYMMETRY)


def read_chests(images: str, frames: Sequence[str], organs: Sequence[str]) -> dict[str, Chest]:
    """Return {image: its chest} of all images in which both lungs and the heart have a box."""
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


def _read_samples(
    boxes: str, source: BoxSource, chests: Mapping[str, Chest], placements: Mapping[str, str]
) -> list[tuple]:
    key = f"semisyn.references.{source.name}.path"
    regions = read_annotations(key, boxes, source.format).regions
    rows = sample_rows(regions, source, chests, placements, MAX_OUTSIDE)
    if not rows:
        raise UserError(
            f"{key} {boxes!r} has no box of {', '.join(placements)}: map its labels in "
            f"semisyn.references.{source.name}.classes, or choose another semisyn.priors.reference"
        )
    log.info("%s: %d boxes of findings, %d used", source.name, len(rows), sum(not row[-1] for row in rows))
    return rows


def _fit_finding(
    name: str, prior: Prior, samples: Mapping[str, np.ndarray], min_boxes: int | None
) -> tuple[Prior, list[tuple]]:
    """Return a finding's prior, fitted if there are enough samples, and its rows of :data:`FITS`.

    ``samples``: {number: its values}; ``min_boxes``: None without a fit.
    """
    count = len(next(iter(samples.values())))
    if min_boxes is None or count < min_boxes:
        if min_boxes is not None:
            log.info("%s: %d samples, fewer than %d: its prior is not fitted", name, count, min_boxes)
        fits = [Fit(element, law, count, None, None, True) for element, law in prior.laws.items()]
    else:
        prior, fits = fit_prior(prior, samples)
    return prior, [
        (
            *(name, fit.element, fit.law.family, json.dumps(dict(fit.law.parameters))),
            *(fit.n, fit.rss, fit.spearman_p, fit.is_chosen, prior.origin),
        )
        for fit in fits
    ]


def _read_zones(
    zone_boxes: str, chests: Mapping[str, Chest], catalogue: Catalogue
) -> tuple[dict[str, dict[str, list[float]]], list[tuple]]:
    """Return {side: {zone: box}} and the rows of :data:`ZONES`."""
    fitted = {}
    if zone_boxes:
        regions = read_annotations("semisyn.priors.zones_table", zone_boxes, "chest_imagenome").regions
        fitted = fit_zones(regions, "{stem}", chests, ZONE_PERCENTILES, MIN_ZONE_PATIENTS)
        log.info("%d zones fitted", len(fitted))
    zones: dict[str, dict[str, list[float]]] = {side: {} for side in SIDES}
    rows = []
    for side in SIDES:
        for zone, box in catalogue.zones[side].items():
            zone_box, patients = fitted.get((side, zone), (box, None))
            zones[side][zone] = list(zone_box)
            rows.append((side, zone, *zone_box, patients, "paper" if patients is None else "fit"))
    return zones, rows
