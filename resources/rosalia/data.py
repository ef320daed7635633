"""What the base of ROSALIA lite learns from: synthetic cohorts that the workflow itself makes, held in memory."""

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
"""Side that pictures and masks are held at: a quarter more than the net's, so that moving them loses little."""
MOVED, TURNED, SCALED = 0.05, 5.0, 0.10
"""Largest shift (share of the side), turn (degrees) and change of size of a picture that is learnt from."""
GAMMA = 0.3
"""Largest change of the grey curve's exponent."""
MEASURES = ("giou", "giou_low", "giou_high", "n_acc", "n_acc_low", "n_acc_high", "text_strict")
PERSONAS = ("medical_expert", "layperson", "ai_developer")
SHARDS = 2
"""Of a cohort of films, which has few."""
REWORDED = 0.25
"""Share of the pairs that are asked in a persona's wording, among those of the plain text and nine others."""


@dataclass(frozen=True)
class Cohort:
    """A folder in which the workflow made a synthetic cohort's dataset."""

    folder: Path

    def lines(self, *splits: str) -> list[dict]:
        """Return the pairs of some splits, by default all."""
        dataset = self.folder / "results/dataset/default"
        return [line for split in splits or SPLITS for line in read_lines(dataset / f"{split}.jsonl")]

    def frames(self) -> ShardFrames:
        """Return its pictures."""
        return ShardFrames(sorted((self.folder / "results/frames").glob("[0-9]*.h5")))

    def masks(self) -> ShardMasks:
        """Return its masks."""
        return ShardMasks(sorted((self.folder / "results/masks/default").glob("[0-9]*.h5")))


def make(work: Path, seed: int, studies: int, cores: int, *, films: bool = False) -> Cohort:
    """Make a cohort and its dataset by the workflow with its default settings; one that is there stays.

    ``films``: lesions are painted on real films instead of synthetic chests.
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
    """Return the number of the test split's positives that a run answers right by the rule ``strict``."""
    answers = {line["pair_id"]: line["answer"] for line in read_lines(folder / f"results/inference/{run}/test.jsonl")}
    return sum(answers[line["pair_id"]] == line["answer"] for line in Cohort(folder).lines("test") if line["seg"])


def _run(folder: Path, cores: int, *targets: str) -> None:
    """Run the workflow in a folder with its mine.yaml."""
    command = [str(Path(sys.executable).with_name("snakemake")), "--snakefile", str(SCRIPTS.parent / "Snakefile")]
    command += ["--directory", str(folder), "--configfile", str(folder / "mine.yaml"), "--cores", str(cores)]
    subprocess.run([*command, "--quiet", "all", "--", *targets], cwd=SCRIPTS.parent, check=True)


def reworded(instruction: str) -> list[str]:
    """Return what the personas of the engine rules make of an instruction."""
    meant = parse_instruction(instruction)
    return [text for persona in PERSONAS for text in list_wordings(meant, persona)]


def texts() -> Iterator[str]:
    """Yield instructions, plain and reworded, and answers that hold every word of Table 2 and of the personas."""
    for lesion in LESIONS:
        for kind in TYPES if lesion != CARDIOMEGALY else (GLOBAL,):
            for places in [[place] for place in VALID_LOCATIONS] + [VALID_LOCATIONS[:3]]:
                asked = write_instruction(kind, lesion, places)
                yield from (asked, *reworded(asked), write_negative_answer(kind, lesion, places))
                yield from (write_positive_answer(kind, lesion, places, certainty) for certainty in CERTAINTY_PHRASES)


@dataclass(frozen=True)
class Picture:
    """An image as it is and equalised, uint8 (2, SIDE, SIDE), and the rows of its pairs."""

    levels: np.ndarray
    positives: list[int]
    negatives: list[int]


class Store:
    """All pairs of some cohorts, ready to be drawn."""

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
        """Yield the samples of batches for an epoch, in which every picture comes once.

        Each holds all pairs of ``images`` pictures, so that a question is as often answered with no as in the cohorts.
        Masks are those of the positives and of ``denied`` times as many negatives; the other samples have none.
        """
        order = random.permutation(len(self.pictures)).tolist()
        for first in range(0, len(order), images):
            chosen = order[first : first + images]
            drawn = {row for number in chosen for row in self.pictures[number].positives}
            others = [row for number in chosen for row in self.pictures[number].negatives]
            drawn |= {others[place] for place in random.permutation(len(others))[: max(1, denied * len(drawn))]}
            yield [sample for number in chosen for sample in self._samples(number, drawn, random)]

    def _samples(self, number: int, drawn: set[int], random: np.random.Generator) -> Iterator[Sample]:
        """Yield the pairs of one picture, all of which see it moved, turned and exposed alike.

        Those of the rows ``drawn`` have a mask.
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
    """Draw an affine map from a held picture to the net's, float (2, 3)."""
    turn = np.deg2rad(random.uniform(-TURNED, TURNED))
    scale = side / SIDE * np.exp(random.uniform(-SCALED, SCALED))
    turned = scale * np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    middle = (SIDE - 1) / 2
    shift = (side - 1) / 2 + random.uniform(-MOVED, MOVED, 2) * side - turned @ [middle, middle]
    return np.column_stack([turned, shift])
