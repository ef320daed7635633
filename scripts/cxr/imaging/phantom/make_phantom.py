"""The phantom stage: writes the embedded cohort's image files, reports, manifest and truth."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
import polars as pl

from cxr.base.columns import Column, schema
from cxr.base.hdf5 import ShardWriter
from cxr.base.jobs import progress
from cxr.base.tables import write_lines, write_table
from cxr.base.vocabulary import LESIONS
from cxr.imaging.phantom import files
from cxr.imaging.phantom.cohort import TRUTH_LABELS, PhantomImage, draw_frontal, draw_lateral
from cxr.imaging.phantom.plan import ImagePlan, StudyPlan, generator, healthy_plans, make_plan
from cxr.imaging.phantom.prose import Report, write_report
from cxr.imaging.phantom.settings import PhantomSettings

EXPECTED = {
    "": "accept", "lateral": "not_frontal", "truncated": "undecodable", "empty": "empty_file", "text": "not_dicom",
    "ct": "wrong_modality", "missing": "missing_file", "knee": "wrong_body_part", "no_view": "unknown_view",
    "multi_frame": "multi_frame",
}  # fmt: skip
"""The expected outcome of each fault: ``accept`` or a code of ``exclusions.REASONS``."""
MANIFEST = {
    "subject_id": Column(pl.String, "Patient."),
    "study_id": Column(pl.String, "Study."),
    "image_id": Column(pl.String, "Image."),
    "image_path": Column(pl.String, "Image file, relative to the manifest."),
    "report_path": Column(pl.String, "Report file, relative to the manifest."),
    "view": Column(pl.String, "View, by its code; empty where the image's own header tells it, or nothing does."),
    "split": Column(pl.String, "train, validate or test."),
    "acquired": Column(pl.String, "Time of acquisition, text that sorts by time."),
}


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
    return {
        "study_id": plan.study_id,
        "subject_id": plan.subject_id,
        "split": plan.split,
        "section_name": None if plan.report else report.section,
        "report_fault": plan.report or None,
        "strength": plan.strength,
        "findings": findings,
        "negatives": [] if plan.report else report.negatives,
        "shown": [lesion for lesion in LESIONS if lesion in visible_lesions],
        "unsaid": [{"target": f.target, "place": f.place, "labels": list(f.labels)} for f in plan.unreported],
        "images": [
            {
                "image_id": image.image_id,
                "view": image.view,
                "encoding": image.fault or image.encoding,
                "verdict": EXPECTED[image.fault],
                "shape": None if (picture := pictures[image.image_id]) is None else list(picture.image.shape),
                "ctr": None if picture is None else round(picture.chest.ctr, 4),
            }
            for image in plan.images
        ],
    }


def run(
    *, manifest: str, truth: str, truth_masks: str, options: PhantomSettings, seed: int, attrs: dict, threads: int = 1
) -> None:
    """Write the cohort beside ``manifest`` (folders ``images`` and ``reports``) and the truth.

    ``manifest``: CSV with :data:`MANIFEST`. ``truth``: one JSON line per study. ``truth_masks``: HDF5 with one row per
    good frontal image, ``mask`` packed bool (24, 512, 512) in the frame of ``geometry.fit_affine(..., "pad")``, labels
    ``cohort.TRUTH_LABELS``. The same options give the same bytes.
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
            # A DICOM header holds the view; other file formats cannot.
            view = image.view if image.encoding in files.FILE_ENCODINGS and not image.fault else ""
            names = plan.subject_id, plan.study_id, image.image_id
            values = *names, _file_name(image), report_path, view, plan.split, plan.acquired
            rows.append(dict(zip(MANIFEST, values, strict=True)))
        masks = [(name, picture.truth(plan)) for name, picture in pictures.items() if picture is not None]
        return rows, _truth(plan, report, pictures), masks

    rows: list[dict] = []
    lines: list[dict] = []
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
