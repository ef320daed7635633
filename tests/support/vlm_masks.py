"""Frames with a bright and a dark rectangle, their masks, lines that ask for either, and tunings with a head."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from cxr.base.hdf5 import Shard, ShardWriter
from cxr.base.tables import read_lines, write_lines
from cxr.geometry.affine import fit_affine
from cxr.vlm.answers.ask import run_answers
from cxr.vlm.tuning.tune import TuningOptions, run_tuning
from vlm_runs import ASKING, COMPUTE, RECIPE

FRAME = 512
HEAD = {"start": "lite", "learning_rate": 2e-3}
OPTIONS = TuningOptions(
    "tiny", "onevision", "unit", 64, 42, RECIPE | {"learning_rate": 2e-3, "rates": {"vision": 1e-3}}, head=HEAD,
)  # fmt: skip


def scenes(folder: Path, pictures: int = 2) -> dict:
    """Write frames, masks and lines: of each frame two positives, a negative, a conversation with two masks, a text."""
    rng, lines = np.random.default_rng(1), []
    frames, masks = folder / "own" / "00.h5", folder / "masks" / "00.h5"
    with ShardWriter(frames, pictures=("image",)) as shown, ShardWriter(masks, key="mask_id") as drawn:
        for at in range(pictures):
            frame, ids = np.full((FRAME, FRAME), 90, np.uint8), {}
            for name, left, value in (("bright", 40, 230), ("dark", 280, 10)):
                x, y = left + int(rng.integers(0, 60)), int(rng.integers(30, 300))
                mask = np.zeros((FRAME, FRAME), bool)
                mask[y : y + 150, x : x + 130] = True
                frame[mask], ids[name] = value, f"m{at}{name}"
                drawn.append(ids[name], mask=mask)
            shape = np.array((FRAME, FRAME), np.int32)
            shown.append(
                f"i{at}", image=frame, to_original=fit_affine((FRAME, FRAME), FRAME, "pad"), original_shape=shape
            )
            lines += _lines(at, ids)
    write_lines(folder / "lines.jsonl", lines)
    return {"lines": str(folder / "lines.jsonl"), "pictures": [str(frames)], "masks": [str(masks)], "rows": lines}


def _lines(at: int, ids: dict[str, str]) -> list[dict]:
    def line(name: str, task: str, *turns: tuple[str, str], masks: tuple[str, ...] = ()) -> dict:
        told = [{"question": question, "answer": answer} for question, answer in turns]
        same = {"image_id": f"i{at}", "source": "own", "split": "train", "task": task}
        return {"sample_id": f"s{at}{name}"} | same | {"turns": told, "mask_ids": list(masks)}

    both = ("Segment both.", "The bright one [SEG] and the dark one [SEG].")
    return [
        line("bright", "ils_segmentation", ("Segment the bright thing.", "[SEG]"), masks=(ids["bright"],)),
        line("dark", "ils_segmentation", ("Segment the dark thing.", "[SEG] It is dark."), masks=(ids["dark"],)),
        line("none", "ils_segmentation", ("Segment the green thing.", "[SEG] There is none."), masks=("",)),
        line("both", "conversation", ("What is there?", "Two things."), both, masks=(ids["bright"], ids["dark"])),
        line("text", "classification", ("What is there?", "Things.")),
    ]


def recipe(options: TuningOptions = OPTIONS, **changed: object) -> TuningOptions:
    return replace(options, recipe=options.recipe | changed)


def tune(folder: Path, given: dict, options: TuningOptions = OPTIONS, base: str = "", **compute: object) -> Path:
    """Tune in a folder; return the run."""
    files = {name: given[name] for name in ("lines", "pictures", "masks")} | {"sam": given.get("sam", "")}
    run_tuning(
        **files, run=str(folder / "run"), updates=str(folder / "updates.tsv"),
        left_out=str(folder / "left_out.parquet"), conservation=str(folder / "conservation.tsv"), options=options,
        attrs={}, compute=COMPUTE | compute, base=base,
    )  # fmt: skip
    return folder / "run"


def ask(path: Path, given: dict, run: Path, base: str = "", **compute: object) -> tuple[Path, Path]:
    """Ask a run about all lines; return the files of answers and of masks."""
    masks = path.with_suffix(".h5")
    run_answers(
        lines=given["lines"], pictures=given["pictures"], answers=str(path), masks=str(masks), options=ASKING,
        attrs={}, compute=COMPUTE | compute, run=str(run), base=base,
    )  # fmt: skip
    return path, masks


def found(answers: Path, masks: Path) -> dict[str, list[np.ndarray]]:
    """Return {sample_id/turn: masks} as a reader of the shard finds them."""
    with Shard(masks, key="mask_key") as shard:
        return {
            (name := f"{line['sample_id']}/{line['turn']}"): [
                shard.get("mask", f"{name}/{number}") for number in range(line["text"].count("[SEG]"))
            ]
            for line in read_lines(answers)
        }
