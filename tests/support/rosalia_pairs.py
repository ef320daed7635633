"""Write a small dataset of pairs to disk, as the earlier stages do."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from cxr.base.hdf5 import ShardWriter
from cxr.base.tables import write_lines
from cxr.ils.rosalia.samples import PairOptions, Pairs
from cxr.ils.rosalia.tokens import Tokens, make_word_tokenizer

OPTIONS = PairOptions(
    conversation="llava_v1",
    max_length=200,
    features=4,
    sam_side=64,
    clip_side=32,
    target=64,
    fit="pad",
    answers=True,
    equalise=False,
)


def picture(number: int, shape: tuple[int, int] = (64, 64)) -> np.ndarray:
    """A grey picture of its own, without many equal levels."""
    return np.random.default_rng(number).integers(0, 200, shape, dtype=np.uint8)


def blob(number: int, shape: tuple[int, int] = (64, 64)) -> np.ndarray:
    mask = np.zeros(shape, bool)
    mask[8 + number : 20 + 2 * number, 16:40] = True
    return mask


def line(number: int, seg: bool, image: int, **more: object) -> dict:
    kind = "positive" if seg else "negative"
    answer = "[SEG]" if seg else "[SEG] There is no edema in the left lung."
    fields = {"pair_id": f"s{image}_{kind}_{number}", "image_id": f"i{image}", "subject_id": f"p{image}"}
    fields |= {"instruction": "Segment the edema in the left lung.", "answer": answer, "seg": seg}
    return fields | {"mask_id": f"m{number}" if seg else None} | more


def write(folder: Path, positives: int = 7, negatives: int = 12, images: int = 4) -> dict:
    """Write lines, two shards of frames and of masks; return what Pairs takes of them."""
    lines = [line(number, True, number % images) for number in range(positives)]
    lines += [line(number, False, number % images) for number in range(negatives)]
    lines.sort(key=lambda one: one["image_id"])
    folder.mkdir(parents=True, exist_ok=True)
    write_lines(folder / "train.jsonl", lines)
    given = {"lines": str(folder / "train.jsonl"), "masks": [], "frames": []}
    for shard in (0, 1):
        for name in ("masks", "frames"):
            given[name].append(str(folder / name / f"0{shard}.h5"))
        with ShardWriter(given["masks"][-1], key="mask_id", empty={"mask": ((64, 64), bool)}) as writer:
            for number in range(shard, positives, 2):
                writer.append(f"m{number}", mask=blob(number))
        with ShardWriter(given["frames"][-1]) as writer:
            for number in range(shard, images, 2):
                writer.append(f"i{number}", image=picture(number))
    return given


def tokens() -> Tokens:
    return Tokens.prepare(
        make_word_tokenizer([one[key] for one in (line(0, False, 0),) for key in ("instruction", "answer")])
    )


def pairs(given: dict, **options: object) -> Pairs:
    return Pairs(**given, tokens=tokens(), options=replace(OPTIONS, **options))


def edit_line(given: dict, row: int, change: dict | str) -> dict:
    """Rewrite one line: with some fields changed (or left out where None is given as "drop"), or as raw text."""
    path = Path(given["lines"])
    texts = path.read_text().splitlines()
    if isinstance(change, str):
        texts[row] = change
    else:
        old = json.loads(texts[row]) | change
        texts[row] = json.dumps({name: value for name, value in old.items() if value != "drop"})
    path.write_text("\n".join(texts) + "\n")
    return given
