"""A very small ROSALIA that has learnt a few pictures by heart: its answers hold no, one or two [SEG]."""

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

from cxr.base.hdf5 import ShardWriter
from cxr.base.tables import write_lines
from cxr.ils.rosalia.lite import make_lite
from cxr.ils.rosalia.model import Rosalia
from cxr.ils.rosalia.samples import PairOptions, Pairs, collate
from cxr.ils.rosalia.tokens import Tokens, make_word_tokenizer

SIZES = SimpleNamespace(image=64, patch=8, width=32, depth=2, clip_image=32, clip_patch=16, hidden=48, layers=2)
TARGET = 64
ONE, NONE, TWO = "Segment the effusion.", "Segment the edema.", "Segment the opacity in the left lung, please."
ANSWERS = {
    ONE: "[SEG] It is located in the left lung.",
    NONE: "There is no edema.",
    TWO: "[SEG] It is here and there [SEG]",
}
IMAGES = tuple(f"image{number}" for number in range(5))


@dataclass(frozen=True)
class Tiny:
    """The model's folder, the pairs, and the shards of frames and masks."""

    folder: Path
    model: Path
    lines: Path
    frames: list[Path]
    masks: Path


def frame(number: int) -> np.ndarray:
    """A dark picture of 512 px with a bright disc whose place depends on the number."""
    y, x = np.mgrid[:512, :512]
    disc = disc_of(number)
    noise = np.random.default_rng(number).integers(0, 40, (512, 512))
    return (noise + 40 + 150 * disc + (x + y) // 32).astype(np.uint8)


def disc_of(number: int) -> np.ndarray:
    y, x = np.mgrid[:512, :512]
    return (x - 120 - 60 * number) ** 2 + (y - 160 - 40 * number) ** 2 < 90**2


def lines_of(instructions: dict[str, str] = ANSWERS) -> list[dict]:
    return [
        {"pair_id": f"p{number}_{place}", "image_id": image, "instruction": instruction, "answer": answer,
         "seg": "[SEG]" in answer, "mask_id": f"m{number}" if "[SEG]" in answer else None, "study_id": f"s{number}",
         "target": ("effusion", "edema", "opacity")[place], "split": "test"}
        for number, image in enumerate(IMAGES) for place, (instruction, answer) in enumerate(instructions.items())
    ]  # fmt: skip


def make(folder: Path, updates: int = 60) -> Tiny:
    """Write data and a model that is trained on them."""
    tiny = Tiny(
        folder, folder / "runs/tiny", folder / "test.jsonl", [folder / "00.h5", folder / "01.h5"],
        folder / "masks/00.h5",
    )  # fmt: skip
    write_lines(tiny.lines, lines_of())
    for shard, path in enumerate(tiny.frames):
        with ShardWriter(path) as writer:
            for number, image in list(enumerate(IMAGES))[shard::2]:
                writer.append(image, image=frame(number))
    tiny.masks.parent.mkdir()
    with ShardWriter(tiny.masks, key="mask_id") as writer:
        for number in range(len(IMAGES)):
            writer.append(f"m{number}", mask=disc_of(number))
    tokens = Tokens.prepare(make_word_tokenizer([*ANSWERS, *ANSWERS.values(), "Segment the pneumonia."]))
    model = make_lite(SIZES, tokens, 1)
    learn(model, tokens, tiny, updates)
    model.save_pretrained(tiny.model)
    tokens.save(tiny.model)
    return tiny


def learn(model: Rosalia, tokens: Tokens, tiny: Tiny, updates: int) -> None:
    options = PairOptions(
        conversation="llava_v1", max_length=512, features=4, sam_side=SIZES.image, clip_side=SIZES.clip_image,
        target=TARGET, fit="pad", answers=True, equalise=True,
    )  # fmt: skip
    pairs = Pairs(lines=str(tiny.lines), tokens=tokens, options=options, frames=tiny.frames, masks=[tiny.masks])
    batch = collate([pairs[row] for row in range(len(pairs))], tokens.pad).to("cpu")
    optimiser = torch.optim.AdamW(model.parameters(), 3e-3)
    model.train()
    for _ in range(updates):
        output = model(batch)
        loss = torch.nn.functional.cross_entropy(output.text_logits, output.text_labels)
        for drawn, wanted in zip(output.masks, batch.masks, strict=True):
            if len(drawn):
                loss = loss + torch.nn.functional.binary_cross_entropy_with_logits(drawn, wanted.expand_as(drawn)) / 5
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    model.eval()


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
