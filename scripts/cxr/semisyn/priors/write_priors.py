"""Write the priors: the paper's, the user's, or those fitted to experts' boxes."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
from cxr.semisyn.findings.catalogue import RATIO, SHAPES, Catalogue, Prior, read_catalogue
from cxr.semisyn.priors.fitting import NUMBERS_BY_ELEMENT, compare_sides, fit_prior
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


@dataclass(frozen=True, kw_only=True)
class PriorsOptions:
    """Settings of the stage (section ``semisyn.priors``).

    source, zones: ``paper`` or ``fit``; reference, format, image_id, classes: of the boxes; zones_image_id: template of
    the zone table's images; organs: engine of the lungs; families, alpha, bins, overshoot_percentile, sizes: see
    :func:`fit_prior`; min_boxes: fewest boxes of a fit; far: percent by which a box's centre may lie outside its
    lung's; zones_percentiles: of lower and upper edges; zones_patients: fewest patients of a fitted zone.
    """

    source: str
    zones: str
    reference: str
    format: str
    image_id: str
    classes: dict[str, str]
    zones_image_id: str
    organs: str
    alpha: float = 0.05
    bins: int = 50
    min_boxes: int
    families: Sequence[str] = tuple(SHAPES)
    far: float = 50.0
    overshoot_percentile: float = 2.5
    sizes: str
    zones_percentiles: Sequence[float] = (5.0, 95.0)
    zones_patients: int = 20
    findings: list[str]


def run(
    *, priors: str, samples: str, fits: str, zones: str, symmetry_table: str, options: PriorsOptions,
    findings_file: str = "", boxes: str = "", zone_boxes: str = "", images: str = "", frames: Sequence[str] = (),
    organs: Sequence[str] = (), own_images: str = "", own_frames: str = "", own_organs: str = "",
) -> None:  # fmt: skip
    """Write ``priors`` (YAML), and the tables of samples, fits, zones and symmetry.

    ``boxes``: the reference of a fit; ``zone_boxes``: the table of anatomical zones; ``images``: the cohort's table;
    ``frames`` and ``organs``: shards; ``own_...``: the same of a reference with images outside the cohort. All are
    empty if nothing is fitted. Raises UserError for a file of another format and a reference without usable boxes.
    """
    catalogue = read_catalogue(findings_file)
    chests = read_chests(images, frames, organs) if images else {}
    reference_chests = read_chests(own_images, [own_frames], [own_organs]) if own_images else chests
    rows = _read_samples(boxes, reference_chests, catalogue, options) if options.source == "fit" else []
    table = pl.DataFrame(rows, schema=schema(SAMPLES), orient="row")
    prior_by_finding, fit_rows, symmetry_rows = {}, [], []
    for name in options.findings:
        prior, finding_samples = catalogue.findings[name].prior, table.filter(finding=name, left_out="")
        prior_by_finding[name], new_rows = _fit_finding(name, prior, finding_samples, options)
        fit_rows += new_rows
        if prior.placement == "lung" and len(finding_samples):
            numbers = {
                number: finding_samples[number].to_numpy() for pair in NUMBERS_BY_ELEMENT.values() for number in pair
            }
            symmetry_rows += [
                (name, *row) for row in compare_sides(numbers, (finding_samples["side"] == "left").to_numpy())
            ]
    bounds_of, zone_rows = _read_zones(zone_boxes, chests, catalogue, options)
    _write_yaml(priors, prior_by_finding, bounds_of, options, catalogue)
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


def _read_samples(boxes: str, chests: Mapping[str, Chest], catalogue: Catalogue, options: PriorsOptions) -> list[tuple]:
    key = f"semisyn.references.{options.reference}.path"
    regions = read_annotations(key, boxes, options.format).regions
    source = BoxSource(options.reference, options.format, options.image_id, options.classes)
    placements = {name: catalogue.findings[name].prior.placement for name in options.findings}
    rows = sample_rows(regions, source, chests, placements, options.far)
    if not rows:
        raise UserError(
            f"{key} {boxes!r} has no box of {', '.join(placements)}: map its labels in "
            f"semisyn.references.{options.reference}.classes, or choose another semisyn.priors.reference"
        )
    used = sum(not row[-1] for row in rows)
    log.info("%s: %d boxes of findings, %d used", options.reference, len(rows), used)
    return rows


def _fit_finding(name: str, prior: Prior, samples: pl.DataFrame, options: PriorsOptions) -> tuple[Prior, list[tuple]]:
    """Return a finding's prior, fitted if there are enough samples, and its rows of ``columns.FITS``."""
    if options.source != "fit" or len(samples) < options.min_boxes:
        if options.source == "fit":
            log.info("%s: %d samples, fewer than %d: its prior is not fitted", name, len(samples), options.min_boxes)
        rows = [
            (name, element, law.family, _as_json(law.parameters), len(samples), None, None, True, prior.origin)
            for element, law in prior.laws.items()
        ]
        return prior, rows
    numbers = (RATIO,) if prior.placement == "heart" else sum(NUMBERS_BY_ELEMENT.values(), ())
    fitted, fits = fit_prior(
        prior,
        {number: samples[number].to_numpy() for number in numbers},
        alpha=options.alpha,
        bins=options.bins,
        families=options.families,
        overshoot_percentile=options.overshoot_percentile,
        sizes=options.sizes,
    )
    rows = [
        (
            name,
            fit.element,
            fit.law.family,
            _as_json(fit.law.parameters),
            fit.n,
            fit.rss,
            fit.spearman_p,
            fit.is_chosen,
            "fit",
        )
        for fit in fits
    ]
    return fitted, rows


def _as_json(parameters: Mapping) -> str:
    return json.dumps(dict(parameters))


def _read_zones(
    zone_boxes: str, chests: Mapping[str, Chest], catalogue: Catalogue, options: PriorsOptions
) -> tuple[dict[str, dict[str, list[float]]], list[tuple]]:
    """Return {side: {zone: box}} and the rows of ``columns.ZONES``."""
    fitted = {}
    if options.zones == "fit":
        regions = read_annotations("semisyn.priors.zones_table", zone_boxes, "chest_imagenome").regions
        fitted = fit_zones(regions, options.zones_image_id, chests, options.zones_percentiles, options.zones_patients)
        log.info("%d zones fitted", len(fitted))
    zones: dict[str, dict[str, list[float]]] = {side: {} for side in SIDES}
    rows = []
    for side in SIDES:
        for zone, box in catalogue.zones[side].items():
            zone_box, patients = fitted.get((side, zone), (box, None))
            zones[side][zone] = list(zone_box)
            rows.append((side, zone, *zone_box, patients, "paper" if patients is None else "fit"))
    return zones, rows


def _write_yaml(
    path: str, prior_by_finding: Mapping[str, Prior], zones: Mapping, options: PriorsOptions, catalogue: Catalogue
) -> None:
    """Write the priors in the layout of the resource, with their origins."""
    fitted = any(prior.origin == "fit" for prior in prior_by_finding.values()) or options.zones == "fit"
    document = {
        "lungs": f"{catalogue.lungs}; fitted ones: {options.organs}" if fitted else catalogue.lungs,
        "findings": {name: prior.to_dict() for name, prior in prior_by_finding.items()},
        "zones": zones,
    }
    with atomic_file(path) as temporary:
        temporary.write_text(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120), encoding="utf-8")
