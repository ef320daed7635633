"""Training data of the base of ROSALIA lite: synthetic cohorts that the workflow makes, kept in memory."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import torch
import yaml
from films import paint

from cxr.base.paths import SCRIPTS
from cxr.base.tables import read_lines, read_table
from cxr.base.vocabulary import LESIONS, SPLITS, VALID_LOCATIONS
from cxr.ils.paraphrase.rules import list_wordings
from cxr.ils.rosalia.samples import PairOptions, Sample
from cxr.ils.rosalia.sources import ShardFrames, ShardMasks
from cxr.ils.rosalia.tokens import Tokens
from cxr.ils.templates import (
    CARDIOMEGALY,
    CERTAINTY_PHRASES,
    GLOBAL,
    TYPES,
    parse_instruction,
    write_instruction,
    write_negative_answer,
    write_positive_answer,
)
from cxr.segmentation.images import equalise, make_clip_input, make_sam_levels

SIDE = 160
"""Side in pixels of stored images and masks. It exceeds the net's by a quarter, so that movements lose little."""
MOVED, TURNED, SCALED = 0.05, 5.0, 0.10
"""Maximum shift (fraction of the side), rotation (degrees) and relative change of size of a training image."""
GAMMA = 0.3
"""Maximum absolute logarithm of the exponent of a training image's grey curve."""
MEASURES = ("giou", "giou_low", "giou_high", "n_acc", "n_acc_low", "n_acc_high", "text_strict")
PERSONAS = ("medical_expert", "layperson", "ai_developer")
SHARDS = 2
"""Number of shards of a cohort of films, which has few studies."""
REWORDED = 0.25
"""Fraction of training samples that use a persona's wording of the instruction (nine exist) and not its plain text."""


@dataclass(frozen=True)
class Cohort:
    """A folder in which the workflow made a synthetic cohort's dataset."""

    folder: Path

    def lines(self, *splits: str) -> list[dict]:
        """Return the pairs of some splits, by default all."""
        dataset = self.folder / "results/dataset/default"
        return [line for split in splits or SPLITS for line in read_lines(dataset / f"{split}.jsonl")]

    def frames(self) -> ShardFrames:
        """Return the frames of the cohort."""
        return ShardFrames(sorted((self.folder / "results/frames").glob("[0-9]*.h5")))

    def masks(self) -> ShardMasks:
        """Return the lesion masks of the cohort."""
        return ShardMasks(sorted((self.folder / "results/masks/default").glob("[0-9]*.h5")))


def make(work: Path, seed: int, studies: int, cores: int, *, films: bool = False) -> Cohort:
    """Make a cohort and its dataset by the workflow with its default settings. An existing cohort is kept.

    ``films``: whether lesions are painted on real X-rays instead of synthetic chests.
    """
    folder = work / (f"{seed}-films" if films else str(seed))
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "mine.yaml"
    told: dict = {"seed": seed, "phantom": {"subjects": studies * 5 // 8, "studies": studies}}
    if films:
        manifest = folder / "films/manifest.csv"
        if not manifest.is_file():
            paint(manifest.parent, seed, studies)
        told["cohort"] = {"source": "manifest", "manifest": str(manifest), "shards": SHARDS}
    settings.write_text(yaml.safe_dump(told))
    _run(folder, cores, "results/dataset/default/train.jsonl", "results/masks/default/index.parquet")
    return Cohort(folder)


def scored(work: Path, seed: int, cores: int) -> dict[str, dict[str, float]]:
    """Make the demo of a seed, fine-tune on it, and return the scores of its test split: {run: {measure: per cent}}."""
    folder = work / str(seed)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mine.yaml").write_text(yaml.safe_dump({"seed": seed}))
    _run(folder, cores, "evaluation")
    total = read_table(folder / "results/evaluation/comparison.tsv").filter(source="ours", lesion="total")
    rows = {row.pop("run"): row for row in total.select("run", "positives", "negatives", *MEASURES).to_dicts()}
    return {run: row | {"right_positives": _right_positives(folder, run)} for run, row in rows.items()}


def _right_positives(folder: Path, run: str) -> int:
    """Return the number of positive test pairs that a run answers correctly by the rule ``strict``."""
    answers = {line["pair_id"]: line["answer"] for line in read_lines(folder / f"results/inference/{run}/test.jsonl")}
    return sum(answers[line["pair_id"]] == line["answer"] for line in Cohort(folder).lines("test") if line["seg"])


def _run(folder: Path, cores: int, *targets: str) -> None:
    """Run the workflow in a folder with its mine.yaml."""
    command = [str(Path(sys.executable).with_name("snakemake")), "--snakefile", str(SCRIPTS.parent / "Snakefile")]
    command += ["--directory", str(folder), "--configfile", str(folder / "mine.yaml"), "--cores", str(cores)]
    subprocess.run([*command, "--quiet", "all", "--", *targets], cwd=SCRIPTS.parent, check=True)


def reworded(instruction: str) -> list[str]:
    """Return all wordings of an instruction by the engine ``rules``, for all personas."""
    meant = parse_instruction(instruction)
    return [text for persona in PERSONAS for text in list_wordings(meant, persona)]


def texts() -> Iterator[str]:
    """Yield instructions, plain and reworded, and answers, which contain every word of Table 2 and of the personas."""
    for lesion in LESIONS:
        for kind in TYPES if lesion != CARDIOMEGALY else (GLOBAL,):
            for places in [[place] for place in VALID_LOCATIONS] + [VALID_LOCATIONS[:3]]:
                asked = write_instruction(kind, lesion, places)
                yield from (asked, *reworded(asked), write_negative_answer(kind, lesion, places))
                yield from (write_positive_answer(kind, lesion, places, certainty) for certainty in CERTAINTY_PHRASES)


@dataclass(frozen=True)
class Picture:
    """An image, original and equalised, uint8 (2, SIDE, SIDE), and the row numbers of its pairs."""

    levels: np.ndarray
    positives: list[int]
    negatives: list[int]


class Store:
    """All pairs of some cohorts, from which training batches are drawn."""

    def __init__(self, cohorts: list[Cohort], tokens: Tokens, options: PairOptions):
        self.tokens, self.options = tokens, options
        self.lines: list[dict] = []
        self.wordings: list[list[str]] = []
        self.masks: dict[int, np.ndarray] = {}
        self.pictures: list[Picture] = []
        self._encoded: dict[tuple[str, str], tuple[torch.Tensor, torch.Tensor]] = {}
        for cohort in cohorts:
            self._take(cohort)
        print(f"{len(self.lines)} pairs, {len(self.masks)} positive, of {len(self.pictures)} images", flush=True)

    def _take(self, cohort: Cohort) -> None:
        frames, masks = cohort.frames(), cohort.masks()
        found: dict[str, Picture] = {}
        for line in cohort.lines():
            if (name := line["image_id"]) not in found:
                frame = frames.get(name)
                held = [_shrunk(image) for image in (frame, equalise(frame))]
                found[name] = Picture(np.stack(held), [], [])
            row = len(self.lines)
            (found[name].positives if line["seg"] else found[name].negatives).append(row)
            if line["seg"]:
                self.masks[row] = _shrunk(masks.get(line["mask_id"]).astype(np.uint8) * 255)
            self.lines.append({"instruction": line["instruction"], "answer": line["answer"]})
            self.wordings.append(reworded(line["instruction"]))
        self.pictures += found.values()

    def batches(self, random: np.random.Generator, images: int, denied: int) -> Iterator[list[Sample]]:
        """Yield the batches of an epoch, which has every image once.

        Each batch has all pairs of ``images`` images, so that instructions are denied as often as in the cohorts. The
        positives and ``denied`` times as many negatives have a mask, and the other samples have none.
        """
        order = random.permutation(len(self.pictures)).tolist()
        for first in range(0, len(order), images):
            chosen = order[first : first + images]
            drawn = {row for number in chosen for row in self.pictures[number].positives}
            others = [row for number in chosen for row in self.pictures[number].negatives]
            drawn |= {others[place] for place in random.permutation(len(others))[: max(1, denied * len(drawn))]}
            yield [sample for number in chosen for sample in self._samples(number, drawn, random)]

    def _samples(self, number: int, drawn: set[int], random: np.random.Generator) -> Iterator[Sample]:
        """Yield the pairs of one image as samples. The image is moved, rotated and exposed in the same way for all.

        Only the rows in ``drawn`` have a mask.
        """
        side, options = self.options.sam_side, self.options
        equalised = bool(random.random() < 0.5)
        move = _movement(random, side)
        levels = cv2.warpAffine(self.pictures[number].levels[int(equalised)], move, (side, side))
        curve = 255 * (np.arange(256) / 255) ** np.exp(random.uniform(-GAMMA, GAMMA))
        levels = np.rint(curve).astype(np.uint8)[levels]
        clip = make_clip_input(levels, options.clip_side, "pad")
        name = f"{number} {random.integers(1 << 30)}"
        for row in self.pictures[number].positives + self.pictures[number].negatives:
            line = self.lines[row]
            other = random.random() < REWORDED
            asked = str(random.choice(self.wordings[row])) if other else line["instruction"]
            ids, labels = self._ids(asked, line["answer"])
            mask = np.zeros((side, side), np.uint8) if row in drawn else None
            if row in self.masks:
                mask = (cv2.warpAffine(self.masks[row], move, (side, side)) > 127).astype(np.uint8)
            yield Sample(
                pair_id=str(row), image_id=name, equalised=equalised, input_ids=ids, labels=labels,
                levels=torch.from_numpy(levels), content_shape=(side, side), clip=clip, mask=mask, resized=(side, side),
                original=(side, side),
            )  # fmt: skip

    def _ids(self, instruction: str, answer: str) -> tuple[torch.Tensor, torch.Tensor]:
        key = instruction, answer
        if key not in self._encoded:
            options = self.options
            self._encoded[key] = self.tokens.encode(*key, options.conversation, options.features, options.max_length)
        return self._encoded[key]


def _shrunk(image: np.ndarray) -> np.ndarray:
    return make_sam_levels(image, SIDE, "pad")[0].numpy()


def _movement(random: np.random.Generator, side: int) -> np.ndarray:
    """Return a random affine map from a stored image to the net's input, float (2, 3)."""
    turn = np.deg2rad(random.uniform(-TURNED, TURNED))
    scale = side / SIDE * np.exp(random.uniform(-SCALED, SCALED))
    turned = scale * np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    middle = (SIDE - 1) / 2
    shift = (side - 1) / 2 + random.uniform(-MOVED, MOVED, 2) * side - turned @ [middle, middle]
    return np.column_stack([turned, shift])
