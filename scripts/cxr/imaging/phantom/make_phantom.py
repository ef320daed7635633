"""The phantom stage: writes images, reports, manifest and ground truth of the embedded cohort, which is synthetic."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import polars as pl

from cxr.base.columns import Column, schema
from cxr.base.hdf5 import FRAME_SIZE, ShardWriter
from cxr.base.jobs import progress
from cxr.base.tables import write_lines, write_table
from cxr.base.vocabulary import ANATOMY_LABELS, CARDIOMEDIASTINUM, LESIONS, SIDES, side_of
from cxr.geometry.affine import fit_affine, to_frame
from cxr.imaging.phantom import files
from cxr.imaging.phantom.chest import Chest, draw_chest
from cxr.imaging.phantom.plan import ImagePlan, StudyPlan, generator, healthy_plans, make_plan
from cxr.imaging.phantom.prose import Finding, Report, write_report
from cxr.imaging.phantom.settings import PhantomSettings
from cxr.painting import lesions

EXPECTED = {
    "": "accept", "lateral": "not_frontal", "truncated": "undecodable", "empty": "empty_file", "text": "not_dicom",
    "ct": "wrong_modality", "missing": "missing_file", "knee": "wrong_body_part", "no_view": "unknown_view",
    "multi_frame": "multi_frame",
}  # fmt: skip
"""{fault: expected outcome}, where the outcome is ``accept`` or a code of ``exclusions.REASONS``."""
MANIFEST = {
    "subject_id": Column(pl.String, "Patient."),
    "study_id": Column(pl.String, "Study."),
    "image_id": Column(pl.String, "Image."),
    "image_path": Column(pl.String, "Image file, relative to the manifest."),
    "report_path": Column(pl.String, "Report file, relative to the manifest."),
    "view": Column(pl.String, "View, PA or AP; empty if the image's header states it, or nothing does."),
    "split": Column(pl.String, "train, validate or test."),
    "acquired": Column(pl.String, "Time of acquisition, a text that sorts by time."),
}
TRUTH_LABELS = (*ANATOMY_LABELS, CARDIOMEDIASTINUM, *LESIONS)  # labels of the truth masks; one mask per lesion type
EXTENT = (1.0, 1.8)  # range of the argument ``extent`` of painting.lesions.paint, so that lesions fill much of a zone


@dataclass
class PhantomImage:
    """A valid frontal image, float32 (H, W) in 0..1 with dense tissue bright, and its ground truth.

    painted: a mask, bool (H, W), for each finding of the plan and each unreported lesion; empty if it is not painted.
    """

    image: np.ndarray
    chest: Chest
    painted: list[np.ndarray]

    def truth(self, plan: StudyPlan) -> np.ndarray:
        """Return the truth masks in the frame, bool (24, 512, 512), in the order of ``TRUTH_LABELS``."""
        mask_by_label = {name: np.zeros(self.image.shape, bool) for name in TRUTH_LABELS} | self.chest.masks
        for lesion, mask in zip(plan.painted, self.painted, strict=True):
            if lesion in LESIONS:
                mask_by_label[lesion] = mask_by_label[lesion] | mask
        affine = fit_affine(self.image.shape, FRAME_SIZE, "pad")
        masks = [mask_by_label[name].astype(np.uint8) for name in TRUTH_LABELS]
        return np.stack([to_frame(mask, affine, FRAME_SIZE, nearest=True) > 0 for mask in masks])


def _shape(rng: np.random.Generator) -> tuple[int, int]:
    short = int(rng.integers(512, 561))
    long = min(700, round(short * float(rng.choice([1.0, 1.0, 1.1, 1.2, 1.25]))))
    return (long, short) if rng.random() < 0.5 else (short, long)


def _regions(finding: Finding, chest: Chest) -> list[np.ndarray]:
    """Return the masks in which to paint a finding: one per location, one per lung (effusion) or one in all (edema)."""
    if finding.place == "retrocardiac":
        heart = cv2.dilate(chest.masks["heart"].astype(np.uint8), np.ones((9, 9), np.uint8)) > 0
        return [chest.masks["left lung base"] & heart]
    labels = finding.labels
    if finding.target == "effusion":  # a meniscus climbs along the whole lung
        labels = tuple(f"{side} lung" for side in SIDES if any(side in label.split() for label in labels))
    # A lesion may extend slightly beyond its zone, but stays inside the lung.
    reach = np.ones((2 * round(0.025 * chest.image.shape[0]) + 1, 3), np.uint8)
    masks = []
    for label in labels:
        lung = chest.masks[f"{side_of(label)} lung"]
        masks.append(lung & (cv2.dilate(chest.masks[label].astype(np.uint8), reach) > 0))
    return [np.logical_or.reduce(masks)] if finding.target == "edema" else masks


def draw_frontal(plan: StudyPlan, image: ImagePlan, seed: int) -> PhantomImage:
    """Draw a frontal image of a study with its lesions."""
    rng = generator(seed, image.image_id, "chest")
    large = any(finding.target == "cardiomegaly" for finding in plan.findings)
    chest = draw_chest(rng, _shape(rng), cardiomegaly=large, ap=image.view == "AP")
    picture = chest.image
    painted = []
    for number, finding in enumerate((*plan.findings, *plan.unreported)):
        mask = np.zeros(picture.shape, bool)
        if finding.target == "cardiomegaly":
            mask = chest.masks["heart"].copy()
        elif number not in plan.hidden:
            for side, region in enumerate(_regions(finding, chest)):
                brush = generator(seed, image.image_id, number, side)
                strength = plan.strength * (0.7 if finding.hedge == "weak" else 1.0)
                how = {"midline": chest.midline, "extent": float(brush.uniform(*EXTENT))}
                picture, new = lesions.paint(picture, plan.painted[number], region, brush, strength, **how)
                mask |= new
        painted.append(mask)
    return PhantomImage(picture, chest, painted)


def draw_lateral(seed: int, image_id: str, size: int = 512) -> np.ndarray:
    """Draw a rough lateral view, float32 (size, size). It only tests that lateral views are excluded."""
    rng = generator(seed, image_id, "lateral")
    y, x = np.mgrid[0:size, 0:size].astype(np.float32) / size
    body = np.clip(1.2 - np.hypot((x - 0.5) / 0.42, (y - 0.6) / 0.75) ** 4, 0, 1)
    lung = np.clip(1.3 - np.hypot((x - 0.5) / 0.30, (y - 0.42) / 0.33) ** 3, 0, 1)
    spine = np.exp(-(((x - 0.76 - 0.06 * np.sin(3 * y)) / 0.05) ** 2)) * (0.8 + 0.2 * np.sin(y * 120))
    heart = np.clip(1.2 - np.hypot((x - 0.40) / 0.14, (y - 0.58) / 0.15) ** 3, 0, 1)
    picture = 0.75 * body - 0.5 * np.clip(lung, 0, 1) * body + 0.25 * spine * body + 0.3 * heart
    picture = cv2.GaussianBlur(picture.astype(np.float32), (0, 0), 3) + 0.01 * rng.standard_normal(x.shape, np.float32)
    return np.clip(picture, 0.0, 1.0).astype(np.float32)


def _file_name(image: ImagePlan) -> str:
    ending = ".dcm" if image.fault else files.FILE_ENCODINGS.get(image.encoding, ".dcm")
    return f"images/{image.image_id}{ending}"


def _write_image(folder: Path, plan: StudyPlan, image: ImagePlan, seed: int) -> PhantomImage | None:
    path = folder / _file_name(image)
    if image.fault in ("missing", "empty", "text"):
        files.write_broken(path, files.Dataset(), image.fault)
        return None
    picture = None if image.fault == "lateral" else draw_frontal(plan, image, seed)
    if picture is not None and not image.fault and image.encoding in files.FILE_ENCODINGS:
        files.write_image_file(path, picture.image, image.encoding)
        return picture
    pixels, view = (draw_lateral(seed, image.image_id), "LL") if picture is None else (picture.image, image.view)
    encoding = "explicit_12" if image.fault else image.encoding
    names = {"image_id": image.image_id, "study_id": plan.study_id, "subject_id": plan.subject_id}
    ds = files.make_dicom(pixels, encoding, view=view, acquired=plan.acquired, **names)
    if image.fault:
        files.write_broken(path, ds, image.fault)
        return None
    ds.save_as(path, enforce_file_format=True)
    return picture


def _write_report(folder: Path, plan: StudyPlan, seed: int) -> tuple[str, Report]:
    rng = generator(seed, plan.study_id, "report")
    devices = int(rng.choice(3, p=[0.6, 0.3, 0.1]))
    report = write_report(list(plan.findings), rng, layout=plan.layout, devices=devices, view=plan.images[0].view)
    if plan.report == "no_report":
        return "", report
    if plan.report:
        blank = {"empty_report": "", "no_sections": " " * 33 + "FINAL REPORT\n INDICATION:  ___.\n \n FINDINGS: \n \n"}
        report = Report(blank[plan.report], plan.layout, [], [])
    name = f"reports/{plan.study_id}.txt"
    (folder / name).write_text(report.text, encoding="utf-8", newline="\n")
    return name, report


def _truth(plan: StudyPlan, report: Report, pictures: dict[str, PhantomImage | None]) -> dict:
    good = [picture for picture in pictures.values() if picture is not None]
    findings = []
    for number, row in enumerate([] if plan.report else report.findings):
        painted = bool(good) and all(picture.painted[number].any() for picture in good)
        findings.append({"finding": number, **row, "painted": painted, "painted_as": plan.painted[number]})
    visible_lesions = [plan.painted[i] for i, mask in enumerate(good[0].painted if good else ()) if mask.any()]
    images = []
    for image in plan.images:
        row = {"image_id": image.image_id, "view": image.view, "encoding": image.fault or image.encoding}
        row |= {"verdict": EXPECTED[image.fault], "shape": None, "ctr": None}
        if (picture := pictures[image.image_id]) is not None:
            row |= {"shape": list(picture.image.shape), "ctr": round(picture.chest.ctr, 4)}
        images.append(row)
    line = {"study_id": plan.study_id, "subject_id": plan.subject_id, "split": plan.split}
    line |= {"section_name": None if plan.report else report.section, "report_fault": plan.report or None}
    line |= {"strength": plan.strength, "findings": findings, "negatives": [] if plan.report else report.negatives}
    line |= {"shown": [lesion for lesion in LESIONS if lesion in visible_lesions]}
    unsaid = [{"target": f.target, "place": f.place, "labels": list(f.labels)} for f in plan.unreported]
    return line | {"unsaid": unsaid, "images": images}


def run(
    *, manifest: str, truth: str, truth_masks: str, options: PhantomSettings, seed: int, attrs: dict, threads: int = 1
) -> None:
    """Write the cohort (``manifest``, and ``images`` and ``reports`` in the manifest's folder) and its ground truth.

    ``manifest``: CSV with the columns :data:`MANIFEST`. ``truth``: a JSON line per study. ``truth_masks``: HDF5 with a
    row per valid frontal image: ``mask``, bit-packed (24, 512, 512), with the labels ``TRUTH_LABELS``, in the frame of
    ``fit_affine(..., "pad")``. The same options give the same bytes.
    """
    folder = Path(manifest).parent
    for name in ("images", "reports"):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir(parents=True)
    plans = make_plan(seed, options.subjects, options.studies) + healthy_plans(seed, options.healthy)
    cv2.setNumThreads(1)

    def make(plan: StudyPlan) -> tuple[list[dict], dict, list[tuple[str, np.ndarray]]]:
        pictures = {image.image_id: _write_image(folder, plan, image, seed) for image in plan.images}
        report_path, report = _write_report(folder, plan, seed)
        rows = []
        for image in plan.images:
            # The view is only given for file formats without a DICOM header.
            view = image.view if image.encoding in files.FILE_ENCODINGS and not image.fault else ""
            names = plan.subject_id, plan.study_id, image.image_id
            values = *names, _file_name(image), report_path, view, plan.split, plan.acquired
            rows.append(dict(zip(MANIFEST, values, strict=True)))
        masks = [(name, picture.truth(plan)) for name, picture in pictures.items() if picture is not None]
        return rows, _truth(plan, report, pictures), masks

    rows, lines = [], []
    attrs |= {"frame": "512 x 512, pad"}
    writing = ShardWriter(truth_masks, attrs=attrs, labels=TRUTH_LABELS, units={"mask": "boolean, packed along x"})
    with ThreadPoolExecutor(max(1, threads)) as pool, writing as writer:
        for study_rows, line, masks in progress(pool.map(make, plans), len(plans), "studies"):
            rows += study_rows
            lines.append(line)
            for image_id, mask in masks:
                writer.append(image_id, mask=mask)
    write_lines(truth, lines)
    write_table(manifest, pl.DataFrame(rows, schema=schema(MANIFEST)), MANIFEST)
