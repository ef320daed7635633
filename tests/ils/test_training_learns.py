"""A short training lowers the loss and finds lesions in pictures that it has not seen."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from cxr.base.hdf5 import ShardWriter
from cxr.base.tables import write_lines
from cxr.ils.rosalia.lite import make_lite
from cxr.ils.rosalia.model import Rosalia
from cxr.ils.rosalia.samples import Batch, Pairs
from cxr.ils.rosalia.tokens import Tokens
from cxr.ils.training.fit import Scores, score_pairs
from cxr.ils.training.train import PARTS
from rosalia_pairs import OPTIONS
from training_runs import SIZES, options, train, updates

SIDE = 64
LEARNER = SIZES | {"width": 32, "depth": 2, "hidden": 48}
SPLITS = {"train": range(48), "validate": range(48, 56), "test": range(56, 80)}


def disc(number: int) -> tuple[np.ndarray, np.ndarray, str]:
    """A dark noisy picture with a bright disc in its left or right half; picture, disc and half."""
    rng = np.random.default_rng(number)
    half = ("left", "right")[number % 2]
    x, y, radius = rng.integers(10, 22) + 32 * (half == "right"), rng.integers(12, 52), rng.integers(6, 10)
    rows, columns = np.mgrid[:SIDE, :SIDE]
    mask = (columns - x) ** 2 + (rows - y) ** 2 < radius**2
    picture = rng.integers(20, 60, (SIDE, SIDE)) + rng.integers(90, 150) * mask
    return picture.astype(np.uint8), mask, half


def line(number: int, half: str, seg: bool) -> dict:
    """A pair about one half of a picture."""
    return {
        "pair_id": f"{number}{half}", "image_id": f"i{number}", "mask_id": f"m{number}" if seg else None, "seg": seg,
        "instruction": f"Segment the edema in the {half} lung.",
        "answer": "[SEG]" if seg else f"[SEG] There is no edema in the {half} lung.",
    }  # fmt: skip


def written(folder: Path) -> dict:
    """Write the pictures with two pairs each: the half with the disc is positive, the other one negative."""
    shards = {name: str(folder / f"{name}.h5") for name in ("frames", "masks")}
    lines = {split: [] for split in SPLITS}
    with ShardWriter(shards["frames"]) as frames, ShardWriter(shards["masks"], key="mask_id") as masks:
        for split, numbers in SPLITS.items():
            for number in numbers:
                picture, mask, where = disc(number)
                frames.append(f"i{number}", image=picture)
                masks.append(f"m{number}", mask=mask)
                lines[split] += [line(number, half, half == where) for half in ("left", "right")]
    for split, some in lines.items():
        write_lines(folder / f"{split}.jsonl", some)
    return {
        "train": str(folder / "train.jsonl"), "validate": str(folder / "validate.jsonl"),
        "masks": [shards["masks"]], "frames": [shards["frames"]],
    }  # fmt: skip


class Everything(torch.nn.Module):
    """The baseline that calls every pixel a lesion."""

    def __init__(self):
        super().__init__()
        self.sam = torch.nn.Linear(1, 1)

    def segment(self, batch: Batch) -> list[torch.Tensor]:
        return [torch.ones(mask.shape[1:]) for mask in batch.masks]


def held_out(model: torch.nn.Module, given: dict, tokens: Tokens) -> Scores:
    held = {name: given[name] for name in ("masks", "frames")}
    pairs = Pairs(lines=given["train"].replace("train", "test"), tokens=tokens, options=OPTIONS, **held)
    alone = SimpleNamespace(rank=0, ranks=1, sum=lambda values: values)
    return score_pairs(model, pairs, 16, 0, alone, torch.device("cpu"))


@pytest.mark.slow
def test_it_learns(tmp_path):
    """Seeds 3, 4 and 5 gave 0.87, 0.87 and 0.84 on the pictures held out; an untrained model 0.06, everything 0.05."""
    given = written(tmp_path)
    recipe = {"sizes": LEARNER, "epochs": 15, "batch": 8, "micro_batch": 8, "lora": {"rank": 0}, "warmup": 10}
    recipe |= {"learning_rate": 2e-3}  # from random weights
    made = train(tmp_path / "out", given, options(recipe | {"trained": list(PARTS)}))
    losses = updates(made)["loss"].to_numpy()
    assert losses[-12:].mean() < losses[:12].mean() / 5
    tokens = Tokens.load(made / "model")
    untrained = make_lite(SimpleNamespace(**LEARNER), tokens, 1)
    assert max(held_out(model, given, tokens).giou for model in (untrained, Everything())) < 0.1
    assert held_out(Rosalia.from_pretrained(made / "model"), given, tokens).giou > 0.6
