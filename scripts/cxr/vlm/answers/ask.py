"""The stage vlm_answers: ask a model all questions of a set of samples, turn by turn. A failed turn has a reason."""

import hashlib
import json
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from cxr.base.engines import Setup
from cxr.base.tables import read_lines, write_lines
from cxr.base.unfinished_work import describe_files, prepare_folder
from cxr.vlm.answers.engine import Answerer, AnswersOptions, ModelAnswer, Reply, TurnRequest, load_answerer
from cxr.vlm.answers.masks import MaskPredictor, join_masks, write_masks
from cxr.vlm.collate import Collator
from cxr.vlm.conventions import find_convention
from cxr.vlm.families.engine import EncodedImages, load_family
from cxr.vlm.models import base_folder, has_segmenter, read_run, run_model
from cxr.vlm.originals import Originals
from cxr.vlm.samples import ImageStore, Sample, read_samples
from cxr.vlm.tokens import ReservedTokenError, Tokens

log = logging.getLogger("cxr")
PART_SIZE = 256  # samples per part file; a killed job loses at most one part


def run_answers(
    *,
    lines: str,
    pictures: list[str],
    answers: str,
    options: AnswersOptions,
    attrs: dict,
    compute: dict,
    run: str,
    base: str | list[str] = "",
    masks: str = "",
    originals: Sequence[str] = (),
    folders: Mapping[str, str] | None = None,
) -> None:
    """Ask the model of a run about the samples in ``lines``, and write ``answers`` as JSON Lines in the same order.

    ``run`` is a folder with a model or an adapter (:mod:`cxr.vlm.models`). ``base`` is the folder of the base
    model, if the run has only an adapter or no weights. ``pictures`` are shards of images, with ``folders`` as in
    :class:`ImageStore`. ``originals`` are tables of the original images, if the run sees these. If the run has a
    segmenter, a mask for each token [SEG] is written to the shard ``masks``. A killed job resumes after its last
    complete part. Raises UserError for invalid input.
    """
    base = base_folder(base, options.model, options.revision)
    samples = read_samples(lines)
    folder = Path(answers).with_suffix(".parts")
    digest = hashlib.sha256(json.dumps([asdict(options), attrs.get("code_digest", "")], sort_keys=True).encode())
    digest.update(Path(lines).read_bytes())
    for source in filter(None, (run, base)):
        digest.update(describe_files(source, times=True))
    prepare_folder(folder, digest.hexdigest())
    setup = Setup.of_job({}, compute)
    asker = drawer = None
    paths = []
    side, decoding = image_options(run)
    files = Originals.for_samples(originals, decoding, samples)
    if files:
        files.check()
    with ImageStore(pictures, side, files, folders) as store:
        for first in range(0, len(samples), PART_SIZE):
            path = folder / f"{first:09d}.jsonl"
            paths.append(path)
            if path.is_file():
                continue
            asker = asker or Asker.from_run(run, base, options, setup)
            replies = list(asker.replies(samples[first : first + PART_SIZE], store))
            if masks:
                drawer = drawer or MaskPredictor.load(run, options, setup)
                write_masks(path.with_suffix(".h5"), replies, drawer, store, attrs)
            # written last: this file marks the part as complete
            write_lines(path, [reply.line() for reply in replies], checked=True)
            log.info("%d of %d samples are answered", min(first + PART_SIZE, len(samples)), len(samples))
    if masks:
        join_masks(masks, [path.with_suffix(".h5") for path in paths], attrs)
    write_lines(answers, [line for path in paths for line in read_lines(path)])
    shutil.rmtree(folder)


def image_options(run: str) -> tuple[int, dict]:
    """Return (maximum side of a run's images in px, settings for decoding its image files).
    A side of 0 is no limit. The settings are {} if the run sees 512 × 512 frames instead of the image files."""
    facts = read_run(run)
    return facts["side"], facts.get("original", {})


class Asker:
    """Dialogue with a model, in the chat template and box coordinates of its run. Later turns see earlier ones."""

    def __init__(self, engine: Answerer, collator: Collator, options: AnswersOptions):
        self.engine, self.collator, self.options = engine, collator, options

    @classmethod
    def from_run(cls, run: str, base: str, options: AnswersOptions, setup: Setup) -> "Asker":
        """Return an asker for a run, with its chat template and the engine that ``options`` name."""
        collator = load_collator(run, base, options.convention)
        return cls(load_answerer(Path(run), base, options, setup, collator), collator, options)

    def replies(self, samples: Sequence[Sample], store: ImageStore) -> Iterator[Reply]:
        """Yield the replies to all turns of the samples, in order."""
        groups = self._groups(samples, store)
        conversations = (pair for group in groups for pair in zip(group, self._conversed(group, store), strict=True))
        conversation_by_sample = {sample.sample_id: conversation for sample, conversation in conversations}
        for sample in samples:
            answers, size = conversation_by_sample[sample.sample_id]
            for turn, answer in enumerate(answers):
                yield Reply(sample, turn, answer, self.collator.convention.name, size)

    def _groups(self, samples: Sequence[Sample], store: ImageStore) -> list[Sequence[Sample]]:
        """Return groups of samples that are asked in one batch per turn. They have similar numbers of turns."""
        size = self.engine.at_once or len(samples)
        if size >= len(samples):
            return [samples]

        def cost(sample: Sample) -> tuple[int, int, int]:
            height, width = store.size(sample)
            return len(sample.turns), height * width, len(sample.turns[0].question)

        order = sorted(samples, key=cost)
        return [order[first : first + size] for first in range(0, len(order), size)]

    def _conversed(self, samples: Sequence[Sample], store: ImageStore) -> list[tuple[list[ModelAnswer], Sequence[int]]]:
        """Return (answers to the turns, (width, height) of the image as the model sees it) for each sample."""
        conversations: list[list[ModelAnswer]] = [[] for _ in samples]
        sizes: list[Sequence[int]] = [[0, 0] for _ in samples]
        images: dict[int, tuple[np.ndarray, EncodedImages]] = {}
        for turn in range(max(len(sample.turns) for sample in samples)):
            requests: dict[int, TurnRequest] = {}
            for at, sample in enumerate(samples):
                if len(sample.turns) <= turn:
                    images.pop(at, None)  # frees its memory
                    continue
                if turn == 0:
                    picture = store.get(sample)
                    images[at] = picture, self.collator.family.pictures([picture])
                request = self._request(sample, conversations[at], *images[at])
                if isinstance(request, ModelAnswer):
                    conversations[at].append(request)
                    continue
                requests[at], size = request, images[at][1].sizes[0]
                sizes[at] = size.width, size.height
            answers = self.engine.answer(list(requests.values())) if requests else []
            for at, answer in zip(requests, answers, strict=True):
                conversations[at].append(answer)
        return list(zip(conversations, sizes, strict=True))

    def _request(
        self, sample: Sample, earlier_answers: Sequence[ModelAnswer], picture: np.ndarray, pictures: EncodedImages
    ) -> TurnRequest | ModelAnswer:
        """Return the request for a sample's next turn, or a failed answer if the turn cannot be asked."""
        turn, collator = len(earlier_answers), self.collator
        if any(answer.failure for answer in earlier_answers):
            return ModelAnswer("", 0, "", "turn_before")
        try:
            earlier_texts = [answer.text for answer in earlier_answers]
            if self.options.history == "expected":
                earlier_texts = [sample.answer(at, collator.convention, pictures.sizes[0]) for at in range(turn)]
            encoded = collator.ask(sample, pictures, earlier_texts)
        except ReservedTokenError:
            return ModelAnswer("", 0, "", "reserved")
        if len(encoded.ids) > self.options.max_length:
            return ModelAnswer("", 0, "", "too_long")
        return TurnRequest(encoded, picture, turn)


def load_collator(run: str | Path, base: str, convention: str = "") -> Collator:
    """Return the encoder of a run's conversations. ``convention`` replaces the run's box format unless it is ""."""
    facts = read_run(run)
    with run_model(run, base) as folder:
        family = load_family(facts["family"], folder)
        tokens = Tokens.read(folder, family.frame).with_system(facts.get("system_prompt", ""))
    prompt_convention = find_convention(convention or facts["convention"])
    return Collator(family, tokens.with_seg() if has_segmenter(run) else tokens, prompt_convention)
