"""What both of MedGround's language models share: options, prompts, views of an image, and asking batch by batch.

A box's number is its region's number plus 1 in images, tables, answers and pages.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import yaml

from cxr.base.errors import UserError, refuse_machine_fault
from cxr.base.faults import Tolerance
from cxr.base.hdf5 import Shard
from cxr.base.paths import RESOURCES
from cxr.base.seeds import stable_hash
from cxr.geometry.boxes import CORNERS
from cxr.llm.answer_cache import answer_digest, cache_replies
from cxr.llm.asking import Answer, Question, ask_each
from cxr.llm.client import connect_lazily
from cxr.llm.guards import fill_slots, neutralize
from cxr.llm.images import PromptImage
from cxr.llm.options import ModelOptions
from cxr.medground.logic.atoms import DOMAINS_WITHOUT_APPEARANCE
from cxr.medground.logic.facts import Facts, read_images, read_regions
from cxr.medground.logic.scene import parse_class_words
from cxr.plotting.numbered_boxes import draw_numbered_boxes

log = logging.getLogger("cxr")
RESOURCE_FILES = ("medground/prompts.yaml",)
PROMPTS = RESOURCES / RESOURCE_FILES[0]
IMAGES_PER_BATCH = 64
"""Images asked about at a time, all of them in memory."""
ANSWERS_FOLDER, ALL = "answers", "all"
"""Folder of the answer cache, and its subfolder for a job of several shards."""
MAX_CHARACTERS = 400
"""Longest text in an answer, in characters, so that a model that does not end is stopped."""
SIDE = 512
"""Smallest side of an image with boxes, px: on a smaller one, numbers would hide the regions."""
MARKED = (230, 159, 0)
"""RGB colour of an answer's outline."""


@dataclass(frozen=True, kw_only=True)
class AskingOptions(ModelOptions):
    """of: the sources of a job's shards, one each; the rest: options of the model."""

    of: Sequence[str] = ()

    def seed_of(self, *parts: object) -> int:
        """Return the seed of a question from its source and subject, so that it does not depend on other images."""
        return stable_hash(self.seed, *parts) % 2**31


@dataclass(frozen=True)
class Prompts:
    """Wordings of a user's file, completed by the default ones. ``path``: the file, for messages."""

    wordings: Mapping
    path: str

    @classmethod
    def read(cls, path: str | Path = "") -> "Prompts":
        """Read a user's file, or the default one. Raises UserError for invalid YAML or an unknown key."""
        ours = _read_yaml(str(PROMPTS))
        if not path:
            return cls(ours, str(PROMPTS))
        theirs = _read_yaml(str(path))
        if unknown := sorted(set(theirs) - set(ours)):
            raise UserError(f"{path} has the key {unknown[0]!r}: choose of {', '.join(ours)}")
        return cls({**ours, **theirs}, str(path))

    def prompt(self, name: str, domain: str, user: str = "user") -> dict[str, str]:
        """Return {system, user} of a prompt for a domain; ``user``: key of the user text.

        Raises UserError if the file lacks one.
        """
        texts = self.wordings[name]
        if not isinstance(texts, Mapping) or not all(isinstance(texts.get(role), str) for role in ("system", user)):
            raise UserError(f"{self.path}: {name} lacks system or {user}: give both as texts")
        note = self.wordings["domain_notes"].get(domain, self.wordings["domain_notes"]["other"])
        return {"system": fill_slots(texts["system"], domain_note=note), "user": texts[user]}

    def description(self, text: str) -> str:
        """Return the text for the slot of an image's description."""
        return neutralize(text) if text else self.wordings["no_description"]

    def words(self, name: str) -> tuple[str, ...]:
        """Return a list of words: refusals, affirms or denies."""
        return tuple(map(str, self.wordings[name]))


@cache
def _read_yaml(path: str) -> Mapping:
    try:
        wordings = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        refuse_machine_fault(path, error)
        first = str(error).strip().splitlines()[0]
        raise UserError(f"{path} is no YAML ({first[:120]}): give a file such as {PROMPTS.name}") from None
    if not isinstance(wordings, Mapping):
        raise UserError(f"{path} has no keys: give a file such as {PROMPTS.name}")
    return wordings


class Request(Protocol):
    """A question, or why it is not asked, with what its line of the answers' file holds besides."""

    question: Question | Answer


R = TypeVar("R", bound=Request)
Build = Callable[[str, Mapping, list[dict], Facts, np.ndarray], Mapping[str, R]]
"""Takes source, image's row, rows of its regions, source's facts and pixels; returns {name: request}."""


class ShardFiles(NamedTuple):
    """Paths of a shard of images, the table of its source's images, and the table of its regions."""

    shard: str
    images: str
    regions: str


def list_shards(
    options: AskingOptions, sources: Sequence[str], images: Sequence[str], regions: Sequence[str]
) -> list[tuple[str, ShardFiles]]:
    """Return the source and files of each of a job's shards.

    sources, regions: one path per shard; images: one table per source, in their order.
    """
    table_by_source = dict(zip(dict.fromkeys(options.of), images, strict=True))
    return [
        (source, ShardFiles(shard, table_by_source[source], table))
        for source, shard, table in zip(options.of, sources, regions, strict=True)
    ]


class ModelSession:
    """A job's language model, which is loaded at the first question that is not in the cache of answers.

    The cache is a folder ``answers``: beside the output of a single shard, or above the folders of several shards.
    ``code``: digest of the code; ``prompts``: a user's
    file of wordings, or none. Raises UserError if the model cannot be reached.
    """

    def __init__(
        self, options: AskingOptions, execution: dict, outputs: Sequence[str], code: str,
        compute: dict | None, prompts: Sequence[str],
    ):  # fmt: skip
        self.options, self.prompts, self.tolerance = options, Prompts.read(*prompts), Tolerance.from_settings(compute)
        first = Path(outputs[0])
        shared, alone = first.parents[1] / ANSWERS_FOLDER / ALL, first.parent / ANSWERS_FOLDER / first.stem
        model = ModelOptions(**{field.name: getattr(options, field.name) for field in fields(ModelOptions)})
        self.generate = cache_replies(
            connect_lazily(options, execution),
            folder=shared if len(options.of) > 1 else alone, digest=answer_digest(model, code),
        )  # fmt: skip

    def ask(
        self, source: str, files: ShardFiles, build: Build[R], image_ids: Sequence[str] | None = None
    ) -> Iterator[tuple[R, dict]]:
        """Yield each request about some images of a shard, by default all with regions, and its answer's fields.

        Raises Broken if none of the model's answers can be used.
        """
        row_by_image, rows_by_image = read_images(files.images), read_regions(files.regions)
        image_ids = sorted(rows_by_image) if image_ids is None else image_ids
        with Shard(files.shard) as shard:
            facts = Facts.from_shard(shard)
            for first in range(0, len(image_ids), IMAGES_PER_BATCH):
                batch, requests = image_ids[first : first + IMAGES_PER_BATCH], {}
                for name in batch:
                    picture = shard.get("picture", name)
                    requests |= build(source, row_by_image[name], rows_by_image[name], facts, picture)
                questions = {name: request.question for name, request in requests.items()}
                answers = ask_each(questions, self.generate, self.options.limits, self.tolerance)
                for name, answer in answers.items():
                    answer_fields = {"answer": answer.value, "problem": answer.problem, "raw": answer.raw}
                    yield requests[name], answer_fields | {"attempts": answer.attempts, "model": self.options.name}
                done = first + len(batch)
                log.info("%d of %d images of %s are asked about", done, len(image_ids), files.shard)


def box_number(region: int) -> int:
    """Return the number of a region's box."""
    return region + 1


def draw_boxes(picture: np.ndarray, rows: Sequence[Mapping], *, is_numbered: bool) -> PromptImage:
    """Return an image uint8 (S, S, 3) with the boxes of some regions: numbered, or outlined without numbers."""
    boxes = {box_number(row["region"]): [row[side] for side in CORNERS] for row in rows}
    colours = {} if is_numbered else dict.fromkeys(boxes, MARKED)
    side = max(SIDE, *picture.shape[:2])
    return PromptImage(draw_numbered_boxes(picture, boxes, colours, side, show_numbers=is_numbered))


def measurement_table(rows: Sequence[Mapping], classes: Mapping[str, Mapping], domain: str) -> str:
    """Return the measurements of regions as text, one line per box."""
    words = parse_class_words(classes)
    formats = {"elongation": ".2f", "solidity": ".2f"}
    formats |= {} if domain in DOMAINS_WITHOUT_APPEARANCE else {"contrast": "+.1f", "texture": ".2f"}
    lines = []
    for row in rows:
        parts = [
            f"{box_number(row['region'])}: {neutralize(words[row['label']].one)}",
            f"area {100 * row['area_ratio']:.2f} % of the picture",
            f"centre {100 * row['cx']:.0f} % from the left and {100 * row['cy']:.0f} % from the top",
        ]
        parts += [f"{name} {row[name]:{form}}" for name, form in formats.items() if row[name] is not None]
        lines.append("\n" + ", ".join(parts))
    return "".join(lines)
