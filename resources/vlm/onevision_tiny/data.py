"""What the base of RadVLM's small model learns from: the mix and the regions of a synthetic cohort."""

import math
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import yaml
from lesions import Lesions, drawn

from cxr.base.paths import SCRIPTS
from cxr.base.tables import read_table
from cxr.base.vocabulary import SPLITS
from cxr.vlm.samples import ImageStore, Sample, fit_size, read_samples

COHORTS = {4001: 1200, 4002: 2400}
"""Seeds and sizes. The demo's seed, 2026, and those of ROSALIA's base and its scores are others."""
HELD = 256
"""Side that pictures are held at: twice the model's, so that moving them loses little."""
MOVED = 0.25
"""Largest change of a picture's size, and of the window's sides against each other by half of it, as logarithms."""
TRIES = 5
WITHIN = 0.8
"""Share of each box that a window must hold; it is not moved where none of TRIES windows does."""
REGIONS = 12
"""Passes of the regions of a picture: the model learns to read coordinates from them."""

Box = Sequence[float]
Boxes = Mapping[str, Sequence[Box]]


def make(work: Path, seed: int, studies: int, cores: int, passes: int = 0) -> Path:
    """Make a cohort and its mix by the workflow, and return the folder; one that is there stays.

    ``passes`` of the regions of each picture, 0 for the default.
    """
    folder = work / str(seed)
    folder.mkdir(parents=True, exist_ok=True)
    told: dict = {"seed": seed, "phantom": {"subjects": studies * 5 // 8, "studies": studies}}
    if passes:
        tasks = {"anatomical_grounding": {"own": {"repeat": passes}}}
        told["radvlm"] = {"instructions": {"mixes": {"all": {"preset": "own", "tasks": tasks}}}}
    (folder / "mine.yaml").write_text(yaml.safe_dump(told))
    run(folder, cores, "radvlm_instructions")
    return folder


def run(folder: Path, cores: int, *targets: str) -> None:
    """Run the workflow in a folder with its mine.yaml."""
    command = [str(Path(sys.executable).with_name("snakemake")), "--snakefile", str(SCRIPTS.parent / "Snakefile")]
    command += ["--directory", str(folder), "--configfile", str(folder / "mine.yaml"), "--cores", str(cores)]
    subprocess.run([*command, "--quiet", "all", "--", *targets], cwd=SCRIPTS.parent, check=True)


class Cohorts:
    """Samples of the mixes of some cohorts, all splits, their pictures (H, W) in memory, and the boxes of regions.

    An image's id begins with the name of its cohort's folder.
    """

    def __init__(self, folders: Sequence[Path]):
        self.folders = folders
        self.samples: list[Sample] = []
        self.pictures: dict[str, np.ndarray] = {}
        self._covered: dict[str, tuple[slice, slice]] = {}
        for folder in folders:
            mix = folder / "results/radvlm/instructions/all"
            samples = [sample for split in SPLITS for sample in read_samples(mix / f"{split}.jsonl")]
            one = {sample.image_id: sample for sample in samples}
            with ImageStore(sorted((folder / "results/frames").glob("[0-9]*.h5")), HELD) as store:
                for image_id, sample in sorted(one.items()):
                    self.pictures[f"{folder.name}/{image_id}"] = np.ascontiguousarray(store.get(sample)[..., 0])
                    self._covered[f"{folder.name}/{image_id}"] = store.covered(sample)
            self.samples += [replace(sample, image_id=f"{folder.name}/{sample.image_id}") for sample in samples]

    def regions(self) -> tuple[list[str], np.ndarray]:
        """Return the images, and the boxes of their regions (N, regions, 4) as fractions.

        NaN where an image lacks a region.
        """
        found: dict[str, dict[str, np.ndarray]] = {}
        for folder in self.folders:
            tables = folder / "results/radvlm/sources/own"
            images = read_table(tables / "images.parquet").select("image_id", "rows", "columns")
            facts = read_table(tables / "facts.parquet").filter(kind="region").join(images, on="image_id")
            for fact in facts.iter_rows(named=True):
                edges = np.array([fact[edge] for edge in ("x1", "y1", "x2", "y2")])
                boxes = found.setdefault(f"{folder.name}/{fact['image_id']}", {})
                boxes[fact["name"]] = edges / ([fact["columns"], fact["rows"]] * 2)
        names = sorted({name for boxes in found.values() for name in boxes})
        asked = sorted(found.keys() & self.pictures.keys())
        absent = np.full(4, np.nan)
        return asked, np.stack([[found[image].get(name, absent) for name in names] for image in asked])

    def lesions(self, seed: int) -> list[Lesions]:
        """Return the pictures with the truth of their lesions, and painted copies of them."""
        made: list[Lesions] = []
        for folder in self.folders:
            start = f"{folder.name}/"
            mine = {name.removeprefix(start): one for name, one in self.pictures.items() if name.startswith(start)}
            covered = {name: self._covered[start + name] for name in mine}
            for one in drawn(folder / "results/phantom/truth.h5", mine, covered, seed):
                made.append(replace(one, image_id=start + one.image_id))
        return made


def window(draw: random.Random) -> tuple[float, float, float, float]:
    """Return a window (x, y, width, height) of a picture, in fractions; it may be larger than the picture."""
    size, form = math.exp(draw.uniform(-MOVED, MOVED)), math.exp(draw.uniform(-MOVED, MOVED) / 2)
    width, height = size * form, size / form
    x, y = (draw.uniform(min(0, 1 - side), max(0, 1 - side)) for side in (width, height))
    return x, y, width, height


def seen_in(boxes: np.ndarray, of: tuple[float, float, float, float]) -> np.ndarray:
    """Return boxes (N, 4) as fractions of a window, clipped; NaN where less than WITHIN of a box is in it."""
    x, y, width, height = of
    inside = (boxes - [x, y, x, y]) / [width, height, width, height]
    clipped = np.clip(inside, 0, 1)
    areas = [np.prod(held[:, 2:] - held[:, :2], axis=1) for held in (clipped, inside)]
    clipped[areas[0] < WITHIN * areas[1]] = np.nan
    return clipped


def cut(picture: np.ndarray, of: tuple[float, float, float, float], shape: tuple[int, int]) -> np.ndarray:
    """Return the window of a picture in another shape (H, W); beyond its edges the picture's rim goes on."""
    (rows, columns), (height, width) = picture.shape, shape
    x, y, wide, high = of
    affine = np.array(
        [[width / (wide * columns), 0, -x / wide * width], [0, height / (high * rows), -y / high * height]]
    )
    # a smaller copy is blurred first, or its edges would lie by chance
    blurred = cv2.GaussianBlur(picture, (0, 0), max(0.1, 0.3 * columns / width))
    return cv2.warpAffine(blurred, affine, (width, height), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)


def shrunk(picture: np.ndarray, side: int) -> np.ndarray:
    """Return a picture as the workflow shows it to the model."""
    height, width = fit_size(picture.shape, side)
    return cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA)


def shown(
    sample: Sample, picture: np.ndarray, side: int, draw: random.Random, share: float
) -> tuple[Sample, np.ndarray]:
    """Return a sample and its picture, uint8 (H, W, 3): with the chance ``share`` moved, its boxes too."""
    plain = np.repeat(shrunk(picture, side)[..., None], 3, axis=2)
    if draw.random() >= share:
        return sample, plain
    for _ in range(TRIES):
        of = window(draw)
        held = {name: seen_in(np.array(boxes, np.float64).reshape(-1, 4), of) for name, boxes in sample.boxes.items()}
        if not any(_lost(boxes) for boxes in held.values()):
            there = {name: boxes.tolist() for name, boxes in held.items()}
            moved = cut(picture, of, plain.shape[:2])
            return replace(sample, boxes=there), np.repeat(moved[..., None], 3, axis=2)
    return sample, plain


def _lost(boxes: np.ndarray) -> bool:
    """Return whether a box is not there, or has no side in two decimals."""
    flat = np.round(boxes[:, 2:], 2) - np.round(boxes[:, :2], 2) < 0.01
    return bool(np.isnan(boxes).any() or flat.any())
