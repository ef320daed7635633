"""Write sheets of the editor lite: source images, edited images, and four times their difference with the placed boxes.

python experiments/semisyn_sheets.py FOLDER [--data ../shared/data/nih ../shared/data/nih_more] [--films 12]

Jobs are planned and placed with the paper's priors on images without text-mined findings, and edited by the stage's
code. FOLDER gets one PNG per finding, and figures.tsv with medians and 10th and 90th percentiles of the measures.
"""

import argparse
import csv
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from cxr.base.engines import Setup, engine_module
from cxr.base.paths import RESOURCES
from cxr.base.seeds import stable_hash
from cxr.base.vocabulary import FINDINGS, HEART, LUNGS
from cxr.geometry.affine import fit_affine, to_frame
from cxr.geometry.boxes import bounding_box, box_iou
from cxr.metrics import appearance, edits
from cxr.nets.map_net import MapNet
from cxr.semisyn.editing.edit_images import EditRefused, evaluate_edit, soft_mask
from cxr.semisyn.editing.engine import Job
from cxr.semisyn.editing.settings import EditingSettings
from cxr.semisyn.findings.catalogue import read_catalogue
from cxr.semisyn.placement import plan_jobs

SEED, SHAPE, VISIBLE, LEAK = 2026, (512, 512), 4.0, 0.5
MEASURES = ("iou_lesion", "iou_visible", "edge_ratio", "change_inside", "leak", "ctr_off", *appearance.FEATURES)


def read_films(folder: Path) -> list[tuple[str, str, np.ndarray]]:
    """Return (name, patient, frame) of the images without a finding and without a box."""
    with open(folder / f"{folder.name}.csv", newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["nih_labels"] == "No Finding"]
    films = []
    for row in sorted(rows, key=lambda row: row["image"]):
        boxes = json.loads(row.get("rsna_boxes") or "[]")
        if boxes or row["rsna_class"] not in ("", "Normal"):
            continue
        picture = cv2.imread(str(folder / "images" / row["image"]), cv2.IMREAD_GRAYSCALE)
        films.append((row["image"], row["patient_id"], to_frame(picture, fit_affine(picture.shape, 512, "pad"), 512)))
    return films


def draw_strip(source: np.ndarray, edited: np.ndarray, boxes: np.ndarray, caption: str) -> np.ndarray:
    """Return source, edited and difference side by side, uint8 (H, W, 3)."""
    difference = np.clip(128 + 4 * edits.difference_image(source, edited), 0, 255).astype(np.uint8)
    parts = [cv2.cvtColor(picture, cv2.COLOR_GRAY2BGR) for picture in (source, edited, difference)]
    for x1, y1, x2, y2 in np.rint(boxes).astype(int).tolist():
        cv2.rectangle(parts[2], (x1, y1), (x2, y2), (0, 160, 255), 1)
    cv2.putText(parts[2], caption, (6, 18), cv2.FONT_HERSHEY_SIMPLEX, 0.45, (0, 255, 255), 1, cv2.LINE_AA)
    return np.hstack(parts)


def measure_boxes(source: np.ndarray, organs: dict, job: Job, done, edited: np.ndarray, net: MapNet) -> list[dict]:
    """Return the measures of each box of an edited image."""
    difference = edits.difference_image(source, edited)
    if job.ratio is not None:
        masks = dict(zip(net.labels, net.masks(edited), strict=True))
        share = edits.cardiothoracic_ratio(masks[HEART], *(masks[name] for name in LUNGS))
        return [
            {"ctr_off": abs(job.ratio - share), "change_inside": edits.mean_change_inside(difference, done.support)}
        ]
    lungs, rows = np.stack([organs[name] for name in LUNGS]), []
    for number, (box, side) in enumerate(zip(job.boxes, job.sides, strict=True)):
        lung, inside = organs[f"{side} lung"], edits.mask_from_boxes(box, SHAPE)
        label = edits.tight_box_inside(box, lung)
        if label is None:
            continue
        lesion_boxes = [
            edits.tight_box(mask & lung & inside) for mask in (done.lesion, edits.visible_pixels(difference, VISIBLE))
        ]
        overlap = [
            0.0 if box_seen is None else float(box_iou(label[None], box_seen[None])[0, 0]) for box_seen in lesion_boxes
        ]
        numbers = appearance.lesion_features(edited, box, lungs, np.delete(job.boxes, number, axis=0))
        row = {
            "iou_lesion": overlap[0],
            "iou_visible": overlap[1],
            "edge_ratio": edits.edge_ratio(difference, box, lung),
        }
        row |= {
            "change_inside": edits.mean_change_inside(difference, inside & lung),
            "leak": edits.leaked_fraction(difference, edits.mask_from_boxes(job.boxes, SHAPE)),
        }
        rows.append(row | (dict(zip(appearance.FEATURES, numbers, strict=True)) if numbers is not None else {}))
    return rows


def main() -> None:
    """Draw the sheets and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--data", type=Path, nargs="+", default=[Path("../shared/data/nih"), Path("../shared/data/nih_more")]
    )
    parser.add_argument("--films", type=int, default=12, help="films on a sheet")
    parser.add_argument("--jobs", type=int, default=60, help="jobs that are measured")
    parser.add_argument("--findings", nargs="+", default=list(FINDINGS))
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    net, settings, catalogue = MapNet(RESOURCES / "organs/lite.onnx"), EditingSettings().as_dict(), read_catalogue()
    images = {name: (patient, frame) for path in arguments.data for name, patient, frame in read_films(path)}
    organs = {name: dict(zip(net.labels, net.masks(frame), strict=True)) for name, (_, frame) in images.items()}
    usable = {name: "0" for name, masks in organs.items() if all(masks[part].any() for part in (*LUNGS, HEART))}
    options = SimpleNamespace(findings=list(FINDINGS))
    engine = engine_module("cxr.semisyn.editing", "lite").load(options, Setup(), frozenset())
    plan_options = plan_jobs.PlanOptions(
        per_finding=arguments.jobs, sizes="auto", default_most=arguments.jobs, most_per_image=arguments.jobs, spare=0.0,
        samples=0, findings=arguments.findings, seed=SEED,
    )  # fmt: skip
    planned = plan_jobs.plan_jobs(usable, catalogue, plan_options)
    picture = np.array([0.0, 0.0, 512.0, 512.0])
    lines = [
        "finding\tjobs\tedited\trefused\t" + "\t".join(f"{name}_median\t{name}_10\t{name}_90" for name in MEASURES)
    ]
    for finding in arguments.findings:
        jobs = [
            plan_jobs.Job(row[0], row[3], row[2], row[5],
                            (*(np.array(bounding_box(organs[row[3]][part]), float) for part in (*LUNGS, HEART)),
                             picture))
            for row in planned if row[1] == finding
        ]  # fmt: skip
        numbers, strips, refused, edited = [], [], {}, 0
        for placed_job, rows in plan_jobs.place_jobs(catalogue.findings[finding], jobs, catalogue, "repo", SEED):
            if not rows:
                refused["no_room"] = refused.get("no_room", 0) + 1
                continue
            boxes, sides = np.array([row[9:13] for row in rows], float), tuple(row[3] for row in rows)
            mask = soft_mask(boxes, SHAPE, "none")
            seed, config = stable_hash(SEED, "edit", finding, placed_job.index), settings["configs"]["lite"]
            job = Job(placed_job.job_id, finding, placed_job.prompt, boxes, sides, rows[0][-1], mask, seed, config)
            source = images[placed_job.image_id][1]
            edited_image = engine.edit(source, organs[placed_job.image_id], job)
            try:
                accepted = evaluate_edit(source, organs[placed_job.image_id], job, edited_image, LEAK)
            except EditRefused as fault:
                refused[fault.reason] = refused.get(fault.reason, 0) + 1
                continue
            edited += 1
            numbers += measure_boxes(source, organs[placed_job.image_id], job, edited_image, accepted.image, net)
            if len(strips) < arguments.films:
                strips.append(draw_strip(source, accepted.image, boxes, job.prompt))
        rows = [np.hstack(strips[first : first + 2]) for first in range(0, len(strips) - 1, 2)]
        cv2.imwrite(str(arguments.folder / f"{finding}.png"), np.vstack(rows))
        cells = []
        for name in MEASURES:
            values = np.array([row[name] for row in numbers if np.isfinite(row.get(name, np.nan))])
            cells += [f"{value:.3f}" for value in np.quantile(values, (0.5, 0.1, 0.9))] if len(values) else ["", "", ""]
        lines.append("\t".join([finding, str(len(jobs)), str(edited), json.dumps(refused), *cells]))
        print(lines[-1], flush=True)
    (arguments.folder / "figures.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
