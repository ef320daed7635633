"""The stage vlm_answers: ask a model about the samples of a set, turn by turn; a failure is a line with a reason."""

import hashlib
import json
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from cxr.base.tables import read_lines, write_lines
from cxr.base.unfinished import facts_of_files, prepare
from cxr.vlm.answers.engine import Answerer, AnswersOptions, Asked, Execution, Said, load_answerer
from cxr.vlm.answers.masks import Drawer, join_masks, write_masks
from cxr.vlm.collate import Collator, Encoded
from cxr.vlm.conventions import convention_of
from cxr.vlm.families.engine import Pictures, load_family
from cxr.vlm.models import base_of, model_of, read_run, tells_masks
from cxr.vlm.originals import Originals
from cxr.vlm.samples import PictureStore, Sample, read_samples
from cxr.vlm.tokens import Reserved, Tokens

log = logging.getLogger("cxr")
PART = 256
"""Samples of a part: what a killed job loses at most."""


def run_answers(
    *,
    lines: str,
    pictures: list[str],
    answers: str,
    options: AnswersOptions,
    attrs: dict,
    compute: dict,
    run: str = "",
    base: str | list[str] = "",
    masks: str = "",
    originals: Sequence[str] = (),
    folders: Mapping[str, str] | None = None,
) -> None:
    """Ask the run about the samples ``lines`` and write the answers as JSON lines, in the samples' order.

    ``base``: the model that a run without own weights or with an adapter belongs to; of the engine table, its file.
    ``masks``: the shard of the masks of the answers' [SEG], of a run that has a segmenter. ``originals``: tables that
    name the images' files, of a run that was tuned on these. ``folders``: as :class:`PictureStore` takes them.
    A line is {sample_id, turn, text, tokens, stop, failure, convention, seen}; seen: width and height of the picture as
    the model sees it, which some conventions are relative to. A killed job goes on at its last part of samples. Raises
    UserError for a user's mistake.
    """
    base = base_of(base, options.model, options.revision)
    samples = read_samples(lines)
    folder = Path(answers).with_suffix(".parts")
    prepare(folder, _identity(lines, run, base, options, attrs))
    execution = Execution(
        compute.get("device", "auto"), compute.get("asked"), compute.get("batch", 8), compute.get("gpu_memory", 0.9)
    )
    asker = drawer = None
    paths = []
    side, decoding = pictures_of(run)
    files = Originals.for_samples(originals, decoding, samples)
    if files:
        files.check()
    with PictureStore(pictures, side, files, folders) as store:
        for first in range(0, len(samples), PART):
            path = folder / f"{first:09d}.jsonl"
            paths.append(path)
            if path.is_file():
                continue
            asker = asker or Asker.from_run(run, base, options, execution)
            replies = list(asker.replies(samples[first : first + PART], store))
            if masks:
                drawer = drawer or Drawer.load(run, options, execution)
                answered_turns = ((reply.sample, reply.turn, reply.said) for reply in replies)
                write_masks(path.with_suffix(".h5"), answered_turns, drawer, store, attrs)
            # last: with it the part is done
            write_lines(path, [reply.line() for reply in replies], checked=True)
            log.info("%d of %d samples are answered", min(first + PART, len(samples)), len(samples))
    if masks:
        join_masks(masks, [path.with_suffix(".h5") for path in paths], attrs)
    write_lines(answers, [line for path in paths for line in read_lines(path)])
    shutil.rmtree(folder)


def pictures_of(run: str) -> tuple[int, dict]:
    """Return how a run sees pictures: their longest side, 0 for any, and how originals are decoded, {} for frames."""
    facts = read_run(run) if run else {"side": 0}
    return facts["side"], facts.get("original", {})


def _identity(lines: str, run: str, base: str, options: AnswersOptions, attrs: dict) -> str:
    digest = hashlib.sha256(json.dumps([asdict(options), attrs.get("code_digest", "")], sort_keys=True).encode())
    digest.update(Path(lines).read_bytes())
    for path in filter(None, (run, base)):
        digest.update(facts_of_files(path, times=True))
    return digest.hexdigest()


@dataclass(frozen=True)
class Reply:
    """The answer to a turn of a sample. convention: that it is in; seen: (width, height) of the picture as seen."""

    sample: Sample
    turn: int
    said: Said
    convention: str
    seen: Sequence[int]

    def line(self) -> dict:
        """Return its line."""
        coordinate_fields = {"convention": self.convention, "seen": list(self.seen)}
        return {"sample_id": self.sample.sample_id, "turn": self.turn} | self.said.told() | coordinate_fields


class Asker:
    """Asks a model: prompts in a family's chat and a run's convention, the model's own answers before later turns."""

    def __init__(self, engine: Answerer, collator: Collator | None, options: AnswersOptions):
        self.engine, self.collator, self.options = engine, collator, options

    @classmethod
    def from_run(cls, run: str, base: str, options: AnswersOptions, execution: Execution) -> "Asker":
        """Load the engine and the chat of a run; the engine table has no chat."""
        engine = load_answerer(options.engine, Path(run), base, options, execution)
        return cls(engine, collator_of(run, base, options.convention) if run else None, options)

    def lines(self, samples: Sequence[Sample], store: PictureStore) -> Iterator[dict]:
        """Yield the lines of all turns of the samples, in order."""
        for reply in self.replies(samples, store):
            yield reply.line()

    def replies(self, samples: Sequence[Sample], store: PictureStore) -> Iterator[Reply]:
        """Yield the replies to all turns of the samples, in order."""
        conversation_by_sample = {}
        for group in self._groups(samples, store):
            conversation_by_sample |= zip(
                (sample.sample_id for sample in group), self._conversed(group, store), strict=True
            )
        for sample in samples:
            answers, size = conversation_by_sample[sample.sample_id]
            for turn, answer in enumerate(answers):
                yield Reply(sample, turn, answer, self.convention, size)

    def _groups(self, samples: Sequence[Sample], store: PictureStore) -> list[Sequence[Sample]]:
        """Return the samples that are asked together, through all their turns: of like numbers and lengths of these."""
        size = self.engine.at_once or len(samples)
        if size >= len(samples):
            return [samples]

        def long(sample: Sample) -> tuple[int, int, int]:
            height, width = store.size(sample)
            return len(sample.turns), height * width, len(sample.turns[0].question)

        order = sorted(samples, key=long)
        return [order[first : first + size] for first in range(0, len(order), size)]

    def _conversed(self, samples: Sequence[Sample], store: PictureStore) -> list[tuple[list[Said], Sequence[int]]]:
        """Return the answers to the turns of each sample, and the size of its picture as the model sees it."""
        answers_by_sample: list[list[Said]] = [[] for _ in samples]
        sizes: list[Sequence[int]] = [[0, 0] for _ in samples]
        sample_pictures = [
            None if self.collator is None else _Shown(sample, store, self.collator) for sample in samples
        ]
        for turn in range(max(len(sample.turns) for sample in samples)):
            request_by_index: dict[int, Asked] = {}
            for at, sample in enumerate(samples):
                if len(sample.turns) <= turn:
                    sample_pictures[at] = None  # frees its memory
                    continue
                prompt = self._prompt(sample, sample_pictures[at], answers_by_sample[at])
                if isinstance(prompt, Said):
                    answers_by_sample[at].append(prompt)
                else:
                    sizes[at], request_by_index[at] = self._seen(prompt, sample, store), prompt
            answers = self.engine.answer(list(request_by_index.values())) if request_by_index else []
            for at, answer in zip(request_by_index, answers, strict=True):
                answers_by_sample[at].append(answer)
        return list(zip(answers_by_sample, sizes, strict=True))

    @property
    def convention(self) -> str:
        """Name of the convention that the answers are in."""
        return self.collator.convention.name if self.collator else self.options.convention

    def _seen(self, prompt: Asked, sample: Sample, store: PictureStore) -> list[int]:
        """Return width and height of the picture as the model sees it; of answers made elsewhere, its own."""
        if prompt.encoded.pictures.seen:
            first = prompt.encoded.pictures.seen[0]
            return [first.width, first.height]
        height, width = store.size(sample)
        return [width, height]

    def _prompt(self, sample: Sample, sample_picture: "_Shown | None", earlier_answers: Sequence[Said]) -> Asked | Said:
        """Return the prompt of the next turn, or its failure."""
        if sample_picture is None:
            return Asked(Encoded(sample.sample_id, [], [], Pictures({}, (), ())), [], None, len(earlier_answers))
        if any(answer.failure for answer in earlier_answers):
            return Said("", 0, "", "turn_before")
        collator, pictures = sample_picture.collator, sample_picture.pictures
        try:
            earlier_texts = [answer.text for answer in earlier_answers]
            if self.options.history == "expected":
                earlier_texts = [
                    sample.answer(turn, collator.convention, pictures.seen[0]) for turn in range(len(earlier_answers))
                ]
            encoded = collator.ask(sample, pictures, earlier_texts)
        except Reserved:
            return Said("", 0, "", "reserved")
        if len(encoded.ids) > self.options.max_length:
            return Said("", 0, "", "too_long")
        return Asked(
            encoded, _short(encoded.ids, collator.tokens.picture), sample_picture.picture, len(earlier_answers)
        )


class _Shown:
    """A sample's picture, read and encoded once for all its turns."""

    def __init__(self, sample: Sample, store: PictureStore, collator: Collator):
        self.sample, self.store, self.collator = sample, store, collator

    @cached_property
    def picture(self) -> np.ndarray:
        return self.store.get(self.sample)

    @cached_property
    def pictures(self) -> Pictures:
        return self.collator.family.pictures([self.picture])


def _short(ids: Sequence[int], picture: int) -> list[int]:
    """Return the ids with one token for the picture: vLLM repeats it itself."""
    return [token for at, token in enumerate(ids) if token != picture or not at or ids[at - 1] != picture]


def collator_of(run: str | Path, base: str, convention: str = "") -> Collator:
    """Return the chat that a run was tuned in; ``convention``: another one than its own."""
    facts = read_run(run)
    with model_of(run, base) as folder:
        family = load_family(facts["family"], folder)
        tokens = Tokens.read(folder, family.frame).with_system(facts.get("system_prompt", ""))
    prompt_convention = convention_of(convention or facts["convention"])
    return Collator(family, tokens.with_seg() if tells_masks(run) else tokens, prompt_convention, facts["wording"])
