"""The editor lite on real healthy films: where it paints, how that looks beside real boxes, each finding's own measure.

What is asked of each is in resources/semisyn/CARD.md and docs/measurements/semisyn.md.
"""

import csv
import json
from types import SimpleNamespace

import cv2
import numpy as np
import pytest

from cxr.base.engines import Setup, engine_module
from cxr.base.paths import RESOURCES
from cxr.base.vocabulary import FINDINGS, HEART, LUNGS
from cxr.geometry.affine import fit_affine, points_to_frame, to_frame
from cxr.geometry.boxes import bounding_box, box_iou
from cxr.metrics import appearance, edits
from cxr.nets.map_net import MapNet
from cxr.semisyn.editing.engine import Job
from cxr.semisyn.editing.settings import EditingSettings

SETTINGS = EditingSettings().as_dict()
SHAPE = (512, 512)
FILMS = 24
PLACES = {
    "opacity": (0.1, 0.45, 0.9, 0.92),
    "consolidation": (0.15, 0.5, 0.95, 0.95),
    "edema": (0.1, 0.25, 0.95, 0.85),
    "atelectasis": (0.05, 0.6, 0.9, 1.0),
    "effusion": (0.0, 0.62, 1.0, 1.15),
    "pneumothorax": (0.0, 0.0, 0.8, 0.4),
}
PROMPTS = {"pneumothorax": "Right apical pneumothorax.", "atelectasis": "Right basilar atelectasis."}


@pytest.fixture(scope="module")
def films(shared) -> list[tuple[np.ndarray, dict]]:
    """Frames with their organs: films that nobody put a box on and text mining calls free of findings."""
    folder, net = shared / "data" / "nih", MapNet(RESOURCES / "organs/lite.onnx")
    with open(folder / "nih.csv", newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["nih_labels"] == "No Finding" and row["rsna_boxes"] == "[]"]
    found = []
    for row in sorted(rows, key=lambda row: row["image"]):
        picture = cv2.imread(str(folder / "images" / row["image"]), cv2.IMREAD_GRAYSCALE)
        frame = to_frame(picture, fit_affine(picture.shape, 512, "pad"), 512)
        organs = dict(zip(net.labels, net.masks(frame), strict=True))
        if np.isfinite(edits.cardiothoracic_ratio(organs[HEART], *(organs[name] for name in LUNGS))):
            found.append((frame, organs))
    return found[:FILMS]


@pytest.fixture(scope="module")
def editor():
    options = SimpleNamespace(findings_file="", findings=list(FINDINGS))
    return engine_module("cxr.semisyn.editing", "lite").load(options, Setup(), frozenset())


def box_on(organs: dict, finding: str, side: str) -> np.ndarray:
    """Return a box in fractions of the lung's, from its lateral edge."""
    x1, y1, x2, y2 = bounding_box(organs[f"{side} lung"])
    left, top, right, bottom = PLACES[finding]
    left, right = (left, right) if side == "right" else (1 - right, 1 - left)
    return np.array([x1 + left * (x2 - x1), y1 + top * (y2 - y1), x1 + right * (x2 - x1), y1 + bottom * (y2 - y1)])


def edited(editor, films, finding: str):
    """Yield (frame, organs, box, side, painted film) of each film, the sides in turn."""
    for number, (frame, organs) in enumerate(films):
        side = ("right", "left")[number % 2]
        box = box_on(organs, finding, side)
        prompt = PROMPTS.get(finding, finding).replace("Right", side.capitalize())
        config = SETTINGS["configs"]["lite"]
        job = Job(f"{finding}-{number}", finding, prompt, box[None], (side,), None, None, number, config)
        yield frame, organs, box, side, editor.edit(frame, organs, job)


def iou(first: np.ndarray | None, second: np.ndarray | None) -> float:
    return 0.0 if first is None or second is None else float(box_iou(first[None], second[None])[0, 0])


@pytest.mark.parametrize(
    ("finding", "tenth", "median"),
    [
        ("opacity", 0.75, 0.85),
        ("consolidation", 0.75, 0.85),
        ("edema", 0.75, 0.85),
        ("effusion", 0.75, 0.85),
        ("atelectasis", 0.0, 0.70),
        ("pneumothorax", 0.0, 0.70),
    ],
)
def test_the_lesion_agrees_with_its_box_and_ends_inside(editor, films, finding, tenth, median):
    agreement, edges = [], []
    for frame, organs, box, side, done in edited(editor, films, finding):
        lung, inside = organs[f"{side} lung"], edits.mask_from_boxes(box, SHAPE)
        difference = edits.difference_image(frame, np.rint(done.image))
        assert edits.largest_change_outside(difference, inside) == 0
        assert edits.largest_change_outside(difference, done.support) == 0
        assert not (done.lesion & ~done.support).any()
        agreement.append(iou(edits.tight_box_inside(box, lung), edits.tight_box(done.lesion & lung)))
        edges.append(edits.edge_ratio(difference, box, lung))
    assert np.quantile(agreement, 0.1) >= tenth
    assert np.median(agreement) >= median
    assert np.nanmedian(edges) <= 0.25


def real_features(shared) -> np.ndarray:
    """Return the six numbers of people's boxes."""
    folder, net = shared / "data" / "nih", MapNet(RESOURCES / "organs/lite.onnx")
    found = []
    with open(folder / "nih.csv", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            people = json.loads(row["rsna_boxes"])
            if not people or row["rsna_class"] in ("Normal", "No Lung Opacity / Not Normal"):
                continue
            picture = cv2.imread(str(folder / "images" / row["image"]), cv2.IMREAD_GRAYSCALE)
            affine = fit_affine(picture.shape, 512, "pad")
            frame = to_frame(picture, affine, 512)
            masks = dict(zip(net.labels, net.masks(frame), strict=True))
            lungs = np.stack([masks[name] for name in LUNGS])
            corners = [[[b["x"], b["y"]], [b["x"] + b["w"], b["y"] + b["h"]]] for b in people]
            boxes = np.array([points_to_frame(np.array(c, float), affine).ravel() for c in corners])
            for index, box in enumerate(boxes):
                if lungs.any(axis=(1, 2)).all():
                    found.append(appearance.lesion_features(frame, box, lungs, np.delete(boxes, index, axis=0)))
    return np.array([row for row in found if row is not None])


def test_real_boxes_lose_detail_and_are_brighter_than_the_mirrored_place(shared):
    medians = dict(zip(appearance.FEATURES, np.median(real_features(shared), axis=0), strict=True))
    assert 0.3 <= medians["contrast"] <= 0.9
    assert all(-0.3 <= medians[name] <= 0 for name in ("ratio_fine", "ratio_mid"))
    assert -0.45 <= medians["ratio_coarse"] <= 0


def test_painted_opacities_lose_detail_as_real_ones_do_and_are_seen(editor, films):
    found = []
    for finding in ("opacity", "consolidation"):
        for frame, organs, box, _, done in edited(editor, films, finding):
            lungs = np.stack([organs[name] for name in LUNGS])
            before, after = (appearance.lesion_features(image, box, lungs) for image in (frame, np.rint(done.image)))
            if after is not None:
                found.append((before, after))
    before, after = (np.array(part) for part in zip(*found, strict=True))
    medians = dict(zip(appearance.FEATURES, np.median(after, axis=0), strict=True))
    assert 0.4 <= medians["contrast"] <= 0.9
    assert all(-0.3 <= medians[name] <= 0 for name in ("ratio_fine", "ratio_mid"))
    assert -0.45 <= medians["ratio_coarse"] <= 0
    assert np.median((after - before)[:, 0]) >= 0.2


@pytest.mark.parametrize("finding", ["opacity", "consolidation"])
def test_ribs_stay_under_a_lesion(editor, films, finding):
    slopes, fits = [], []
    for number, (frame, organs, box, side, done) in enumerate(edited(editor, films, finding)):
        smooth = cv2.GaussianBlur(frame, (0, 0), 10)
        prompt = PROMPTS.get(finding, finding)
        job = Job("x", finding, prompt, box[None], (side,), None, None, number, SETTINGS["configs"]["lite"])
        again = editor.edit(smooth, organs, job)
        inside = edits.mask_from_boxes(box, SHAPE) & organs[f"{side} lung"]
        low = again.image - smooth
        detail = (frame - cv2.GaussianBlur(frame.astype(np.float64), (0, 0), 10))[inside]
        remaining_detail = detail + (done.image - frame - low)[inside]
        slopes.append(np.cov(detail, remaining_detail)[0, 1] / detail.var(ddof=1))
        fits.append(np.corrcoef(detail, remaining_detail)[0, 1])
    assert 0.6 <= np.median(slopes) <= 1.0
    assert np.median(fits) >= 0.9


@pytest.mark.slow
def test_the_heart_reaches_the_ratio_asked_for(editor, films):
    net, off = MapNet(RESOURCES / "organs/lite.onnx"), []
    for number, (frame, organs) in enumerate(films):
        before = edits.cardiothoracic_ratio(organs[HEART], *(organs[name] for name in LUNGS))
        goal = max(0.5, before + 0.03) + 0.01 * (number % 8)
        x1, y1, x2, y2 = bounding_box(organs[HEART])
        box = np.array([[x1, y1, x2, y2]], float)
        config = SETTINGS["configs"]["lite"]
        done = editor.edit(frame, organs, Job("x", "cardiomegaly", "", box, ("",), goal, None, number, config))
        masks = dict(zip(net.labels, net.masks(np.rint(done.image).astype(np.uint8)), strict=True))
        off.append(abs(goal - edits.cardiothoracic_ratio(masks[HEART], *(masks[name] for name in LUNGS))))
    assert np.median(off) <= 0.02
    assert np.quantile(off, 0.9) <= 0.04


def test_an_effusion_hides_the_costophrenic_edge(editor, films):
    def slope(image: np.ndarray) -> np.ndarray:
        return cv2.Sobel(cv2.GaussianBlur(np.asarray(image, np.float32), (0, 0), 2.0), cv2.CV_32F, 0, 1)

    left = []
    for frame, organs, _, side, done in edited(editor, films, "effusion"):
        lung = organs[f"{side} lung"]
        x1, y1, x2, y2 = bounding_box(lung)
        lowest = lung & ~np.roll(lung, -1, axis=0)
        lowest[: (y1 + 2 * y2) // 3] = False
        middle = (x1 + x2) // 2
        lowest[:, middle:] &= side == "left"
        lowest[:, :middle] &= side == "right"
        old, new = slope(frame)[lowest], slope(done.image)[lowest]
        left.append((old * new).sum() / (old**2).sum())
    assert np.median(left) <= 0.4


def band(image: np.ndarray, fine: float, coarse: float) -> np.ndarray:
    image = np.asarray(image, np.float32)
    return cv2.GaussianBlur(image, (0, 0), fine) - cv2.GaussianBlur(image, (0, 0), coarse)


def test_a_pneumothorax_is_darker_beyond_its_line_and_has_ribs_but_no_vessels(editor, films):
    kept, ribs, darker = [], [], []
    for frame, _, _, _, done in edited(editor, films, "pneumothorax"):
        air = cv2.erode(done.lesion.astype(np.uint8), np.ones((9, 9))) > 0
        if air.sum() < 100:
            continue
        before, after = (band(image, 0.7, 2.0)[air] for image in (frame, done.image))
        kept.append((after**2).mean() / (before**2).mean())
        before, after = (band(image, 4.0, 14.0)[air] for image in (frame, done.image))
        ribs.append(np.polyfit(before, after, 1)[0])
        darker.append(done.image[air].mean() / frame[air].mean() - 1)
    assert len(kept) >= 15
    assert np.median(kept) <= 0.5
    assert np.median(ribs) >= 0.75
    assert -0.12 <= np.median(darker) <= -0.02


def test_a_larger_heart_leaves_chest_wall_and_spine_where_they_were(editor, films):
    config = SETTINGS["configs"]["lite"]
    for frame, organs in films[:8]:
        right, left, heart = (bounding_box(organs[name]) for name in (*LUNGS, HEART))
        goal = min(0.75, (heart[2] - heart[0]) / (left[2] - right[0]) + 0.1)
        job = Job("x", "cardiomegaly", "", np.array([heart], float), ("",), goal, None, 0, config)
        moved = np.abs(edits.difference_image(frame, np.rint(editor.edit(frame, organs, job).image)))
        assert moved.max() > 10
        assert moved[:, : right[0]].max() == moved[:, left[2] :].max() == 0
        lower = moved[heart[1] + (heart[3] - heart[1]) // 2 : heart[3]]
        spine = round((right[0] + left[2]) / 2)
        assert lower[:, spine - 3 : spine + 3].mean() < 0.25 * lower[:, right[0] : left[2]].mean()


@pytest.mark.parametrize("finding", ["effusion", "atelectasis", "pneumothorax"])
def test_the_other_findings_leave_the_hearts_ratio_alone(editor, films, finding):
    net, shifts = MapNet(RESOURCES / "organs/lite.onnx"), []
    for _, organs, _, _, done in edited(editor, films, finding):
        masks = dict(zip(net.labels, net.masks(np.rint(done.image).astype(np.uint8)), strict=True))
        before, after = (
            edits.cardiothoracic_ratio(one[HEART], *(one[name] for name in LUNGS)) for one in (organs, masks)
        )
        shifts.append(after - before)
    assert np.median(np.abs(shifts)) <= 0.02  # the accuracy asked of cardiomegaly itself


def test_only_air_darkens_and_only_water_brightens(editor, films):
    for finding, sign in (("pneumothorax", -1), ("effusion", 1), ("atelectasis", 1)):
        means = [
            edits.difference_image(frame, done.image)[done.lesion & organs[f"{side} lung"] & ~organs[HEART]].mean()
            for frame, organs, _, side, done in edited(editor, films, finding)
        ]
        assert np.quantile(sign * np.array(means), 0.1) > 0
