"""Training data of the detector: lesions painted on healthy X-rays and on synthetic X-rays, and human boxes.

Boxes are (class index, x1, y1, x2, y2) in cells of the net's grid. Every random choice depends only on the seed and the
sample's number.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

import cv2
import numpy as np
import polars as pl
from net import CLASSES, GRID, SIZE

from cxr.detection.augmentation import augment_image
from cxr.geometry.affine import fit_affine, to_frame
from cxr.geometry.boxes import box_iou
from cxr.imaging.phantom.chest import draw_chest
from cxr.nets.map_net import MapNet
from cxr.painting.lesions import paint

FRAME = 512
CELL = FRAME / GRID
PAINTED = {
    "opacity": ("Lung Opacity",),
    "consolidation": ("Lung Opacity", "Consolidation"),
    "pneumonia": ("Lung Opacity", "Infiltration"),
    "edema": ("Lung Opacity", "ILD"),
    "atelectasis": ("Atelectasis",),
    "effusion": ("Pleural effusion",),
    "nodule": ("Nodule/Mass",),
}
"""{painted lesion: its classes}. Airspace diseases are also opacities, because readers of RSNA and NIH call them so."""
CHANCES = {
    "opacity": 0.22,
    "consolidation": 0.15,
    "pneumonia": 0.17,
    "edema": 0.10,
    "atelectasis": 0.10,
    "effusion": 0.14,
    "nodule": 0.12,
}
AIRSPACE = ("opacity", "consolidation", "pneumonia")
BANDS = ((0.0, 1.0), (0.0, 1.0), (0.0, 0.40), (0.15, 0.40), (0.15, 0.68), (0.40, 0.68), (0.40, 1.0), (0.68, 1.0))
"""Parts of a lung in which a lesion is painted, from apex (0) to base (1)."""
NOT_HEALTHY = Path(__file__).with_name("not_healthy.csv")
"""X-rays whose image contradicts "No Finding", with the reason. They were inspected before any detection."""
NORMAL = "Normal"
TEXT_MINED = {
    "Pneumonia": "Lung Opacity",
    "Consolidation": "Consolidation",
    "Infiltration": "Infiltration",
    "Atelectasis": "Atelectasis",
    "Edema": "ILD",
    "Fibrosis": "ILD",
    "Effusion": "Pleural effusion",
    "Nodule": "Nodule/Mass",
    "Mass": "Nodule/Mass",
    "Cardiomegaly": "Cardiomegaly",
}
"""{label of NIH's text mining: class that is then somewhere in the X-ray}."""
ABSENT = ("Atelectasis", "ILD", "Pleural effusion", "Nodule/Mass", "Cardiomegaly")
"""Classes that an X-ray lacks if the text mining names none of them. Airspace disease has too many names for this."""
OPACITY_LABELS = ("Pneumonia", "Infiltrate", "Lung Opacity")


@dataclass
class Sample:
    """An image, uint8 (256, 256), its boxes in cells, which classes are known, and its patient.

    ``known``: indices of classes of which all boxes are given; ``film``: {other class: whether the X-ray has it}.
    """

    image: np.ndarray
    boxes: list[tuple]
    patient: str
    kind: str
    name: str = ""
    known: list[int] = field(default_factory=lambda: list(range(len(CLASSES))))
    film: dict[int, bool] = field(default_factory=dict)


@dataclass
class Chest:
    """An image without lesions, float32 (512, 512) in 0..1, and its right and left lung, bool (512, 512)."""

    image: np.ndarray
    right: np.ndarray
    left: np.ndarray
    patient: str
    boxes: list[tuple] = field(default_factory=list)
    kind: str = ""
    name: str = ""


def shrink(image: np.ndarray) -> np.ndarray:
    """Return a frame, uint8 or float in 0..1, as uint8 at the side of the net's input."""
    picture = np.clip(image * 255 + 0.5, 0, 255).astype(np.uint8) if image.dtype != np.uint8 else image
    return cv2.resize(picture, (SIZE, SIZE), interpolation=cv2.INTER_AREA)


def _read(path: Path) -> np.ndarray:
    return cv2.resize(cv2.imread(str(path), cv2.IMREAD_GRAYSCALE), (FRAME, FRAME), interpolation=cv2.INTER_AREA)


def opacity_boxes(row: dict) -> np.ndarray | None:
    """Return the boxes (N, 4) of opacities in original pixels on which NIH and RSNA agree, None for unsuitable images.

    RSNA's boxes are the truth if there are any. NIH's boxes are added if their IoU with all of these is below 0.3. An
    image without boxes is unsuitable, and one that RSNA calls Normal or Not Normal.
    """
    corners = {
        name: np.array(
            [
                [b["x"], b["y"], b["x"] + b["w"], b["y"] + b["h"]]
                for b in json.loads(row[name])
                if b["label"] in OPACITY_LABELS
            ]
        ).reshape(-1, 4)
        for name in ("nih_boxes", "rsna_boxes")
    }
    if row["rsna_class"] not in (None, "Lung Opacity"):
        return None
    nih, rsna = corners["nih_boxes"], corners["rsna_boxes"]
    boxes = np.concatenate([rsna, nih[box_iou(nih, rsna).max(axis=1, initial=0) < 0.3]])
    if len(boxes) > 1:  # readers of NIH sometimes gave one region two names
        keep = [i for i in range(len(boxes)) if not (box_iou(boxes[i : i + 1], boxes[:i]) > 0.6).any()]
        boxes = boxes[keep]
    return boxes if len(boxes) else None


def real(folder: Path) -> list[Sample]:
    """Return the NIH images with boxes of opacities. Their other classes are unknown."""
    found = []
    for row in pl.read_csv(folder / "nih.csv").sort("image").iter_rows(named=True):
        boxes = opacity_boxes(row) if row["nih_labels"] != "No Finding" else None
        if boxes is not None:
            scaled = boxes * (GRID / np.array([row["width"], row["height"]] * 2))
            image = shrink(_read(folder / "images" / row["image"]))
            found.append(Sample(image, [(0, *box) for box in scaled], str(row["patient_id"]), "nih", row["image"], [0]))
    return found


def more(folder: Path) -> list[dict]:
    """Return the rows of the X-rays without boxes, sorted by name."""
    return pl.read_csv(folder / "nih_more.csv").sort("image").rows(named=True)


def healthy(nih: Path, nih_more: Path, organs: Path) -> list[Chest]:
    """Return the X-rays without a finding of both folders, with their lungs.

    The kinds "boxed set" and "text-mined" have NIH's "No Finding" and are not contradicted by RSNA. The kind "RSNA
    normal" has any NIH label. X-rays of :data:`NOT_HEALTHY` are left out, except two that the net was trained with
    before they were listed. So are X-rays whose lungs the organ net does not find.
    """
    net, found = MapNet(organs), []
    wrong = set(pl.read_csv(NOT_HEALTHY).filter(pl.col("detector") == "not learnt from")["image"])
    boxed = [("boxed set", nih, row) for row in pl.read_csv(nih / "nih.csv").sort("image").iter_rows(named=True)]
    for kind, folder, row in boxed + [("text-mined", nih_more, row) for row in more(nih_more)]:
        without = row["nih_labels"] == "No Finding" and row["rsna_class"] in (None, NORMAL)
        normal = kind == "text-mined" and row["rsna_class"] == NORMAL
        if not (without or normal) or Path(row["image"]).stem in wrong:
            continue
        image = _read(folder / "images" / row["image"])
        masks = dict(zip(net.labels, net.masks(image), strict=True))
        right, left = masks["right lung"], masks["left lung"]
        if min(right.sum(), left.sum()) > 0.03 * FRAME**2:
            picture, patient = image.astype(np.float32) / 255, str(row["patient_id"])
            kind = "RSNA normal" if normal else kind
            found.append(Chest(picture, right, left, patient, kind=kind, name=row["image"]))
    return found


def labelled(folder: Path) -> list[Sample]:
    """Return the X-rays with labels but no boxes, from NIH's text mining, and from RSNA where it saw no opacity."""
    found = []
    for row in more(folder):
        if row["nih_labels"] == "No Finding" or row["rsna_class"] == NORMAL:
            continue
        names = {TEXT_MINED[label] for label in row["nih_labels"].split("|") if label in TEXT_MINED}
        film = {CLASSES.index(name): True for name in names} | {
            CLASSES.index(name): False for name in ABSENT if name not in names
        }
        clear = row["rsna_class"] is not None  # No Lung Opacity / Not Normal
        if clear:
            film.pop(0, None)
        image, known = shrink(_read(folder / "images" / row["image"])), [0] if clear else []
        found.append(Sample(image, [], str(row["patient_id"]), "film", row["image"], known, film))
    return found


def _band(lung: np.ndarray, low: float, high: float) -> np.ndarray:
    rows = np.nonzero(lung.any(axis=1))[0]
    top, height = rows[0], rows[-1] + 1 - rows[0]
    part = np.zeros_like(lung)
    span = slice(round(top + low * height), round(top + high * height))
    part[span] = lung[span]
    return part


def mask_boxes(mask: np.ndarray, right: np.ndarray, left: np.ndarray) -> np.ndarray:
    """Return boxes (N, 4) in frame pixels around a lesion without small parts, one for each lung that contains it."""
    count, labels, stats, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=8)
    sizes = stats[:, cv2.CC_STAT_AREA]
    large = np.isin(labels, [i for i in range(1, count) if sizes[i] >= 0.05 * mask.sum()])
    boxes = []
    for lung in (right, left):
        rows, columns = np.nonzero(large & lung)
        if len(rows) >= 0.1 * max(mask.sum(), 1) and len(rows) >= 20:
            boxes.append([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])
    return np.array(boxes, np.float64).reshape(-1, 4)


def paint_sample(chest: Chest, rng: np.random.Generator, kind: str) -> Sample:
    """Paint none to three lesions on a chest, and sometimes a line or a scar."""
    image, boxes = chest.image, list(chest.boxes)
    used = np.zeros(image.shape, bool)
    both = chest.right | chest.left
    midline = (np.nonzero(chest.right)[1].mean() + np.nonzero(chest.left)[1].mean()) / 2
    if rng.random() < 0.25:
        image, _ = paint(image, str(rng.choice(["device", "scar"])), both, rng, midline=midline)
    for _ in range(int(rng.choice(4, p=[0.12, 0.5, 0.28, 0.1]))):
        lesion = str(rng.choice(list(CHANCES), p=list(CHANCES.values())))
        lung = chest.right if rng.random() < 0.5 else chest.left
        region = _band(lung, *BANDS[int(rng.integers(len(BANDS)))])
        if lesion == "nodule":  # its size is a fraction of the region's, so the region is a whole lung
            region = lung
        if lesion in ("edema", "effusion"):
            region = both if rng.random() < (0.75 if lesion == "edema" else 0.4) else lung
        if (region & used).sum() > 0.2 * region.sum():
            continue
        mask = np.zeros_like(used)
        again = lesion in AIRSPACE and rng.random() < 0.25
        for _ in range(int(rng.integers(2, 5)) if again else 1):  # a diffuse lesion gets one box
            image, part = paint(image, lesion, region, rng, float(rng.uniform(0.5, 1.4)), midline=midline)
            mask |= part
        used |= mask
        for box in mask_boxes(mask, chest.right, chest.left) / CELL:
            boxes += [(CLASSES.index(name), *box) for name in PAINTED[lesion]]
    return Sample(shrink(image), boxes, chest.patient, kind)


def external(folder: Path) -> list[Sample]:
    """Return the COVID-19 X-rays with radiologists' outlines of ground glass or consolidation. They are test data."""
    found = []
    for row in pl.read_csv(folder / "covid.csv").sort("image").iter_rows(named=True):
        names = json.loads(row["masks"] or "{}")
        lesions = [names[name] for name in ("ground_glass_opacity", "consolidation") if name in names]
        if not lesions or not {"lung_right", "lung_left"} <= names.keys():
            continue
        picture = cv2.imread(str(folder / "images" / row["image"]), cv2.IMREAD_GRAYSCALE)
        affine = fit_affine(picture.shape, FRAME, "pad")

        def mask(path: str, shape=picture.shape, affine=affine) -> np.ndarray:
            drawn = cv2.imread(str(folder / path), cv2.IMREAD_GRAYSCALE)
            drawn = cv2.resize(drawn, shape[::-1], interpolation=cv2.INTER_NEAREST)
            return to_frame((drawn > 0).astype(np.uint8), affine, FRAME, nearest=True) > 0

        lungs = mask(names["lung_right"]), mask(names["lung_left"])
        boxes = np.concatenate([mask_boxes(mask(path), *lungs) for path in lesions]) / CELL
        image = shrink(to_frame(picture, affine, FRAME))
        found.append(Sample(image, [(0, *b) for b in boxes], str(row["patient_id"]), "covid", row["image"], [0]))
    return [sample for sample in found if sample.boxes]


def painted(chests: list[Chest], count: int, seed: int, kind: str) -> list[Sample]:
    """Return ``count`` samples with painted lesions. The chests are used in turn."""
    return [
        paint_sample(chests[number % len(chests)], np.random.default_rng([seed, number]), kind)
        for number in range(count)
    ]


def phantoms(count: int, seed: int) -> list[Sample]:
    """Return ``count`` synthetic chests with painted lesions. One in six has a large heart, which gets a box."""
    found = []
    for number in range(count):
        rng = np.random.default_rng([seed, 1, number])
        large = rng.random() < 1 / 6
        drawn = draw_chest(rng, FRAME, cardiomegaly=large, ap=bool(rng.random() < 0.5))
        rows, columns = np.nonzero(drawn.masks["heart"])
        heart = np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]) / CELL
        boxes = [(CLASSES.index("Cardiomegaly"), *heart)] if large else []
        chest = Chest(drawn.image, drawn.masks["right lung"], drawn.masks["left lung"], f"phantom {number}", boxes)
        found.append(paint_sample(chest, rng, "phantom"))
    return found


def augment(source: Sample, rng: np.random.Generator) -> tuple[np.ndarray, list[tuple]]:
    """Return a moved copy of a sample with another exposure: float32 (256, 256) in 0..1, and its boxes in cells."""
    return augment_image(source.image, source.boxes, GRID, rng)
