"""Measure the speed of the stage masks: images per second for one threshold set, and the time for several sets.

    python benchmarks/masks.py [--images 60] [--brute 2] [--rounds 9] [--output benchmarks/masks.tsv] [--hold]

The measurement uses one core and includes reading and writing. The images are synthetic (512 x 512, smooth blobs in the
lungs, textured noise, 40 boxes each), and every image has findings. The brute-force version is the tests' oracle, which
works on sets of pixels. It runs on ``--brute`` of the images without files and must give the same masks.

With ``--hold`` the exit status is 1 if one set gives fewer than 200 images per core second, or if a sweep of 20 sets
takes more than 6 times as long as one set.
"""

import argparse
import os
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests"), str(ROOT / "tests/support")]

import cv2  # noqa: E402
import numpy as np  # noqa: E402
import polars as pl  # noqa: E402

import masks_oracle as oracle  # noqa: E402
from cxr.base.tables import read_table, write_table  # noqa: E402
from cxr.base.vocabulary import LOBE_ZONES, LUNGS, SIDES, ZONE_LEVELS  # noqa: E402
from cxr.ils.masks import make_masks, sweep  # noqa: E402
from cxr.ils.masks.settings import (  # noqa: E402
    MasksSettings,
    Rules,
    SweepSettings,
)
from cxr.workflow.settings import Settings  # noqa: E402
from masks_shard import outputs, said, write_inputs  # noqa: E402

SIZE = 512
VECTORISED, SWEEP = "vectorised, files included", "sweep, files included"
IMAGES_PER_CORE_S, TIMES_ONE_SET = 200, 6
"""Limits: minimum speed with one threshold set, and maximum time of a sweep of 20 sets relative to one set."""
REPORTS = (
    [
        said("atelectasis", ["right lung base", "left lung base"], lesion="atelectasis"),
        said("heart", lesion="cardiomegaly"),
    ],
    [
        said("edema", ["right lung", "left lung"], lesion="edema"),
        said("effusion", ["left lung base"], lesion="effusion"),
    ],
    [
        said("opacity", ["lung upper lobe right"], certainty="tentative"),
        said("nodule", ["left mid zone lung"], lesion=None),
    ],
    [
        said("pneumonia", ["lung lower lobe left"], lesion="pneumonia", certainty="tentative"),
        said("consolidation", ["right mid zone lung", "right lung base"], lesion="consolidation", sentence=2),
        said("effusion", ["right lung base"], lesion="effusion", sentence=3),
    ],
)


def smooth(random: np.random.Generator, sigma: float) -> np.ndarray:
    """Return Gaussian noise smoothed with ``sigma`` px, with mean 0 and standard deviation 1."""
    noise = cv2.GaussianBlur(random.standard_normal((SIZE, SIZE)).astype(np.float32), (0, 0), sigma)
    return (noise - noise.mean()) / noise.std()


def zones(random: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the masks of the 15 zone labels, made of two cut ellipses, and the mask of a heart."""
    y, x = np.mgrid[:SIZE, :SIZE]
    masks = {}
    for side, sign in zip(SIDES, (-1, 1), strict=True):
        cx, cy = 256 + sign * random.integers(95, 110), random.integers(225, 245)
        rx, ry = random.integers(75, 90), random.integers(170, 190)
        lung = (((x - cx) / rx) ** 2 + ((y - cy) / ry) ** 2 < 1) & (y < cy + 0.8 * ry)
        masks[f"{side} lung"] = lung
        edges = np.linspace(cy - ry, cy + 0.8 * ry, 5)
        for level, top, bottom in zip(ZONE_LEVELS, edges, edges[1:], strict=False):
            masks[f"{side} {level}"] = lung & (y >= top) & (y < bottom)
    for lobe, parts in LOBE_ZONES.items():
        masks[lobe] = np.logical_or.reduce([masks[part] for part in parts])
    return masks, ((x - 285) / 70) ** 2 + ((y - 350) / 60) ** 2 < 1


def study(number: int) -> dict:
    """Return a synthetic image with findings: blobs where the report has findings, and noise in the lungs."""
    random = np.random.default_rng(number)
    masks, heart = zones(random)
    tuples = REPORTS[number % len(REPORTS)]
    lungs = masks["right lung"] | masks["left lung"]
    anomaly = np.maximum(smooth(random, 3) * 3 + smooth(random, 12) * 4, 0)
    boxes = []
    y, x = np.mgrid[:SIZE, :SIZE]
    for label in dict.fromkeys(label for one in tuples for label in one["labels"]):
        ys, xs = np.nonzero(masks[label])
        cy, cx, ry, rx = ys.mean(), xs.mean(), np.ptp(ys) / 2, np.ptp(xs) / 2
        bump = np.exp(-(((x - cx) / (0.6 * rx)) ** 2 + ((y - cy) / (0.6 * ry)) ** 2))
        anomaly += bump * random.uniform(30, 80) * (1 + 0.3 * smooth(random, 8))
        box = np.array([cx - rx, cy - ry, cx + rx, cy + ry]) + random.normal(0, 6, 4)
        boxes.append((*box, random.uniform(0.15, 0.9)))
    for _ in range(40 - len(boxes)):
        corner, size = random.uniform(60, 400, 2), random.uniform(20, 200, 2)
        boxes.append((*corner, *(corner + size), random.beta(1, 12)))
    image = 120 + 25 * smooth(random, 20) + 6 * smooth(random, 1.5) - 40 * lungs + 0.8 * anomaly
    name = f"s{number:05d}"
    return {
        "study_id": name,
        "image_id": f"i{number:05d}",
        "zones": masks,
        "lungs": {lung: np.roll(masks[lung], 6, axis=0) for lung in LUNGS},
        "heart": heart,
        "anomaly": (np.clip(anomaly, 0, 255) * (lungs | heart)).astype(np.uint8),
        "image": np.clip(image, 0, 255).astype(np.uint8),
        "boxes": boxes,
        "tuples": tuples,
    }


def threshold_sets(number: int) -> dict[str, dict]:
    """Return ``number`` threshold sets: the default, then variants, which combine six tau_ano with four tau_conf."""
    default = {name: value.as_dict() for name, value in Settings().thresholds.sets.items()}["default"]
    sets = {"default": default}
    for step in range(1, number):
        ano, conf = (0.05, 0.075, 0.1, 0.125, 0.15, 0.2)[step % 6], (0.1, 0.15, 0.2, 0.3)[(step + step // 12) % 4]
        sets[f"set{step}"] = {part: taus | {"conf": conf} for part, taus in default.items()}
        sets[f"set{step}"]["general"]["ano"] = ano
        sets[f"set{step}"]["edema"]["ano"] = (0.005, 0.01, 0.02)[step % 3]
    return sets


@contextmanager
def stopwatch(times: list[tuple[float, float]]):
    """Append (core seconds, wall seconds) of the context to ``times``."""
    began, at = time.process_time(), time.perf_counter()
    yield
    times.append((time.process_time() - began, time.perf_counter() - at))


def brute_force(studies: list[dict], options: MasksSettings) -> dict[tuple[str, int], tuple[int, list[str]]]:
    """Return {(study, finding index): (area, reasons of grounding)} of the tests' oracle."""
    made = {}
    for one in studies:
        sets = {label: oracle.set_of(mask) for label, mask in one["zones"].items()}
        lungs = {side: oracle.set_of(one["lungs"][lung]) for side, lung in zip(SIDES, LUNGS, strict=True)}
        boxes, sure = np.array([box[:4] for box in one["boxes"]]), np.array([box[4] for box in one["boxes"]])
        for index, told in enumerate(one["tuples"]):
            lesion = told["lesion_type"]
            if lesion in (None, "cardiomegaly"):
                continue
            taus = getattr(options.thresholds, "edema" if lesion == "edema" else "general").as_dict()
            _, mask, grounded = oracle.lesion(
                one["anomaly"],
                one["image"],
                sets,
                lungs,
                boxes,
                sure,
                told["labels"],
                taus,
                asdict(Rules()),
                lesion == "effusion",
            )
            made[one["study_id"], index] = len(mask), grounded
    return made


def broken(rows: list[dict]) -> list[str]:
    """Return a sentence for each limit that the rows exceed."""
    by_key = {(row["what"], row["sets"]): row for row in rows}
    speed, times = by_key[VECTORISED, 1]["images_per_core_s"], by_key[SWEEP, 20]["times_one_set"]
    said = []
    if speed < IMAGES_PER_CORE_S:
        said.append(f"masks come at {speed:.0f} images a core second, fewer than {IMAGES_PER_CORE_S}")
    if times > TIMES_ONE_SET:
        said.append(f"a sweep of 20 sets takes {times:.1f} times one set's time, more than {TIMES_ONE_SET}")
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=60)
    parser.add_argument("--brute", type=int, default=2, help="number of images for the brute-force version")
    parser.add_argument("--rounds", type=int, default=9, help="measurements of each way; the fastest counts")
    parser.add_argument("--output", default="benchmarks/masks.tsv")
    parser.add_argument(
        "--hold", action="store_true", help="exit with status 1 if a limit is exceeded (use --rounds 40)"
    )
    given = parser.parse_args()
    cv2.setNumThreads(1)
    studies = [study(number) for number in range(given.images)]
    one_set = MasksSettings.from_dict({"thresholds": threshold_sets(1)["default"]})
    rows = []

    def note(what: str, sets: int, images: int, times: list[tuple[float, float]]) -> None:
        seconds, wall = min(times)
        row = {"what": what, "sets": sets, "images": images, "core_s": seconds, "wall_s": wall}
        rows.append(row | {"images_per_core_s": images / seconds})

    with tempfile.TemporaryDirectory() as folder:
        inputs, made = write_inputs(Path(folder) / "in", studies), outputs(Path(folder) / "out")
        make_masks.run_shard(**inputs, **made, options=one_set, attrs={})  # warm: libraries loaded, files cached
        seconds: list[tuple[float, float]] = []
        for _ in range(given.rounds):
            with stopwatch(seconds):
                make_masks.run_shard(**inputs, **made, options=one_set, attrs={})
        note(VECTORISED, 1, given.images, seconds)
        table = read_table(made["findings"])
        for number in (1, 2, 5, 10, 20):
            many = SweepSettings.from_dict({"sets": threshold_sets(number)})
            seconds = []
            for _ in range(given.rounds):
                with stopwatch(seconds):
                    sweep.run_shard(**inputs, output=str(Path(folder) / "sweep.parquet"), options=many)
            note(SWEEP, number, given.images, seconds)
    if given.brute:
        seconds = []
        with stopwatch(seconds):
            slow = brute_force(studies[: given.brute], one_set)
        note("brute force, no files", 1, given.brute, seconds)
        fast = {
            (row["study_id"], row["finding"]): (row["area"], row["grounded"]) for row in table.iter_rows(named=True)
        }
        assert slow == {key: fast[key] for key in slow}, "the two versions disagree"

    first_sweep = next(row["core_s"] for row in rows if row["what"] == SWEEP)
    for row in rows:
        row["times_one_set"] = row["core_s"] / first_sweep if row["what"] == SWEEP else None
        row["times_brute"] = row["images_per_core_s"] / rows[-1]["images_per_core_s"] if given.brute else None
    result = pl.DataFrame(rows).with_columns(pl.col(pl.Float64).round_sig_figs(4))
    write_table(given.output, result)
    with pl.Config(tbl_rows=-1, tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True, tbl_width_chars=140):
        print(result)
    print(f"findings with a mask: {table['mask_id'].is_not_null().sum()} of {len(table)}; table in {given.output}")
    if given.hold and (said := broken(rows)):
        raise SystemExit("broken: " + "; ".join(said))


if __name__ == "__main__":
    main()
