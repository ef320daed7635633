"""Write the files of one engine with a large net, or measure it, in a separate process that `engines.py` starts.

    python benchmarks/engines_run.py '{"task": "make" or "measure", …}'

The last printed line is the result as JSON. The program runs in any engine's environment.
"""

import importlib.util
import json
import math
import os
import resource
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / name) for name in ("scripts", "tests", "tests/support", "benchmarks")]

import cv2  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402

from cxr.base.engines import Setup, engine_module  # noqa: E402
from cxr.base.errors import UserError  # noqa: E402
from cxr.base.hdf5 import FRAME_SIZE  # noqa: E402
from cxr.base.settings import Section  # noqa: E402
from cxr.base.vocabulary import ORGAN_LABELS  # noqa: E402
from cxr.geometry.affine import fit_affine  # noqa: E402
from cxr.imaging.anatomy.settings import AnatomySettings  # noqa: E402
from cxr.imaging.anomaly.settings import AnomalySettings  # noqa: E402
from cxr.imaging.boxes.settings import BoxesSettings  # noqa: E402
from cxr.imaging.organs.settings import OrgansSettings  # noqa: E402
from cxr.nets.devices import select_device  # noqa: E402
from cxr.workflow.engine_files import find_package  # noqa: E402

PACKAGES = {"radedit": ("diffusers", "transformers"), "cxas": ("cxas",), "ultralytics": ("ultralytics",)}
ORIGINAL = (2500, 2500)
"""Rows and columns of the original images of the frames."""
OVALS = {"right lung": (170, 245, 75, 160), "left lung": (345, 245, 70, 160), "heart": (285, 340, 75, 65)}
"""{organ: (centre x, centre y, half axis x, half axis y)}, px."""


class Frame(NamedTuple):
    """A frame uint8 (512, 512), its organ masks {label: bool (512, 512)}, and a name."""

    image: np.ndarray
    organs: dict[str, np.ndarray]
    name: str


def frame(name: str = "image") -> Frame:
    """Return a smooth synthetic image with two dark lungs."""
    y, x = np.mgrid[:FRAME_SIZE, :FRAME_SIZE]
    ovals = {label: OVALS[label] for label in ORGAN_LABELS}
    organs = {label: ((x - cx) / rx) ** 2 + ((y - cy) / ry) ** 2 < 1 for label, (cx, cy, rx, ry) in ovals.items()}
    rough = np.random.default_rng(0).normal(150, 40, (16, 16))
    image = cv2.resize(rough, (FRAME_SIZE, FRAME_SIZE), interpolation=cv2.INTER_CUBIC)
    image -= 60 * (organs["right lung"] | organs["left lung"])
    return Frame(np.clip(image, 5, 255).astype(np.uint8), organs, name)


def segment_organs(engine: object, frames: list[Frame]) -> None:
    affine = fit_affine(ORIGINAL, FRAME_SIZE, "pad")
    engine.segment_batch([(one.image, one.name, affine, ORIGINAL) for one in frames])


def edit(engine: object, frames: list[Frame]) -> None:
    engine.edit_batch(*(list(part) for part in zip(*frames, strict=True)))


def segment_anatomy(engine: object, frames: list[Frame]) -> None:
    engine.segment_batch([one.image for one in frames])


def detect(engine: object, frames: list[Frame]) -> None:
    engine.detect_batch([one.image for one in frames])


WORK = {"organs": segment_organs, "anomaly": edit, "anatomy": segment_anatomy, "boxes": detect}
"""{stage: function that calls an engine of this stage on frames}."""
OPTIONS: dict[str, type[Section]] = {
    "organs": OrgansSettings, "anomaly": AnomalySettings, "anatomy": AnatomySettings, "boxes": BoxesSettings,
}  # fmt: skip


def load(
    stage: str, name: str, options: dict, files: dict, device: str, batch: int, folds: int | None,
    compute: dict | None = None,
) -> object:  # fmt: skip
    """Load an engine as its stage does; ``folds``: number of nets of an ensemble to load, None for all."""
    module, kind = engine_module(find_package(stage), name), OPTIONS[stage]
    whole = getattr(module, "INPUTS", {})
    if folds:
        module.INPUTS = dict(list(whole.items())[:folds])
    try:
        setup = Setup(files=files, device=device, batch=batch, compute=compute or {})
        return module.load(kind.from_dict({key: value for key, value in options.items() if key != "seed"}), setup)
    finally:
        if folds:
            module.INPUTS = whole


def seconds_an_image(work: Callable[[list], None], frames: list, batch: int, clock: Callable[[], float]) -> float:
    """Return the seconds per image of ``work``, which gets ``batch`` frames at a time."""
    began = clock()
    for first in range(0, len(frames), batch):
        work(frames[first : first + batch])
    return (clock() - began) / len(frames)


def whole(seconds: float, fixed: float, parts: int, of: int) -> float:
    """Return the seconds of all ``of`` parts (steps or folds), extrapolated from ``seconds`` of ``parts`` parts.

    ``fixed``: seconds that do not depend on the number of parts.
    """
    return fixed + (seconds - fixed) / parts * of


def clock_of(device: torch.device) -> Callable[[], float]:
    """Return the clock: wall seconds on a GPU, core seconds of this process on a CPU."""
    return time.perf_counter if device.type == "cuda" else time.process_time


def peak_bytes(device: torch.device) -> int:
    """Return the maximum memory until now, in bytes: of tensors on a GPU, of this process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def device_name(device: torch.device) -> str:
    """Return the device's name in the table."""
    threads = torch.get_num_threads()
    return torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {threads} thread{'s'[: threads > 1]}"


def measure(
    stage: str, name: str, options: dict, files: dict, device: str, batch: int, images: int, parts: int | None = None,
    compute: dict | None = None,
) -> dict:  # fmt: skip
    """Return a row of the table: speed and memory of an engine with ``batch`` images at a time.

    parts: number of diffusion steps or folds to run; ``s_per_image`` in the row is extrapolated to all. Return an empty
    row if the engine does not support batches of this size.
    """
    of = len(engine_module(find_package(stage), name).INPUTS) if name == "scaled_yolov4" else None
    engine = load(stage, name, options, files, device, batch, parts if of else None, compute)
    used = select_device(device)
    if (getattr(engine, "batch", None) or 1) < batch:
        return {}
    # one image, because on other images a detector with random weights would return other numbers of boxes
    frames = [frame(f"image{number}") for number in range(images)]

    clock = clock_of(used)

    def work(some: list[Frame]) -> None:
        WORK[stage](engine, some)

    fixed = 0.0
    if hasattr(engine, "steps"):  # without steps, only the autoencoder runs
        steps, engine.steps = engine.steps, []
        parts, of = min(parts or len(steps), len(steps)), len(steps)
        if used.type == "cuda":
            work(frames[:batch])
        fixed = seconds_an_image(work, frames, batch, clock)
        engine.steps = steps[:parts]
    elif of:
        parts = len(engine.folds)
    if used.type == "cuda":  # warm-up: load libraries, choose algorithms
        work(frames[:batch])
    seconds = seconds_an_image(work, frames, batch, clock)
    total = whole(seconds, fixed, parts, of) if of else seconds
    return {
        "device": device_name(used),
        "dtype": options.get(name, {}).get("dtype", "float16" if name == "scaled_yolov4" else "float32"),
        "batch": batch,
        "images": images,
        "parts": parts if of else None,
        "of_parts": of,
        "s_per_part": (seconds - fixed) / parts if of else None,
        "s_besides": fixed if of else None,
        "s_per_image": total,
        "images_per_s": 1 / total,
        "peak_gb": peak_bytes(used) / 1e9,
    }


def make(stage: str, name: str, options: dict, folder: str, device: str, tiny: bool = False) -> dict:
    """Write the engine's files into ``folder``; return {"files": {input: path}, "values": number of weights}.

    tiny: use the smallest net, if there is one. Raises UserError if the requested GPU or a package of the engine is
    missing.
    """
    select_device(device)
    for package in PACKAGES.get(name, ()):
        if importlib.util.find_spec(package) is None:
            raise UserError(
                f"the package {package} is not installed for {sys.executable}: name the engine's interpreter, "
                f"--python {name}=…/bin/python"
            )
    nets = import_module("engines_nets")
    torch.manual_seed(0)
    write = getattr(nets, f"write_{'tiny_' * tiny}{name}", getattr(nets, f"write_{name}"))
    files = write(Path(folder), options, frame().image)
    return {"files": files, "values": nets.values(files)}


def main() -> None:
    job = json.loads(sys.argv[1])
    cv2.setNumThreads(1)
    if size := job.pop("image_size", None):
        from cxr.imaging.boxes import scaled_yolov4

        scaled_yolov4.IMAGE_SIZE = size
    try:
        told = {"make": make, "measure": measure}[job.pop("task")](**job)
    except UserError as error:
        told = {"refused": str(error)}
    except Exception as error:
        if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
            told = {"refused": f"{job['batch']} images at a time do not fit into memory: give a smaller --batch"}
        else:
            told = {"refused": f"{type(error).__name__}: {' '.join(str(error).split())}"}
    if any(isinstance(value, float) and not math.isfinite(value) for value in told.values()):
        told = {"refused": "no time was measured"}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
