"""The pieces of `benchmarks/gpu.py`, each of which runs a program and returns its results as rows."""

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import torch

from cxr.base.tables import read_table
from cxr.nets.devices import select_device

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 590
MARK = "pytest." + "mark.gpu"
"""Text in every test file that has tests for a GPU. It is split, so that this file does not contain it."""
DTYPES = {"float32": torch.float32, "tf32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
APART = {"cxas": "make test-cxas", "ultralytics": "make test-ultralytics", "vllm": "make vllm"}
"""{package with a separate environment, .venv-<package>: command that makes this environment}."""
STEPS = 20
"""Number of diffusion steps that are run; the time of all steps is extrapolated."""


class Refused(Exception):
    """Raised if a piece gave no results; the message is one sentence."""


class Absent(Exception):
    """Raised if the package of a piece is not installed; the message is one sentence."""


Row = tuple[str, float, str]
"""(description, value, unit)."""


@dataclass(frozen=True)
class Piece:
    """A piece of the measurements. ``run`` returns its rows; it raises Refused or Absent."""

    name: str
    run: Callable[[argparse.Namespace], list[Row]]


def called(*command: object, python: str = sys.executable) -> str:
    """Run a program and return its output. Raises Refused if it fails or takes longer than :data:`LIMIT_S`."""
    try:
        done = subprocess.run([python, *map(str, command)], capture_output=True, text=True, check=False,
                              timeout=LIMIT_S, cwd=ROOT)  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Refused(f"took longer than {LIMIT_S} s") from None
    if done.returncode:
        last = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()][-1:]
        raise Refused(f"ended with {done.returncode} ({''.join(last)})")
    return done.stdout


def python_with(package: str) -> str:
    """Return a Python interpreter that has the package: from its separate environment, else this one. Raises Absent."""
    own = ROOT / f".venv-{package}/bin/python"
    python = str(own) if own.exists() else sys.executable
    there = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({package!r}) is None)"
    if subprocess.run([python, "-c", there], check=False).returncode:
        raise Absent(f"the package {package} is not installed: `{APART[package]}` makes an environment with it")
    return python


def tests(given: argparse.Namespace) -> list[Row]:
    """Run the tests with the mark ``gpu``, which are skipped without a GPU."""
    files = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if MARK in path.read_text(encoding="utf-8")]
    told = called("-m", "pytest", "-n", "0", "-m", "gpu", *files)
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|skipped)", told)}
    return [(f"tests {word}", float(counts.get(word, 0)), "tests") for word in ("passed", "skipped")]


def rates(given: argparse.Namespace) -> list[Row]:
    """Measure the speed of square matrix products for each number type."""
    device, rows = select_device(given.device), []
    side, rounds = (256, 2) if given.tiny else (8192, 20)
    for name, dtype in DTYPES.items():
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        one, other = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
        one @ other
        _wait(device)
        began = time.perf_counter()
        for _ in range(rounds):
            one @ other
        _wait(device)
        rows.append((f"matrix product in {name}", 2e-12 * side**3 * rounds / (time.perf_counter() - began), "TFLOP/s"))
    return rows


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def engine(name: str, batch: int, *settings: str) -> Callable[[argparse.Namespace], list[Row]]:
    """Return the function of the piece that measures an engine; ``settings``: key=value of the section compute."""

    def run(given: argparse.Namespace) -> list[Row]:
        table = given.folder / f"engines_{'_'.join((name, str(batch), *settings))}.table.tsv"
        images = batch if given.tiny else max(2 * batch, 8)
        command = ["benchmarks/engines.py", "--device", given.device, "--engines", name, "--images", images]
        command += ["--tiny"] * given.tiny + ["--compute", *settings] * bool(settings)
        if name in APART:
            command += ["--python", f"{name}={python_with(name)}"]
        steps = ["--steps", 1 if given.tiny else STEPS] if name == "radedit" else []
        called(*command, "--batch", batch, *steps, "--output", table.resolve())
        found = read_table(table).filter(pl.col("batch") == batch).to_dicts()
        what = f"{name}, {batch} at a time" + "".join(f", {one}" for one in settings)
        return [
            row
            for one in found
            for row in ((what, one["s_per_image"], "s an image"), (f"{what}, memory", one["peak_gb"], "GB"))
        ]

    return run


def autoencoder(given: argparse.Namespace) -> list[Row]:
    """Measure the speed and the rounding error of the autoencoder for each number type and layout."""
    found, rows = _table(given, "autoencoder", "--images", 2 if given.tiny else 8, *["--tiny"] * given.tiny), []
    for one in found:
        what = f"autoencoder in {one['autoencoder']}, {one['layout']}, random weights"
        rows.append((what, one["s_per_image"], "s an image"))
        rows.append((f"{what}, mean change of the picture", one["mean_grey"], "grey levels"))
        rows.append((f"{what}, largest change of the picture", one["most_grey"], "grey levels"))
    return rows


def editing(given: argparse.Namespace) -> list[Row]:
    """Measure SemiSynCXR's editing with RadEdit."""
    size = ["--tiny", "--edits", 4, "--steps", 1] if given.tiny else ["--edits", 16, "--batch", 16, "--steps", 5]
    return [
        (f"SemiSynCXR radedit, {one['what']}", one["s_per_edit"], "s an edit")
        for one in _table(given, "semisyn_editing_speed", *size)
    ]


def language_model(given: argparse.Namespace) -> list[Row]:
    """Measure the loading time and the speed of vLLM with a small model."""
    size = ["--tiny", "--texts", 4, "--tokens", 16] if given.tiny else []
    device = ["--device", select_device(given.device).type]
    found = _table(given, "language_model_speed", *size, python=python_with("vllm"), device=device)
    return [(one["what"], one["value"], one["unit"]) for one in found]


def rosalia(given: argparse.Namespace) -> list[Row]:
    """Measure ROSALIA's training step, answers and masks, in comparison with a plain port of the published code."""
    # in bfloat16, because in float32 a single different pixel would exceed the limit for these small masks
    quick = "--size lite --updates 0 --steps 1 --rounds 1 --batches 2 --images 2 --max-new-tokens 4 --dtype bfloat16"
    size = (quick if given.tiny else "--size 7b --dtype bfloat16 --batches 1,4").split()
    rows = []
    for one in _table(given, "rosalia", "--results", results(given), *size):
        what = f"ROSALIA {one['size']}, {one['what']}, {one['batch']} at a time"
        rows.append((what, one["ours_pairs_per_s"], "pairs a second"))
        rows.append((f"{what}, over the plain port", one["ratio"], "times"))
        rows.append((f"{what}, memory", one["ours_peak_gb"], "GB"))
    return rows


def rosalia_memory(given: argparse.Namespace) -> list[Row]:
    """Measure the memory of ROSALIA's training step, and calculate it for comparison."""
    size = ["--size", "lite"] if given.tiny else ["--size", "7b", "--dtype", "bfloat16"]
    rows = []
    for one in _table(given, "rosalia_memory", "--results", results(given), *size):
        what = f"ROSALIA {one['size']}, {one['batch']} pairs, {one['what']}"
        rows.append((f"{what}, tensors alive", one["measured_gb"], "GB"))
        if one["reckoned_gb"] is not None:
            rows.append((f"{what}, by arithmetic", one["reckoned_gb"], "GB"))
    return rows


def results(given: argparse.Namespace) -> Path:
    """Return the results folder with ROSALIA's pairs; if there are none, make them from the embedded cohort. Raises
    Refused."""
    if (given.results / "dataset/default/train.jsonl").is_file():
        return given.results.resolve()
    run = given.folder / "run"
    if not (run / "results/dataset/default/train.jsonl").is_file():
        run.mkdir(exist_ok=True)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        called("-m", "snakemake", "--directory", run.resolve(), "--cores", cores, "--quiet", "rules", "--", "dataset")
    return (run / "results").resolve()


def _table(
    given: argparse.Namespace, program: str, *arguments: object, python: str = sys.executable,
    device: list[str] | None = None,
) -> list[dict]:  # fmt: skip
    """Run a benchmark that writes a table and return its rows."""
    table = given.folder / f"{program}.table.tsv"
    where = device or ["--device", given.device]
    called(f"benchmarks/{program}.py", *where, *arguments, "--output", table.resolve(), python=python)
    return read_table(table).to_dicts()


def pieces(tiny: bool) -> list[Piece]:
    """Return all pieces in the order in which they run."""
    sizes = {"hybridgnet": (1, 8, 64), "cxas": (1, 8), "scaled_yolov4": (1, 8), "ultralytics": (1, 8),
             "radedit": (1, 8, 16)}  # fmt: skip
    found = [Piece("tests", tests), Piece("rates", rates)]
    for name, some in sizes.items():
        found += [Piece(f"{name}_{batch}", engine(name, batch)) for batch in (some[:1] if tiny else some)]
    fast = ("channels_last=true", "compile=true", "cudnn=fastest")
    found += [] if tiny else [Piece("radedit_8_fast", engine("radedit", 8, *fast))]
    more = {
        "autoencoder": autoencoder, "semisyn_editing": editing, "vllm": language_model, "rosalia": rosalia,
        "rosalia_memory": rosalia_memory,
    }  # fmt: skip
    return found + [Piece(name, run) for name, run in more.items()]
