"""Code that MedGround's two language models, the writer of queries and the judge, share: options, prompts, images with
boxes, and requests in batches. The number drawn on a box is the number of its region plus 1."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml

from cxr.base.errors import UserError, refuse_unreadable
from cxr.base.hdf5 import Shard
from cxr.base.paths import RESOURCES
from cxr.base.seeds import stable_hash
from cxr.geometry.boxes import CORNERS
from cxr.llm.answer_cache import answer_digest, cache_replies
from cxr.llm.asking import Answer, Question, ask_each
from cxr.llm.client import connect_lazily
from cxr.llm.guards import fill_slots, neutralize
from cxr.llm.messages import PromptImage
from cxr.llm.options import ModelOptions
from cxr.medground.logic.atoms import DOMAINS_WITHOUT_APPEARANCE
from cxr.medground.logic.facts import Facts, read_images, read_regions
from cxr.medground.logic.scene import parse_class_words
from cxr.plotting.numbered_boxes import draw_numbered_boxes

log = logging.getLogger("cxr")
RESOURCE_FILES = ("medground/prompts.yaml",)
PROMPTS = RESOURCES / RESOURCE_FILES[0]
IMAGES_PER_BATCH = 64  # images per batch of questions; all of them are in memory
ANSWERS_FOLDER, ALL = "answers", "all"  # folder of the answer cache, and its subfolder for jobs of several shards
MAX_CHARACTERS = 400  # longest text in an answer, in characters, so that a model that does not end is stopped
SIDE = 512  # smallest side of an image with boxes, px; on a smaller image, numbers would hide the regions
MARKED = (230, 159, 0)  # RGB colour of an answer's outline


@dataclass(frozen=True, kw_only=True)
class AskingOptions(ModelOptions):
    """Options of a language model. ``shard_sources``: name of the source of each shard that the job reads."""

    shard_sources: Sequence[str] = ()

    def seed_of(self, *parts: object) -> int:
        """Return a question's seed, which depends only on the option ``seed`` and ``parts``, such as an image's id."""
        return stable_hash(self.seed, *parts) % 2**31


@dataclass(frozen=True)
class Prompts:
    """Prompts and word lists of the YAML file ``path``. Keys that the file lacks get their default texts."""

    wordings: Mapping
    path: str

    @classmethod
    def read(cls, path: str | Path = "") -> "Prompts":
        """Read the file ``path``, or the default file for "". Raises UserError for invalid YAML or an unknown key."""
        defaults, wordings = _read_yaml(str(PROMPTS)), _read_yaml(str(path or PROMPTS))
        if unknown := sorted(set(wordings) - set(defaults)):
            raise UserError(f"{path} has the unknown key {unknown[0]!r}: use only {', '.join(defaults)}")
        return cls({**defaults, **wordings}, str(path or PROMPTS))

    def prompt(self, name: str, domain: str, user: str = "user") -> dict[str, str]:
        """Return {"system": text, "user": text} of the prompt ``name``, with the note on images of this ``domain``.
        ``user``: key of the user's text in the file. Raises UserError if the file lacks one of the texts."""
        texts = self.wordings[name]
        if not isinstance(texts, Mapping) or not all(isinstance(texts.get(role), str) for role in ("system", user)):
            raise UserError(f"{self.path}: the prompt {name} lacks the text system or {user}: write both texts there")
        notes = self.wordings["domain_notes"]
        system = fill_slots(texts["system"], domain_note=notes.get(domain, notes["other"]))
        return {"system": system, "user": texts[user]}

    def words(self, name: str) -> tuple[str, ...]:
        """Return the phrases of the list ``name``, which is ``refusals``, ``affirms`` or ``denies``."""
        return tuple(map(str, self.wordings[name]))


@cache
def _read_yaml(path: str) -> Mapping:
    with refuse_unreadable(path, f"{path} is not YAML", f"give a file such as {PROMPTS.name}", yaml.YAMLError):
        wordings = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    if not isinstance(wordings, Mapping):
        raise UserError(f"{path} has no keys with values: give a file such as {PROMPTS.name}")
    return wordings


class Subject(NamedTuple):
    """An image to ask about. ``source``: name of its source. ``image``: its row in the table of images. ``rows``: the
    rows of its regions. ``facts``: classes, zones, … of its source. ``picture``: the image, uint8 (S, S, 3)."""

    source: str
    image: Mapping
    rows: list[dict]
    facts: Facts
    picture: np.ndarray


class Request(NamedTuple):
    """A question, or a ready answer if no model need be asked. ``fields``: fields of the output before the answer."""

    fields: dict
    question: Question | Answer


class ModelSession:
    """The language model of a job. It is loaded at the first question whose answer is not in the cache. The cache is
    the folder ``answers/{shard}`` beside the output of a single shard, or ``answers/all`` above the folders of several
    shards. Asking raises UserError if the model cannot be reached."""

    def __init__(
        self, options: AskingOptions, execution: dict, outputs: Sequence[str], code: str,
        compute: dict | None, prompts: Sequence[str],
    ):  # fmt: skip
        self.options, self.prompts, self.compute = options, Prompts.read(*prompts), compute
        first, has_shards = Path(outputs[0]), len(options.shard_sources) > 1
        folder = first.parents[1] / ANSWERS_FOLDER / ALL if has_shards else first.parent / ANSWERS_FOLDER / first.stem
        generate = connect_lazily(options, execution)
        self.generate = cache_replies(generate, folder=folder, digest=answer_digest(options, code))

    def list_shards(self, sources: Sequence[str], images: Sequence[str], regions: Sequence[str]) -> list[tuple]:
        """Return (source, path of the shard, path of the source's table of images, path of the shard's table of
        regions) for each shard. ``sources``: paths of the shards."""
        names = self.options.shard_sources
        table_by_source = dict(zip(dict.fromkeys(names), images, strict=True))
        return list(zip(names, sources, map(table_by_source.__getitem__, names), regions, strict=True))

    def ask(
        self, files: tuple, build: Callable[[Subject], Iterable[Request]], image_ids: Sequence[str] | None = None
    ) -> Iterator[dict]:
        """Ask the questions that ``build`` returns for each image of a shard, and yield an output line per answer.
        ``files``: a tuple of :meth:`list_shards`. ``image_ids``: the images, None for all with regions. Raises Broken
        if no answer is usable."""
        source, shard_path, images, regions = files
        row_by_image, rows_by_image = read_images(images), read_regions(regions)
        image_ids = sorted(rows_by_image) if image_ids is None else image_ids
        with Shard(shard_path) as shard:
            facts = Facts.from_shard(shard)
            for first in range(0, len(image_ids), IMAGES_PER_BATCH):
                requests: list[Request] = []
                for name in image_ids[first : first + IMAGES_PER_BATCH]:
                    picture = shard.get("picture", name)
                    requests += build(Subject(source, row_by_image[name], rows_by_image[name], facts, picture))
                questions = {number: request.question for number, request in enumerate(requests)}
                answers = ask_each(questions, self.generate, self.options, self.compute)
                for request, answer in zip(requests, answers.values(), strict=True):
                    answer_fields = {"answer": answer.value, "problem": answer.problem, "raw": answer.raw}
                    yield request.fields | answer_fields | {"attempts": answer.attempts, "model": self.options.name}
                num_done, total = min(first + IMAGES_PER_BATCH, len(image_ids)), len(image_ids)
                log.info("the model was asked about %d of %d images of %s", num_done, total, shard_path)


def draw_boxes(picture: np.ndarray, rows: Sequence[Mapping], *, is_numbered: bool) -> PromptImage:
    """Draw the boxes of the regions ``rows`` on an image uint8 (S, S, 3). If ``is_numbered``, add their numbers."""
    boxes = {row["region"] + 1: [row[side] for side in CORNERS] for row in rows}
    colours = {} if is_numbered else dict.fromkeys(boxes, MARKED)
    side = max(SIDE, *picture.shape[:2])
    return PromptImage(draw_numbered_boxes(picture, boxes, colours, side, show_numbers=is_numbered))


def measurement_table(rows: Sequence[Mapping], classes: Mapping[str, Mapping], domain: str) -> str:
    """Return a text for prompts with one line per region, such as "3: nucleus, area 0.52 % of the picture, …".
    ``classes``: {class: its words}. Contrast and texture are left out if the ``domain`` is cxr."""
    words, text = parse_class_words(classes), ""
    formats = {"elongation": ".2f", "solidity": ".2f"}
    formats |= {} if domain in DOMAINS_WITHOUT_APPEARANCE else {"contrast": "+.1f", "texture": ".2f"}
    for row in rows:
        text += f"\n{row['region'] + 1}: {neutralize(words[row['label']].one)}"
        text += f", area {100 * row['area_ratio']:.2f} % of the picture"
        text += f", centre {100 * row['cx']:.0f} % from the left and {100 * row['cy']:.0f} % from the top"
        parts = (f", {name} {row[name]:{form}}" for name, form in formats.items() if row[name] is not None)
        text += "".join(parts)
    return text
