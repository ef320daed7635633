"""Measure the speed of AP, of its bootstrap and of the detector's training, as ratios of CPU seconds.

    python benchmarks/detection.py

All measurements run on one core in the same run. The targets are:

* AP of 3,000 images is at least 3 times as fast as pycocotools.
* 1,000 replicates of map1070 take at most as long as 30 evaluations.
* The engine lite of semisyn_detectors trains on at least as many images per second as resources/boxes/train.py.
"""

import argparse
import contextlib
import io
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

from cxr.metrics.average_precision import MatchedPredictions, average_precision, match_predictions  # noqa: E402
from cxr.metrics.matching import Boxes  # noqa: E402
from cxr.metrics.paired import draw_patient_weights  # noqa: E402

IMAGES, CLASSES, REPLICATES, UPDATES = 3000, 7, 1000, 12
IOUS = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
Data = list[tuple[Boxes, np.ndarray, Boxes]]


def data(images: int) -> Data:
    """Return (predicted boxes, confidences, true boxes) of each class, with about 10 predictions per image in total."""
    random = np.random.default_rng(1)
    found = []
    for _ in range(CLASSES):
        true = np.repeat(np.arange(images), random.choice([0, 0, 0, 1, 2], images))
        low = random.uniform(0, 350, (len(true), 2))
        truth = np.concatenate([low, low + random.uniform(40, 160, low.shape)], axis=1)
        near = random.integers(0, len(truth), len(truth))
        anywhere = np.sort(random.integers(0, images, images))
        low = random.uniform(0, 350, (images, 2))
        false = np.concatenate([low, low + random.uniform(40, 160, low.shape)], axis=1)
        image = np.concatenate([true[near], anywhere])
        found_ones = truth[near] + random.uniform(-15, 15, (len(near), 4))
        boxes = np.concatenate([found_ones, false])
        confidence = np.concatenate([random.beta(4, 3, len(near)), random.beta(2, 5, images)])
        found.append((Boxes(image, boxes), confidence, Boxes(true, truth)))
    return found


def ours(held: Data, images: int) -> tuple[float, list[MatchedPredictions]]:
    """Return map1070 and the matched predictions of each class."""
    found = [match_predictions(*part, images, IOUS) for part in held]
    return float(np.mean([average_precision(one).mean() for one in found])), found


def coco(held: Data, images: int) -> float:
    """Return map1070 by pycocotools. The time of its set-up is measured too."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    def rows(number: int, boxes: Boxes, confidence: np.ndarray | None = None) -> list[dict]:
        sides = np.concatenate([boxes.corners[:, :2], boxes.corners[:, 2:] - boxes.corners[:, :2]], axis=1)
        found = []
        for place, (image, box) in enumerate(zip(boxes.image.tolist(), sides.tolist(), strict=True)):
            row = {"image_id": image, "category_id": number, "bbox": box, "iscrowd": 0, "area": box[2] * box[3]}
            found.append(row if confidence is None else row | {"score": float(confidence[place])})
        return found

    def made(annotations: list[dict]) -> COCO:
        held = COCO()
        held.dataset = {
            "images": [{"id": image} for image in range(images)],
            "annotations": [row | {"id": number} for number, row in enumerate(annotations, 1)],
            "categories": [{"id": number, "name": str(number)} for number in range(CLASSES)],
        }
        held.createIndex()
        return held

    truth = made([row for number, part in enumerate(held) for row in rows(number, part[2])])
    answers = made([row for number, part in enumerate(held) for row in rows(number, part[0], part[1])])
    judge = COCOeval(truth, answers, "bbox")
    judge.params.iouThrs, judge.params.maxDets = np.array(IOUS), [100]
    judge.params.areaRng, judge.params.areaRngLbl = [[0, 1e10]], ["all"]
    judge.evaluate()
    judge.accumulate()
    return float(judge.eval["precision"].mean())


def seconds(act: Callable[[], object], times: int = 3) -> tuple[float, object]:
    """Return the minimum CPU seconds of several runs, and the result of the last run."""
    least, result = np.inf, None
    for _ in range(times):
        start = time.process_time()
        result = act()
        least = min(least, time.process_time() - start)
    return least, result


def replicates(found: list[MatchedPredictions], patient: np.ndarray) -> np.ndarray:
    """Return map1070 of each replicate, float64 (REPLICATES,)."""
    parts = []
    for draws in draw_patient_weights(patient, REPLICATES, 1):
        parts.append(np.mean([average_precision(one, draws=draws).mean(axis=1) for one in found], axis=0))
    return np.concatenate(parts)


def images_a_second() -> tuple[float, float]:
    """Return (the engine lite's, the embedded detector's) training images per CPU second on one thread."""
    import torch

    sys.path.append(str(ROOT / "resources" / "boxes"))
    import data as boxed
    import train as embedded

    from cxr.semisyn.detectors.lite import LiteOptions, train_lite
    from cxr.semisyn.detectors.pools import Sample

    torch.set_num_threads(1)
    random = np.random.default_rng(1)
    pictures = [random.integers(0, 256, (boxed.SIZE, boxed.SIZE)).astype(np.uint8) for _ in range(20)]
    box = (0, 3.0, 4.0, 9.0, 11.0)
    ours = {"real": [Sample(picture, (box,), (0,), str(n), str(n)) for n, picture in enumerate(pictures)]}
    theirs = {"nih": [boxed.Sample(picture, [box], "patient", "nih") for picture in pictures]}
    options = LiteOptions(updates=UPDATES, size=boxed.SIZE, batch=embedded.BATCH, rate=2e-3, checkpoint_every=UPDATES)
    lite, _ = seconds(lambda: train_lite(ours, {"real": (1.0, 1.0)}, ["opacity"], options, 1), 2)
    loop, _ = seconds(lambda: embedded.fit(embedded.fresh(), theirs, (UPDATES, 8e-4), 1, "", fast=True), 2)
    return UPDATES * embedded.BATCH / lite, UPDATES * embedded.BATCH / loop


def main() -> None:
    """Measure and print the ratios."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    held = data(IMAGES)
    once, (value, found) = seconds(lambda: ours(held, IMAGES))
    with contextlib.redirect_stdout(io.StringIO()):
        theirs, expected = seconds(lambda: coco(held, IMAGES), 2)
    drawn, _ = seconds(lambda: replicates(found, np.arange(IMAGES) // 2), 2)
    predictions = sum(len(part[1]) for part in held)
    print(f"{IMAGES} images, {CLASSES} classes, {predictions} predictions; map1070 {value:.6f}, COCO {expected:.6f}")
    print(f"AP: {once:.3f} s; pycocotools {theirs:.2f} s: {theirs / once:.1f} x (target >= 3)")
    print(f"{REPLICATES} replicates: {drawn:.2f} s: {drawn / once:.1f} evaluations (target <= 30)")
    lite, loop = images_a_second()
    print(f"detector lite: {lite:.1f} images/s; the embedded one's loop {loop:.1f}: {lite / loop:.2f} x (target >= 1)")


if __name__ == "__main__":
    main()
