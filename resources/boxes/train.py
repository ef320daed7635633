"""Train the lite detector, measure it and write lite.onnx and scores.json beside this file.

    python resources/boxes/train.py                  # cross-validate, train, calibrate, export, score: about an hour
    python resources/boxes/train.py --keep build     # the same, keeping and reusing each trained net in build/
    python resources/boxes/train.py --evaluate       # print every score; lite.onnx and scores.json stay as they are

Needs torch and onnx besides the pipeline's own packages, no GPU, the organ net (resources/organs/lite.onnx) and the
shared data (``CXR_ILS_SHARED``, default ``../shared``). Uses one core and fixed seeds. CARD.md describes the data.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "scripts")]

import calibrate  # noqa: E402
import data  # noqa: E402
import measure  # noqa: E402
from data import Sample  # noqa: E402
from measure import Line, Output, any_class, detect, of_class  # noqa: E402
from net import CLASSES, IMPORTANCE, LAYOUT  # noqa: E402

from cxr.base.seeds import stable_hash  # noqa: E402
from cxr.detection import training  # noqa: E402
from cxr.detection.export import export_onnx  # noqa: E402
from cxr.detection.net import Detector  # noqa: E402
from cxr.detection.training import (  # noqa: E402
    Batch,
    Recipe,
    copy_net,
)

SEED = 7
FOLDS = 3
BATCH = 16
PHANTOMS, MORE_PHANTOMS, PAINTED, CALIBRATION, TEST = 1500, 300, 900, 80, 100
CALIBRATED = 300
"""Number of X-rays with painted lesions that the calibration uses."""
PRETRAIN, TUNE = (1600, 2e-3), (450, 8e-4)
MIX = {"nih": 4, "painted": 4, "healthy": 3, "film": 2, "phantom": 3}
"""Proportions of a batch: X-rays with boxes, painted lesions, no finding, only labels, and synthetic X-rays."""
LICENCE = "academic, non-commercial use only (RSNA boxes), see CARD.md"


def fit(
    net: Detector, pools: dict[str, list[Sample]], schedule: tuple[int, float], seed: int, note: str, fast: bool = False
) -> Detector:
    """Train on batches mixed from the pools in the proportions MIX. Return a net with a running mean of the weights.

    ``fast``: whether convolutions are in bfloat16.
    """
    steps, rate = schedule
    names = np.repeat([name for name in MIX if name in pools], [MIX[name] for name in MIX if name in pools])
    losses = []

    def draw(random: np.random.Generator, update: int) -> Batch:
        picks = [pools[name][int(random.integers(len(pools[name])))] for name in random.choice(names, BATCH)]
        moved = [data.augment(sample, random) for sample in picks]
        images, boxes = zip(*moved, strict=True)
        return Batch(list(images), list(boxes), [one.known for one in picks], [one.film for one in picks])

    def tell(step: int, value: float) -> None:
        losses.append(value)
        if step % 100 == 0:
            print(f"{note} {step}/{steps} loss {np.mean(losses[-100:]):.3f}", flush=True)

    recipe = Recipe(steps, rate, decay=1e-2, warmup=0.15, clip=5.0, memory=0.99, importance=IMPORTANCE, bfloat16=fast)
    return training.train_net(net, draw, recipe, seed, tell)


def fresh() -> Detector:
    """Return a net with random weights, which are the same at each call."""
    torch.manual_seed(SEED)
    return Detector(LAYOUT).to(memory_format=torch.channels_last)


def kept(folder: Path | None, name: str, make: Callable[[], Detector]) -> Detector:
    """Return the net that is stored under ``name``. If there is none, make and store it."""
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
def outputs(net: Detector, samples: list[Sample], fold: int = -1) -> list[Output]:
    """Return the net's output for each X-ray. They are processed one by one, as in the engine."""
    found = []
    for sample in samples:
        logit, distance = net(torch.from_numpy(sample.image.astype(np.float32) / 255)[None, None])
        found.append(Output(logit[0].numpy(), distance[0].numpy(), sample, fold))
    return found


class Films(NamedTuple):
    """The X-rays for training and measuring: with boxes, without a finding, with painted lesions, with labels only."""

    nih: list[Sample]
    healthy: list[Sample]
    painted: list[Sample]
    film: list[Sample]


def films(shared: Path) -> Films:
    """Read all X-rays, and paint the lesions."""
    nih, more = shared / "data" / "nih", shared / "data" / "nih_more"
    chests = data.healthy(nih, more, HERE.parent / "organs" / "lite.onnx")
    healthy = [Sample(data.shrink(chest.image), [], chest.patient, chest.kind, chest.name) for chest in chests]
    painted = data.painted(chests, PAINTED, SEED, "painted")
    return Films(data.real(nih), healthy, painted, data.labelled(more))


def fold_of(sample: Sample) -> int:
    """Return the fold of an X-ray, which is that of its patient."""
    return stable_hash("fold", sample.patient) % FOLDS


def train_all(
    base: Detector, known: Films, keep: Path | None
) -> tuple[Callable[[], Detector], dict[str, list[Output]]]:
    """Tune a net for each fold, without the fold's patients.

    Return a function that tunes the final net on everything, and {kind of X-ray: outputs of the nets of the folds}.
    """
    phantoms = cache(lambda: data.phantoms(MORE_PHANTOMS, SEED + 3))
    found = {name: [] for name in known._fields}

    def tuned(name: str, seed: int, without: int | None) -> Detector:
        def make() -> Detector:
            pools = {name: [s for s in pool if fold_of(s) != without] for name, pool in known._asdict().items()}
            return fit(copy_net(base), pools | {"phantom": phantoms()}, TUNE, seed, name, fast=True)

        return kept(keep, name, make)

    for fold in range(FOLDS):
        net = tuned(f"fold{fold}", SEED + fold, fold)
        for name, pool in known._asdict().items():
            some = pool[:CALIBRATED] if name == "painted" else pool
            found[name] += outputs(net, [s for s in some if fold_of(s) == fold], fold)
    return lambda: tuned("final", SEED + 50, None), found


def held_out_scores(found: dict[str, list[Output]], lines: list[Line]) -> dict:
    """Score the X-rays of each fold with the calibration that was fitted without the fold. ``lines``: one per fold."""
    nih = [detect(output, lines[output.fold]) for output in found["nih"]]
    report = {
        "NIH boxes, Lung Opacity": measure.table(nih, lambda film: of_class(film, 0)),
        "NIH boxes, any class": measure.table(nih, any_class),
    }
    healthy = [(output.film.kind, detect(output, lines[output.fold])) for output in found["healthy"]]
    report["healthy"] = measure.healthy_table([film for _, film in healthy])
    for kind in sorted({kind for kind, _ in healthy}):
        report[f"healthy, {kind}"] = measure.healthy_table([film for other, film in healthy if other == kind])
    return report | {"text-mined labels": measure.told_apart(found["film"], found["healthy"], calibrate.PLAIN)}


def phantom_scores(found: list[Output], line: Line) -> dict:
    """Score synthetic X-rays that were not used for training or calibration."""
    drawn = [detect(output, line) for output in found]
    report = {
        f"phantoms, {name}": measure.table(drawn, lambda film, k=k: of_class(film, k)) for k, name in enumerate(CLASSES)
    }
    return report | {"phantoms, any class": measure.table(drawn, any_class)}


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="folder for the trained nets; those found there are not made again")
    parser.add_argument("--output", type=Path, default=HERE, help="folder for lite.onnx and scores.json")
    parser.add_argument("--evaluate", action="store_true", help="print every score and write nothing")
    arguments = parser.parse_args()
    keep, output = arguments.keep, arguments.output
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    shared = Path(os.environ.get("CXR_ILS_SHARED", HERE.parents[2] / "shared"))

    base = kept(
        keep, "base", lambda: fit(fresh(), {"phantom": data.phantoms(PHANTOMS, SEED)}, PRETRAIN, SEED, "phantoms")
    )
    known = films(shared)
    make, found = train_all(base, known, keep)
    final = make()
    phantoms = outputs(final, data.phantoms(CALIBRATION, SEED + 1))
    pools = {name: calibrate.seen(found[name]) for name in ("nih", "healthy", "painted")}
    drawn = calibrate.seen(phantoms)
    report = held_out_scores(found, [calibrate.lines(pools, drawn, fold) for fold in range(FOLDS)])
    slope, offset = line = calibrate.lines(pools, drawn)
    report |= phantom_scores(outputs(final, data.phantoms(TEST, SEED + 2)), line)
    outside = [detect(one, line) for one in outputs(final, data.external(shared / "data" / "covid"))]
    report["COVID-19 films, any class"] = measure.table(outside, any_class)
    report = {
        "counts": {
            "NIH films with boxes": len(known.nih),
            "NIH boxes": sum(len(sample.boxes) for sample in known.nih),
            "NIH patients with boxes": len({sample.patient for sample in known.nih}),
            "films without a finding": len(known.healthy),
            "films with labels alone": len(known.film),
            "parameters": sum(p.numel() for p in final.parameters()),
        },
        "scores": report,
        "calibration": {CLASSES[k]: [round(slope[k], 4), round(offset[k], 4)] for k in range(len(CLASSES))},
    }
    print(json.dumps(report, indent=1))
    if not arguments.evaluate:
        output.mkdir(parents=True, exist_ok=True)
        export_onnx(final, slope, offset, output / "lite.onnx", LICENCE)
        (output / "scores.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
