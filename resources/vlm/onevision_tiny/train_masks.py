"""Train what the base of RadVLM's small model knows of masks, and write it beside this file.

    python resources/vlm/onevision_tiny/train_masks.py [--work .onevision] [--cores 2]

It begins from the base that is there (train.py) and from the SAM of ROSALIA lite's base, and learns the ILS pairs of a
cohort of the base; lines of its mix keep what the base knows. What is learnt, and how well, is in CARD.md.
"""

import json
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import torch
from safetensors.torch import load_file, save_file

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "scripts"))
sys.path.insert(0, str(HERE))

from data import COHORTS, HELD, REGIONS, make, shown  # noqa: E402
from updates import arguments  # noqa: E402

from cxr.base.hdf5 import FRAME_SIZE, Shard  # noqa: E402
from cxr.base.seeds import stable_hash  # noqa: E402
from cxr.base.tables import read_lines  # noqa: E402
from cxr.base.vocabulary import SPLITS  # noqa: E402
from cxr.instructions.record import Turn  # noqa: E402
from cxr.segmentation.images import make_mask_target  # noqa: E402
from cxr.segmentation.segmenter import TRAINED_PREFIXES  # noqa: E402
from cxr.segmentation.starts import lite  # noqa: E402
from cxr.vlm.collate import Collator, Encoded  # noqa: E402
from cxr.vlm.conventions import find_convention  # noqa: E402
from cxr.vlm.models import Loaded, add_seg_token, load_model, make_tiny  # noqa: E402
from cxr.vlm.samples import ImageStore, Sample, all_texts, read_samples  # noqa: E402
from cxr.vlm.samples import to_model_input as seen  # noqa: E402
from cxr.vlm.segmenting import (  # noqa: E402
    MaskTargets,
    SegmentingModel,
    sam_image,
)
from cxr.vlm.tiny_base import BY_WORD, load_base  # noqa: E402
from cxr.vlm.tokens import SEG, Tokens  # noqa: E402
from cxr.vlm.tuning.fit import MaskLoss  # noqa: E402
from cxr.vlm.tuning.settings import OnevisionTinyRecipe  # noqa: E402

COHORT, STUDIES = next(iter(COHORTS.items()))
"""Seed and size of the base's first cohort, all of whose pairs are learnt from, as none is scored on."""
SEED = 2
LAYERS = "model.model.language_model.layers."
"""Beginning of the names of the language model's layers, which learn; what it sees and its other words stay."""
UPDATES, RATE, HEAD_RATE, WARMUP = 1000, 1e-3, 2e-3, 0.05
"""Updates, and the greatest rates of the language model and of the head; the share of updates that they rise in."""
PAIRS, TOLD = 24, 8
"""Pairs of an update, and lines of the mix."""
POSITIVES = 2
"""Most positives of a picture in an update."""
DENIED = ((0.0, 1), (0.6, 2))
"""Shares of the updates, and the negatives for each positive from then on."""
SHARE, OF_LINES = 0.75, 0.5
"""Shares of the pictures that are moved: of pairs, and of lines of the mix."""
SHIFT, TURN, SIZE, GREY = 0.05, 5.0, 0.1, 0.2
"""Largest shift as a fraction, turn in degrees, change of size and bend of the grey curve as logarithms."""


Drawn = tuple[list[Sample], np.ndarray, np.ndarray, list[np.ndarray]]


class Pairs:
    """ILS pairs of a cohort by image: frames and masks, uint8 (HELD, HELD), and the windows that pictures cover."""

    def __init__(self, folder: Path):
        results = folder / "results"
        self.of_image: dict[str, tuple[list[Sample], list[Sample]]] = {}
        for line in (one for split in SPLITS for one in read_lines(results / f"dataset/default/{split}.jsonl")):
            turn, masks = Turn(line["instruction"], line["answer"]), (line["mask_id"] or "",)
            one = Sample(
                line["pair_id"], line["image_id"], "own", line["split"], "ils_segmentation", (turn,), mask_ids=masks
            )
            self.of_image.setdefault(one.image_id, ([], []))[not line["seg"]].append(one)
        self.images = sorted(image for image, (positives, _) in self.of_image.items() if positives)
        self.frames, self.windows, self.masks = {}, {}, {}
        with ImageStore(sorted((results / "frames").glob("[0-9]*.h5"))) as store:
            for image in self.images:
                one = self.of_image[image][0][0]
                self.frames[image], self.windows[image] = _held(store.frame(one)), store.covered(one)
        for path in sorted((results / "masks/default").glob("[0-9]*.h5")):
            with Shard(path, key="mask_id") as shard:
                self.masks |= {name: _held(shard.get("mask", name).astype(np.uint8) * 255) for name in shard.ids}

    def samples(self) -> list[Sample]:
        """Return all pairs."""
        return [one for both in self.of_image.values() for some in both for one in some]

    def drawn(self, draw: random.Random, negatives: int, side: int) -> Drawn:
        """Return pairs of an image, and with the chance SHARE moved: what the language model sees, (H, W, 3) of at most
        ``side`` px, the frame, and a mask for each pair.
        """
        image = draw.choice(self.images)
        positives, denied = self.of_image[image]
        pairs = draw.sample(positives, min(len(positives), POSITIVES))
        pairs += draw.sample(denied, min(len(denied), negatives * len(pairs)))
        images = [self.frames[image], *(self.masks[one.mask_ids[0]] for one in pairs if one.mask_ids[0])]
        frame, *masks = moved(images, draw) if draw.random() < SHARE else images
        of_pair = iter(masks)
        empty = np.zeros_like(frame)
        rows, columns = self.windows[image]
        part = frame[_held_part(rows), _held_part(columns)]
        return pairs, seen(part, side), frame, [next(of_pair) if one.mask_ids[0] else empty for one in pairs]


def _held(image: np.ndarray) -> np.ndarray:
    return cv2.resize(image, (HELD, HELD), interpolation=cv2.INTER_AREA)


def _held_part(of: slice) -> slice:
    """Return the part of a held frame for one of a frame of FRAME_SIZE px."""
    return slice(of.start * HELD // FRAME_SIZE, of.stop * HELD // FRAME_SIZE)


def moved(images: Sequence[np.ndarray], draw: random.Random) -> list[np.ndarray]:
    """Return a frame and its masks, all uint8 (N, N), moved alike; of the frame the grey curve is bent too."""
    side = images[0].shape[0]
    affine = cv2.getRotationMatrix2D(
        (side / 2, side / 2), draw.uniform(-TURN, TURN), float(np.exp(draw.uniform(-SIZE, SIZE)))
    )
    affine[:, 2] += [draw.uniform(-SHIFT, SHIFT) * side for _ in range(2)]
    frame, *masks = (cv2.warpAffine(image, affine, (side, side), flags=cv2.INTER_LINEAR) for image in images)
    bent = 255 * (np.arange(256) / 255) ** np.exp(draw.uniform(-GREY, GREY))
    return [np.rint(bent).astype(np.uint8)[frame], *masks]


def encoded(collator: Collator, drawn: Drawn, view: str, side: int) -> list[Encoded]:
    """Return the pairs of an image with the masks that they are to give, in SAM's square of ``side`` px."""
    pairs, picture, frame, masks = drawn
    levels = sam_image(frame, side)
    targets = [torch.from_numpy(make_mask_target(mask > 127, side, "pad"))[None] for mask in masks]
    told = zip(collator.encode_all(pairs, picture), targets, strict=True)
    return [replace(one, aims=MaskTargets(view, levels, target)) for one, target in told]


def chosen(model: SegmentingModel, seg: int) -> tuple[list[torch.nn.Parameter], list[torch.nn.Parameter]]:
    """Freeze all but the language model's layers, the rows of [SEG] and the head; return these of both."""
    language, head = [], []
    for name, value in model.named_parameters():
        mine = name.startswith(tuple(f"segmenter.{part}" for part in TRAINED_PREFIXES))
        rows = name.endswith(("embed_tokens.weight", "lm_head.weight"))
        value.requires_grad_(mine or rows or name.startswith(LAYERS))
        if rows:
            of_seg = torch.zeros(len(value), 1)
            of_seg[seg] = 1
            value.register_hook(lambda gradient, kept=of_seg: gradient * kept)
        if value.requires_grad:
            (head if mine else language).append(value)
    return language, head


class Lines:
    """Lines of the cohort's mix (all), those without masks (samples), and its pictures, uint8 (H, W) up to HELD."""

    def __init__(self, folder: Path):
        self.all = read_samples(folder / "results/radvlm/instructions/all/train.jsonl")
        self.samples = [one for one in self.all if not one.mask_ids]
        with ImageStore(sorted((folder / "results/frames").glob("[0-9]*.h5")), HELD) as store:
            of_image = {one.image_id: one for one in self.samples}
            self.pictures = {image: store.get(one)[..., 0].copy() for image, one in sorted(of_image.items())}

    def drawn(self, at: int, side: int, draw: random.Random) -> tuple[Sample, np.ndarray]:
        """Return a line and its picture, with the chance OF_LINES moved."""
        one = self.samples[at]
        return shown(one, self.pictures[one.image_id], side, draw, OF_LINES)


def fit(loaded: Loaded, pairs: Pairs, lines: Lines, side: int) -> SegmentingModel:
    """Train language model and head on pairs with masks and lines of the mix."""
    model = SegmentingModel(loaded.model, lite.load(loaded.model.config.text_config.hidden_size, "", SEED)).train()
    # pictures are moved, so that none is seen twice and no embedding is kept
    model.embedding_cache = SimpleNamespace(get=lambda views, levels, embed: embed(levels))
    collator = Collator(loaded.family, loaded.tokens, find_convention("unit"))
    language, head = chosen(model, loaded.tokens.seg)
    groups = [{"params": language, "top": RATE}, {"params": head, "top": HEAD_RATE}]
    optimiser = torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.95), weight_decay=0.0)
    objective = MaskLoss()
    rate = OnevisionTinyRecipe(warmup_ratio=WARMUP).rate
    told = _forever(len(lines.samples))
    for update in range(UPDATES):
        draw = random.Random(stable_hash(SEED, "masks", update))
        negatives = [number for begins, number in DENIED if update >= begins * UPDATES][-1]
        batch: list[Encoded] = []
        while len(batch) < PAIRS:
            found = pairs.drawn(draw, negatives, side)
            batch += encoded(collator, found, str(len(batch)), model.segmenter.side)
        also = []
        for at in [next(told) for _ in range(TOLD)]:
            also.append(collator.encode(*lines.drawn(at, side, draw)))
        # apart, as lines of the mix are longer than pairs
        batches = [collator.batch(batch), collator.batch(also)]
        counts = np.sum([objective.counts(one) for one in batches], axis=0).clip(1)
        loss = 0.0
        for one in batches:
            each = zip(objective.weights, objective.sums(model, one).values(), counts, strict=True)
            part = sum(weight * total / number for weight, total, number in each)
            part.backward()
            loss += float(part.detach())
        for group in optimiser.param_groups:
            group["lr"] = group["top"] * rate(update, UPDATES)
        torch.nn.utils.clip_grad_norm_([*language, *head], 1.0)
        optimiser.step()
        optimiser.zero_grad()
        if (update + 1) % 100 == 0:
            print(f"masks: {update + 1} of {UPDATES}, loss {loss:.4f}", flush=True)
    return model


def _forever(number: int) -> Iterator[int]:
    """Yield the numbers below ``number`` in drawn order, again and again."""
    for epoch in count():
        order = list(range(number))
        random.Random(stable_hash(SEED, "lines", epoch)).shuffle(order)
        yield from order


def held(model: SegmentingModel, tokens: Tokens, known: Sequence[str]) -> tuple[dict[str, torch.Tensor], list[str]]:
    """Return what the file holds, the language model as the library names it and the head, and the words of its rows.

    Of words that the base does not know, [SEG] alone was learnt.
    """
    of, words = tokens.tokenizer.get_vocab(), [*known, SEG]
    with tempfile.TemporaryDirectory() as folder:
        model.model.save_pretrained(folder)
        found = load_file(Path(folder, "model.safetensors"))
    rows = torch.tensor([of[word] for word in words])
    found |= {name: found[name][rows] for name in BY_WORD}
    found |= {f"segmenter.{name}": value for name, value in model.segmenter.state_dict().items()}
    return {name: value.half().contiguous() for name, value in found.items()}, words


def main() -> None:
    given = arguments(__doc__)
    torch.set_num_threads(1)
    side = OnevisionTinyRecipe.side
    folder = make(given.work, COHORT, STUDIES, given.cores, REGIONS)
    pairs, lines = Pairs(folder), Lines(folder)
    known = json.loads((HERE / "words.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as start:
        # the base has words of its other cohort too: none of them is to be lost
        texts = [*all_texts([*lines.all, *pairs.samples()], find_convention("unit")), *known]
        make_tiny("onevision", start, texts, side, stable_hash(SEED, "start") % 2**63)
        load_base(Path(start))
        loaded = add_seg_token(load_model("onevision", start), SEED)
    torch.manual_seed(SEED)
    model = fit(loaded, pairs, lines, side)
    tensors, words = held(model, loaded.tokens, known)
    save_file(tensors, HERE / "masks.safetensors", metadata={"format": "pt"})
    (HERE / "masks_words.json").write_text(json.dumps(words, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
