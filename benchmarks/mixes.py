"""Measure the time and the memory of writing RadVLM's mix, in comparison with writing the same lines with json alone.

    python benchmarks/mixes.py [--images 4000]

Each job runs in a separate process, as in the workflow, so that the peak memory is its own. The facts are random: per
image 14 labels, 16 regions, two findings, a phrase and a text. They give about 12 lines per image.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from itertools import islice, product
from pathlib import Path
from unittest.mock import patch

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "scripts")]

import numpy as np  # noqa: E402
import polars as pl  # noqa: E402

from cxr.base.tables import read_lines, write_lines  # noqa: E402
from cxr.radvlm.instructions import join_parts, write_part  # noqa: E402
from cxr.radvlm.instructions.mix import mix_rows  # noqa: E402
from cxr.radvlm.labels import load_label_names  # noqa: E402
from cxr.radvlm.sources.facts import FACTS_SCHEMA, IMAGES_SCHEMA  # noqa: E402

SIDE = 2000
FINDINGS = ("edema", "pleural effusion", "consolidation", "atelectasis")
GIVEN = {
    "images": "images.parquet", "facts": "facts.parquet", "conflicts": "conflicts.parquet", "texts": "texts.jsonl",
    "phrases": "phrases.jsonl",
}  # fmt: skip
PARTS = {"lines_out": "part.jsonl", "index": "index.parquet", "excluded": "excluded.tsv"}
FILES = {
    "train": "train.jsonl", "validate": "validate.jsonl", "test": "test.jsonl", "exchanged_out": "exchanged.jsonl",
    "table1_out": "table1.tsv", "conservation_out": "conservation.tsv",
}  # fmt: skip
WRITTEN = ("train", "validate", "test", "exchanged")


def draw(folder: Path, count: int) -> None:
    """Write the tables and texts of a source of ``count`` images with random facts."""
    rng, known = np.random.default_rng(1), load_label_names()
    ids = [f"image{at:07d}" for at in range(count)]
    split = ["test" if at % 20 == 0 else "validate" if at % 20 == 1 else "train" for at in range(count)]
    images = pl.DataFrame({
        "source": ["own"] * count, "image_id": ids, "study_id": ids, "subject_id": ids, "split": split,
        "view": ["PA"] * count, "sex": [None] * count, "rows": [SIDE] * count, "columns": [SIDE] * count,
        "path": [f"{one}.dcm" for one in ids], "frames": ["own"] * count,
    }, schema=IMAGES_SCHEMA)  # fmt: skip
    of_image = [("label", label) for label in known.names] + [("region", region) for region in known.regions]
    asked = list(product(range(count), of_image))
    asked += [(at, ("box", FINDINGS[(at + k) % len(FINDINGS)])) for at in range(count) for k in (0, 1)]
    asked += [(at, ("phrase", f"There is a small {FINDINGS[at % len(FINDINGS)]}.")) for at in range(count)]
    low = rng.uniform(0, SIDE / 2, (len(asked), 2))
    corners = np.concatenate([low, low + rng.uniform(50, SIDE / 2, (len(asked), 2))], axis=1)
    flat = np.array([kind == "label" for _, (kind, _) in asked])
    values = np.where(flat, np.where(rng.random(len(asked)) < 0.2, "present", "absent"), None)
    facts = pl.DataFrame({
        "fact_id": [f"f{at:016x}" for at in range(len(asked))], "image_id": [ids[at] for at, _ in asked],
        "kind": [kind for _, (kind, _) in asked], "name": [name for _, (_, name) in asked],
        "value": values.tolist(), "stated": values.tolist(),
        "group": [f"g{at}" if kind == "phrase" else None for at, (kind, _) in asked], "reader": [None] * len(asked),
    } | {
        name: np.where(flat, None, corners[:, at]).tolist() for at, name in enumerate(("x1", "y1", "x2", "y2"))
    }, schema=FACTS_SCHEMA).sort("image_id", "kind", "name", "fact_id")  # fmt: skip
    images.write_parquet(folder / GIVEN["images"])
    facts.write_parquet(folder / GIVEN["facts"])
    images.select("source", "image_id").head(0).write_parquet(folder / GIVEN["conflicts"])
    texts = (
        {"source": "own", "study_id": one, "image_ids": [one], "text": f"Small {FINDINGS[at % 4]}. No pneumothorax.",
         "engine": "rules"} for at, one in enumerate(ids)
    )  # fmt: skip
    phrases = (
        {"image_id": one, "group": f"g{at}", "text": f"There is a small {FINDINGS[at % 4]}.", "action": "kept",
         "engine": "rules"} for at, one in enumerate(ids)
    )  # fmt: skip
    write_lines(folder / GIVEN["texts"], texts)
    write_lines(folder / GIVEN["phrases"], phrases)


ROWS = list(map(asdict, mix_rows({"preset": "own", "tasks": {}}, {"own": "own"})))
OPTIONS = {"smallest": 64, "seed": 1}


def write(folder: Path) -> None:
    """Run the job that writes the lines of the source."""
    given = {name: str(folder / file) for name, file in GIVEN.items()}
    part = {name: str(folder / file) for name, file in PARTS.items()}
    geometry = lambda _, image_ids: dict.fromkeys(image_ids, (None, (SIDE, SIDE)))  # noqa: E731
    with patch.object(write_part, "read_geometry", geometry):  # the frames are not what is measured
        write_part.run(**given, **part, frames=[], source="own", rows=ROWS, **OPTIONS)


def join(folder: Path) -> None:
    """Run the job that joins the sources."""
    part = {name: str(folder / file) for name, file in PARTS.items()}
    join_parts.run(
        lines=[part["lines_out"]], indices=[part["index"]], excluded=[part["excluded"]],
        **{name: str(folder / file) for name, file in FILES.items()},
        rows=ROWS, families={"own": "own"}, seed=1,
    )  # fmt: skip


def of_job(job: Callable[[Path], None], folder: Path) -> dict:
    """Run a job; return its core seconds and the peak memory of this process."""
    began = time.process_time()
    job(folder)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": time.process_time() - began, "peak_mb": peak}


def of_json(folder: Path) -> dict:
    """Return the number of written lines, and the core seconds of writing them again with json alone."""
    seconds, lines = 0.0, 0
    for name in WRITTEN:
        with open(folder / "plain.jsonl", "w", encoding="utf-8") as file:
            held = read_lines(folder / f"{name}.jsonl")
            while some := list(islice(held, 5000)):
                began = time.process_time()
                file.writelines(json.dumps(line) + "\n" for line in some)
                seconds += time.process_time() - began
                lines += len(some)
    return {"lines": lines, "seconds": seconds}


STEPS = {
    "draw": draw, "write": lambda folder, _: of_job(write, folder), "join": lambda folder, _: of_job(join, folder),
    "json": lambda folder, _: of_json(folder),
}  # fmt: skip
"""{step: function of a folder and the number of images that runs the step}."""


def measured(images: int) -> dict:
    """Return the number of lines, the core seconds and the peak memory of the jobs, each run in a separate process."""
    with tempfile.TemporaryDirectory() as folder:
        found = {}
        for step in STEPS:
            asked = [sys.executable, __file__, "--images", str(images), "--step", step, folder]
            found[step] = json.loads(subprocess.run(asked, check=True, stdout=subprocess.PIPE, text=True).stdout)
    ours, plain = found["write"]["seconds"] + found["join"]["seconds"], found["json"]["seconds"]
    peaks = {f"peak_mb_{step}": found[step]["peak_mb"] for step in ("write", "join")}
    return {"lines": found["json"]["lines"], "seconds": ours, "plain_seconds": plain, "ratio": ours / plain} | peaks


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--step", nargs=2, help=argparse.SUPPRESS)
    told = parser.parse_args()
    print(json.dumps(STEPS[told.step[0]](Path(told.step[1]), told.images) if told.step else measured(told.images)))
