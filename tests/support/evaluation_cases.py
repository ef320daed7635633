"""A small dataset with its masks, and predictions for it, for the tests of the evaluation."""

import json
from pathlib import Path

import numpy as np

from cxr.base.hdf5 import ShardWriter
from cxr.base.tables import write_lines

SIDE = 16
"""Side of the references; scored in squares of 32."""
SIZE = 32


def box(top: int, left: int, bottom: int, right: int, side: int = SIDE) -> np.ndarray:
    mask = np.zeros((side, side), bool)
    mask[top:bottom, left:right] = True
    return mask


MASKS = {"m0": box(0, 0, 4, 4), "m1": box(4, 4, 12, 12), "m2": box(0, 0, 16, 8)}
"""16, 64 and 128 px in their own frame, four times that when scored."""


def pair(number: int, subject: str, target: str, kind: str, mask: str | None, instruction: str, answer: str) -> dict:
    return {
        "pair_id": f"p{number}",
        "subject_id": subject,
        "study_id": f"st-{subject}",
        "image_id": f"im-{subject}",
        "section_content": "text of a report",
        "target": target,
        "type": kind,
        "instruction": instruction,
        "answer": answer,
        "seg": mask is not None,
        "mask_id": mask,
    }


LINES = [
    pair(0, "a", "effusion", "basic", "m0", "Segment the effusion in the left lung.", "[SEG]"),
    pair(1, "a", "edema", "global", "m1", "Segment the edema.", "[SEG] It is located in the right lung and left lung."),
    pair(
        2,
        "b",
        "edema",
        "lesion_inference",
        "m1",
        "Segment the opacity in the left lung and predict its type.",
        "[SEG] It is highly suggestive of edema.",
    ),
    pair(3, "b", "effusion", "global", None, "Segment the effusion.", "[SEG] There is no effusion."),
    pair(
        4,
        "c",
        "opacity",
        "basic",
        None,
        "Segment the opacity in the left lung.",
        "[SEG] There is no opacity in the left lung.",
    ),
    pair(5, "c", "cardiomegaly", "global", "m2", "Segment the cardiomegaly.", "[SEG]"),
]


def dataset(folder: Path, lines: list[dict] | None = None) -> dict[str, object]:
    """Write lines, two shards of masks; return the inputs of the stage by name."""
    lines = LINES if lines is None else lines
    write_lines(folder / "test.jsonl", lines)
    for shard, names in (("00", ["m0", "m1"]), ("01", ["m2"])):
        with ShardWriter(folder / f"{shard}.h5", key="mask_id") as writer:
            for name in names:
                writer.append(name, mask=MASKS[name])
    return {
        "lines": str(folder / "test.jsonl"),
        "masks": [str(folder / f"{shard}.h5") for shard in ("00", "01")],
    }


def predictions(folder: Path, entries: list[dict | str], masks: dict[str, np.ndarray] | None = None) -> dict[str, str]:
    """Write predictions, and their masks if there are any; return the inputs of the stage by name."""
    path = folder / "predictions.jsonl"
    texts = (entry if isinstance(entry, str) else json.dumps(entry) for entry in entries)
    path.write_text("".join(f"{text}\n" for text in texts))
    if masks is None:
        return {"predictions": str(path)}
    shape = next(iter(masks.values())).shape if masks else (SIZE, SIZE)
    with ShardWriter(folder / "predictions.h5", key="pair_id", empty={"mask": (shape, bool)}) as writer:
        for name, mask in masks.items():
            writer.append(name, mask=mask)
    return {"predictions": str(path), "prediction_masks": str(folder / "predictions.h5")}


def outputs(folder: Path) -> dict[str, str]:
    """Return the outputs of the scores' run by name."""
    names = {
        "pairs": "pairs.parquet",
        "scores_table": "scores.tsv",
        "text_table": "text.tsv",
        "excluded": "excluded.parquet",
        "counts_table": "counts.tsv",
    }
    return {name: str(folder / file) for name, file in names.items()}
