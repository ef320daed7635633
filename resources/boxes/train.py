"""Train the lite detector, measure it and write lite.onnx and scores.json beside this file.

    python resources/boxes/train.py                  # cross-validate, train, calibrate, export, score: about 25 minutes
    python resources/boxes/train.py --keep build     # the same, keeping and reusing each trained net in build/

Needs torch and onnx beside the pipeline's own packages, no GPU, the organ net (resources/organs/lite.onnx) and the
shared data (``CXR_ILS_SHARED``, default ``../shared``). One core, fixed seeds. What is learnt from is in CARD.md.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import torch

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "scripts")]

import data  # noqa: E402
from data import CELL, FRAME, Sample  # noqa: E402
from net import CLASSES, GROUPS, IMPORTANCE, LAYOUT  # noqa: E402

from cxr.base.seeds import stable_hash  # noqa: E402
from cxr.detection import training  # noqa: E402
from cxr.detection.grid import decode, select  # noqa: E402
from cxr.detection.net import Detector  # noqa: E402
from cxr.detection.training import Batch, Recipe, platt, twin  # noqa: E402
from cxr.geometry.boxes import box_iou  # noqa: E402
from cxr.metrics.boxes import match, score  # noqa: E402

SEED = 7
FOLDS = 3
BATCH = 16
PHANTOMS, MORE_PHANTOMS, PAINTED, CALIBRATION, TEST = 1500, 300, 600, 80, 100
PRETRAIN, TUNE = (1600, 2e-3), (220, 8e-4)
MIX = {"nih": 5, "healthy": 6, "phantom": 5}
CHOICE = {"floor": 1e-3, "iou": 0.5, "most": 100}
"""How boxes are chosen: `boxes.floor`, `nms_iou` and `max_boxes`."""
LICENCE = "academic, non-commercial use only (RSNA boxes), see CARD.md"
OWN_CLASS = ("Lung Opacity", "Nodule/Mass", "Cardiomegaly")
HIT = 0.3
"""Overlap at which a box counts as a hit when confidences are calibrated."""
UNSEEN = ("Consolidation", "Infiltration", "Atelectasis", "ILD", "Pleural effusion", "Nodule/Mass")
"""Classes of which no real lesion was seen: their confidence is lowered where healthy X-rays reach CONFIDENCE."""
CONFIDENCE, QUIET, FOUND = 0.2, 0.9, 0.8
"""Shares of healthy images that are to stay under CONFIDENCE, and of painted lesions that must not fall under it."""
Scored = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Boxes of one image in frame pixels, confidences, class indices (all best first), true boxes (M, 5)."""


def fit(net: Detector, pools: dict[str, list[Sample]], schedule: tuple[int, float], seed: int, note: str) -> Detector:
    """Train on batches mixed from the pools as MIX says; return a net of the running mean of the weights."""
    steps, rate = schedule
    names = np.repeat([name for name in MIX if name in pools], [MIX[name] for name in MIX if name in pools])
    losses = []

    def draw(random: np.random.Generator) -> Batch:
        picks = [pools[name][int(random.integers(len(pools[name])))] for name in random.choice(names, BATCH)]
        moved = [data.augment(sample, random) for sample in picks]
        return Batch([one for one, _ in moved], [boxes for _, boxes in moved], [sample.known for sample in picks])

    def tell(step: int, value: float) -> None:
        losses.append(value)
        if step % 100 == 0:
            print(f"{note} {step}/{steps} loss {np.mean(losses[-100:]):.3f}", flush=True)

    recipe = Recipe(steps, rate, decay=1e-2, warmup=0.15, clip=5.0, memory=0.99, importance=IMPORTANCE)
    return training.fit(net, draw, recipe, seed, tell)


def fresh() -> Detector:
    """Return a net with random weights."""
    return Detector(LAYOUT).to(memory_format=torch.channels_last)


def kept(folder: Path | None, name: str, make: Callable[[], Detector]) -> Detector:
    """Return the net kept under ``name``, or make and keep it."""
    net = fresh()
    path = folder / f"{name}.pt" if folder else None
    if path and path.is_file():
        net.load_state_dict(torch.load(path, weights_only=True))
        return net.eval()
    net = make()
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(net.state_dict(), path)
    return net


@torch.no_grad()
def outputs(net: Detector, samples: list[Sample]) -> list[tuple[np.ndarray, np.ndarray, Sample]]:
    """Return logits, distances and the sample, one image at a time as the engine does."""
    found = []
    for sample in samples:
        logit, distance = net(torch.from_numpy(sample.image.astype(np.float32) / 255)[None, None])
        found.append((logit[0].numpy(), distance[0].numpy(), sample))
    return found


def detect(logit: np.ndarray, distance: np.ndarray, sample: Sample, slope: np.ndarray, offset: np.ndarray) -> Scored:
    """Decode one image as the engine does, with the given calibration."""
    calibrated = logit * slope[:, None, None] + offset[:, None, None]
    chosen = select(decode(distance, list(GROUPS), FRAME), 1 / (1 + np.exp(-calibrated)), **CHOICE)
    truth = np.array(sample.boxes, np.float64).reshape(-1, 5)
    return *chosen, truth * np.array([1, *[CELL] * 4])


def of_class(image: Scored, label: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return boxes, confidences and true boxes (M, 4) of one class."""
    boxes, confidence, classes, truth = image
    return boxes[classes == label], confidence[classes == label], truth[truth[:, 0] == label][:, 1:]


def any_class(image: Scored) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return boxes, confidences and true boxes whatever the class, but the heart's: Algorithm 1 does not compare it."""
    boxes, confidence, classes, truth = image
    heart = CLASSES.index("Cardiomegaly")
    return boxes[classes != heart], confidence[classes != heart], np.unique(truth[truth[:, 0] != heart][:, 1:], axis=0)


def calibration(raw: list[tuple[np.ndarray, np.ndarray, Sample]], labels: list[int]) -> dict[int, tuple[float, float]]:
    """Fit the calibration of the given classes on the nets' outputs for images they did not see.

    A box of OWN_CLASS hits if it overlaps a true one of its class by HIT; any other if it overlaps any lesion so,
    because Algorithm 1 does not compare classes.
    """
    plain = np.ones(len(CLASSES)), np.zeros(len(CLASSES))
    images, lines = [detect(*image, *plain) for image in raw], {}
    for label in labels:
        chosen = [of_class(image, label) for image in images]
        if CLASSES[label] not in OWN_CLASS:
            chosen = [(*one[:2], any_class(image)[2]) for one, image in zip(chosen, images, strict=True)]
        hits = [match(boxes, truth, HIT)[0] for boxes, _, truth in chosen]
        confidence = np.clip(np.concatenate([confidence for _, confidence, _ in chosen]), 1e-6, 1 - 1e-6)
        lines[label] = platt(confidence, np.concatenate(hits))
    return lines


def lowered(
    line: tuple[float, float],
    label: int,
    healthy: list[tuple[np.ndarray, np.ndarray, Sample]],
    painted: list[tuple[np.ndarray, np.ndarray, Sample]],
) -> tuple[float, float]:
    """Lower a class's line so far that QUIET of the healthy images stay under CONFIDENCE, FOUND of its lesions do not.

    Where both cannot be, the lesions have their way. A line is never raised.
    """
    plain = np.ones(len(CLASSES)), np.zeros(len(CLASSES))
    noise = [of_class(detect(*image, *plain), label)[1].max(initial=1e-6) for image in healthy]
    best = []
    for image in painted:
        boxes, confidence, truth = of_class(detect(*image, *plain), label)
        best += [confidence[row >= HIT].max(initial=1e-6) for row in box_iou(truth, boxes)]
    level = min(np.quantile(noise, QUIET), np.quantile(best, 1 - FOUND))
    slope, offset = line
    return slope, min(offset, np.log(CONFIDENCE / (1 - CONFIDENCE)) - slope * np.log(level / (1 - level)))


def table(images: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> dict:
    """Score at both overlaps and both confidences that Algorithm 1 uses (0.20, and 0.01 for edema)."""
    return {
        f"iou {iou} confidence {confidence}": {
            name: round(value, 3) for name, value in score(images, iou=iou, confidence=confidence).items()
        }
        for iou in (0.3, 0.5)
        for confidence in (0.2, 0.01)
    }


def train_all(base: Detector, real: list[Sample], chests: list[data.Chest], keep: Path | None) -> tuple:
    """Tune the net on everything, then once per fold without its patients.

    Returns the net and, per kind of image (boxed, healthy, painted), (fold, outputs) of the nets that did not see it.
    """
    phantoms = cache(lambda: data.phantoms(MORE_PHANTOMS, SEED + 3))
    painted = data.painted(chests, PAINTED, SEED, "healthy")
    healthy = [Sample(data.shrink(c.image), [], c.patient, "healthy") for c in chests]
    found = {"nih": [], "healthy": [], "painted": []}

    def fold_of(sample: Sample) -> int:
        return stable_hash("fold", sample.patient) % FOLDS

    def tuned(name: str, seed: int, without: int | None) -> Detector:
        def make() -> Detector:
            pools = {"nih": real, "healthy": painted}
            pools = {name: [s for s in samples if fold_of(s) != without] for name, samples in pools.items()}
            return fit(twin(base), pools | {"phantom": phantoms()}, TUNE, seed, name)

        return kept(keep, name, make)

    final = tuned("final", SEED + 50, None)
    for fold in range(FOLDS):
        net = tuned(f"fold{fold}", SEED + fold, fold)
        for name, samples in (("nih", real), ("healthy", healthy), ("painted", painted[: PAINTED // 3])):
            found[name] += [(fold, image) for image in outputs(net, [s for s in samples if fold_of(s) == fold])]
    return final, found


def all_lines(found: dict, phantoms: list, without: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Fit every class without one fold: Lung Opacity on real images alone, the others on painted ones too.

    Then quieten the UNSEEN classes on healthy images.
    """
    seen = {name: [image for fold, image in pairs if fold != without] for name, pairs in found.items()}
    real = seen["nih"] + seen["healthy"]
    lines = calibration(real, [0]) | calibration(real + seen["painted"] + phantoms, list(range(1, len(CLASSES))))
    for label in map(CLASSES.index, UNSEEN):
        lines[label] = lowered(lines[label], label, seen["healthy"], seen["painted"] + phantoms)
    both = np.array([lines[label] for label in range(len(CLASSES))])
    return both[:, 0], both[:, 1]


def held_out_scores(found: dict, phantoms: list) -> dict:
    """Score the held-out NIH images, calibrated without the fold in question."""
    scored = {"nih": [], "healthy": []}
    for fold in range(FOLDS):
        lines = all_lines(found, phantoms, fold)
        for name in scored:
            scored[name] += [detect(*image, *lines) for other, image in found[name] if other == fold]
    return {
        "NIH boxes, Lung Opacity": table([of_class(image, 0) for image in scored["nih"]]),
        "NIH boxes, any class": table([any_class(image) for image in scored["nih"]]),
        "NIH without a finding, any class": table([any_class(image) for image in scored["healthy"]]),
    }


def phantom_scores(net: Detector, slope: np.ndarray, offset: np.ndarray) -> dict:
    """Score phantoms that no net was trained or calibrated on."""
    images = [detect(*image, slope, offset) for image in outputs(net, data.phantoms(TEST, SEED + 2))]
    report = {f"phantoms, {name}": table([of_class(i, k) for i in images]) for k, name in enumerate(CLASSES)}
    return report | {"phantoms, any class": table([any_class(image) for image in images])}


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="folder for the trained nets; those found there are not made again")
    parser.add_argument("--output", type=Path, default=HERE, help="folder for lite.onnx and scores.json")
    arguments = parser.parse_args()
    keep, output = arguments.keep, arguments.output
    output.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    shared = Path(os.environ.get("CXR_ILS_SHARED", HERE.parents[2] / "shared"))
    nih = shared / "data" / "nih"

    base = kept(
        keep,
        "base",
        lambda: fit(
            fresh(),
            {"phantom": data.phantoms(PHANTOMS, SEED)},
            PRETRAIN,
            SEED,
            "phantoms",
        ),
    )
    real, chests = data.real(nih), data.healthy(nih, HERE.parent / "organs" / "lite.onnx")
    final, found = train_all(base, real, chests, keep)
    phantoms = outputs(final, data.phantoms(CALIBRATION, SEED + 1))
    report = held_out_scores(found, phantoms)
    slope, offset = all_lines(found, phantoms)
    training.export(final, slope, offset, output / "lite.onnx", LICENCE)
    report |= phantom_scores(final, slope, offset)
    outside = [detect(*image, slope, offset) for image in outputs(final, data.external(shared / "data" / "covid"))]
    report |= {"COVID-19 images, any class": table([any_class(image) for image in outside])}
    counts = {
        "NIH images with boxes": len(real),
        "NIH boxes": sum(len(sample.boxes) for sample in real),
        "NIH patients": len({sample.patient for sample in real}),
        "NIH images without a finding": len(chests),
        "parameters": sum(p.numel() for p in final.parameters()),
    }
    report = {
        "counts": counts,
        "scores": report,
        "calibration": {CLASSES[k]: [round(slope[k], 4), round(offset[k], 4)] for k in range(len(CLASSES))},
    }
    (output / "scores.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
