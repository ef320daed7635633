"""Drawn pictures with two things in each, queries for either, and tunings of tiny models on them."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from cxr.base.hdf5 import ShardWriter
from cxr.base.tables import read_lines, write_lines
from cxr.vlm.answers.ask import run_answers
from cxr.vlm.answers.engine import AnswersOptions
from cxr.vlm.tuning.tune import TuningOptions, run_tuning

SIDE = 56
COMPUTE = {"device": "cpu", "gpus": 0, "asked": 0, "checkpoint_every": 2, "time_to_stop": 60, "batch": 8}
RECIPE = {
    "method": "full", "lora": {"rank": 4, "alpha": 8, "target": "language"},
    "parts": ["vision", "projector", "language"], "rates": {}, "epochs": 2, "updates": 0, "batch": 4, "micro_batch": 4,
    "learning_rate": 4e-3, "warmup_ratio": 0.1, "max_length": 2048, "dtype": "float32", "runner": "plain",
}  # fmt: skip
OPTIONS = TuningOptions("tiny", "qwen25vl", "grid1000", SIDE, 42, RECIPE)
ASKING = AnswersOptions("transformers", "", 64, 4096, "own", "float32", 1)


def recipe(options: TuningOptions = OPTIONS, **changed: object) -> TuningOptions:
    return replace(options, recipe=options.recipe | changed)


def data(folder: Path, pictures: int = 6, sizes: tuple[tuple[int, int], ...] = ((SIDE, SIDE),)) -> dict:
    """Write shards and lines: of each picture, the bright and the dark rectangle, which never overlap."""
    rng = np.random.default_rng(4)
    lines, shards = [], []
    for number, (height, width) in enumerate(sizes):
        path = folder / "drawn" / f"{number:02d}.h5"
        with ShardWriter(path) as writer:
            for at in range(number, pictures, len(sizes)):
                picture = np.full((height, width, 3), 100, np.uint8)
                for query, left, value in (("bright", 0, 250), ("dark", width // 2, 10)):
                    x1 = left + int(rng.integers(0, width // 5))
                    y1 = int(rng.integers(0, height // 2))
                    x2, y2 = x1 + int(rng.integers(8, width // 4)), y1 + int(rng.integers(8, height // 2))
                    picture[y1:y2, x1:x2] = value
                    box = [x1 * 1000 // width, y1 * 1000 // height, x2 * 1000 // width, y2 * 1000 // height]
                    named = {"query_id": f"q{at}{query}", "image_id": f"p{at}", "source": "drawn", "split": "train"}
                    lines.append(named | {"query": f"the {query} thing", "boxes": [box]})
                writer.append(f"p{at}", picture=picture)
        shards.append(str(path))
    lines.sort(key=lambda line: line["query_id"])
    write_lines(folder / "lines.jsonl", lines)
    return {"lines": str(folder / "lines.jsonl"), "pictures": shards, "rows": lines}


def tune(folder: Path, given: dict, options: TuningOptions = OPTIONS, base: str = "", **compute: object) -> Path:
    """Tune in a folder; return the run."""
    run_tuning(
        lines=given["lines"], pictures=given["pictures"], run=str(folder / "run"), updates=str(folder / "updates.tsv"),
        left_out=str(folder / "left_out.parquet"), conservation=str(folder / "conservation.tsv"), options=options,
        attrs={}, compute=COMPUTE | compute, base=base,
    )  # fmt: skip
    return folder / "run"


def ask(path: Path, given: dict, run: Path | str, options: AnswersOptions = ASKING, base: str = "", **compute) -> Path:
    """Ask a run about all lines; return the file of answers."""
    run_answers(
        lines=given["lines"], pictures=given["pictures"], answers=str(path), options=options, attrs={},
        compute=COMPUTE | compute, run=str(run), base=base,
    )  # fmt: skip
    return path


def differing(one: Path, other: Path) -> set[str]:
    """Return the samples whose lines differ between two files of answers, which must be of the same turns.

    Where two batches round differently, a near tie between two words may fall either way: a test allows it once.
    """
    pairs = list(zip(read_lines(one), read_lines(other), strict=True))
    assert all(line["sample_id"] == same["sample_id"] and line["turn"] == same["turn"] for line, same in pairs)
    return {line["sample_id"] for line, same in pairs if line != same}


def contents(folder: Path) -> dict[str, bytes]:
    """Return {name: bytes} of all files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
