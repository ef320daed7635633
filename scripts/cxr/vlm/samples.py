"""Samples for training or asking a model: JSON Lines of any system, and the images in its shards.

A line is a grounding query or a conversation. A query has ``query_id, image_id, query, boxes``, with boxes on a grid of
1000, and its answer is JSON. A conversation has ``sample_id, image_id, turns: [{question, answer}], boxes: {name:
fractions}``. In an answer, ``<box:name>`` stands for the boxes of that name. The boxes in prompts and answers are
written in the run's convention of coordinates.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import cv2
import numpy as np

from cxr.base.errors import UserError
from cxr.base.hdf5 import Shard
from cxr.base.tables import read_lines
from cxr.geometry.affine import boxes_to_frame, turn_from_affine
from cxr.geometry.turns import UPRIGHT
from cxr.geometry.turns import Turn as ImageTurn
from cxr.instructions.record import Turn
from cxr.vlm.conventions import GRID, Convention, InputSize, localization_question

FIELDS = ("picture", "frame", "image")  # fields of a shard that may contain the image; the first existing one is used
FRAME_FIELD, AFFINE, ORIGINAL = "image", "to_original", "original_shape"  # fields: frame, affine, shape of the original
_SLOT = re.compile(r"<box:([^<>]+)>")


@dataclass(frozen=True)
class Sample:
    """One image with its turns. ``boxes`` is {name in ``<box:name>``: [x1, y1, x2, y2 as fractions of the image]}.

    ``asks_boxes`` marks a grounding query. ``mask_ids`` has an id for each [SEG] in the answers, in order, "" for an
    empty mask.
    """

    sample_id: str
    image_id: str
    source: str
    split: str
    task: str
    turns: tuple[Turn, ...]
    boxes: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)
    asks_boxes: bool = False
    domain: str = ""
    mask_ids: tuple[str, ...] = ()

    def question(self, turn: int, convention: Convention) -> str:
        """Return the question of a turn. A grounding query also states the convention of coordinates."""
        text = self.turns[turn].question
        return localization_question(text, convention) if self.asks_boxes else text

    def answer(self, turn: int, convention: Convention, size: InputSize) -> str:
        """Return a turn's expected answer with boxes in place of ``<box:name>``. Raises UserError if one is missing."""
        return _SLOT.sub(lambda slot: self._written(slot[1], convention, size), self.turns[turn].answer)

    def _written(self, name: str, convention: Convention, size: InputSize) -> str:
        if name not in self.boxes:
            raise UserError(f"{self.sample_id}: an answer has <box:{name}>, but `boxes` lacks {name!r}: add its boxes")
        boxes = self.boxes[name]
        return convention.answer(boxes, size) if self.asks_boxes else convention.write_list(boxes, size)


def parse_sample(line: Mapping) -> Sample:
    """Return the sample in a line of JSON. Raises UserError if a field is missing or wrong."""
    try:
        common_fields = {name: str(line.get(name, "")) for name in ("source", "split", "domain")}
        if "turns" in line:
            turns = tuple(Turn(turn["question"], turn["answer"]) for turn in line["turns"])
            answer_fields = {"boxes": line.get("boxes", {}), "mask_ids": tuple(map(str, line.get("mask_ids", ())))}
            fields = common_fields | {"task": line["task"], "turns": turns} | answer_fields
            return Sample(line["sample_id"], line["image_id"], **fields)
        boxes = {"answer": (np.array(line["boxes"], np.float64).reshape(-1, 4) / GRID).tolist()}
        turns = (Turn(line["query"], "<box:answer>"),)
        sample = Sample(line["query_id"], line["image_id"], **common_fields, task="grounding", turns=turns, boxes=boxes)
        return Sample(**sample.__dict__ | {"asks_boxes": True})
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"a sample line has a missing or wrong field {error}: give queries or conversations") from None


def read_samples(path: str | Path, tasks: Sequence[str] = ()) -> list[Sample]:
    """Return a file's samples, only those of ``tasks`` if given. Raises UserError for a repeated id or no such task."""
    samples, sample_ids = [], set()
    for line in read_lines(path):
        sample = parse_sample(line)
        if sample.sample_id in sample_ids:
            raise UserError(f"{path} has the sample {sample.sample_id!r} twice: remove one of them")
        sample_ids.add(sample.sample_id)
        samples.append(sample)
    if not tasks:
        return samples
    task_samples = [sample for sample in samples if sample.task in tasks]
    if not task_samples:
        task_names = ", ".join(dict.fromkeys(sample.task for sample in samples)) or "none"
        raise UserError(
            f"the run's tasks in vlm.tuning.runs are {', '.join(tasks)}, but those of {path} are {task_names}: name "
            "one of these, or leave tasks out"
        )
    return task_samples


class ImageStore:
    """Images in shards, by source and image id, for use inside ``with``. An id is unique only within a source.

    ``folders`` is {source: folder of its shards}. For other sources it is the folder with the source's name, or else
    any folder with the image. A 512 × 512 frame is cropped to the part that its original image covers. If ``originals``
    is given, original images are used instead of frames. ``originals(sample, shape)`` returns the original, uint8 (H,
    W), whose shape is stored with the frame.
    """

    def __init__(
        self, shards: Iterable, side: int = 0, originals: Callable | None = None, folders: Mapping | None = None
    ):
        self.shards, self.side, self.originals = list(map(Path, shards)), side, originals
        self.folders = {source: Path(folder) for source, folder in (folders or {}).items()}

    def __enter__(self) -> "ImageStore":
        self._stack = ExitStack()
        self._of: dict[Path, dict[str, tuple[Shard, str]]] = {}
        self._windows: dict[tuple[Path, str], tuple[slice, slice]] = {}
        for path in self.shards:
            shard = self._stack.enter_context(Shard(path))
            name = next(filter(shard.fields.__contains__, FIELDS), None)
            if name is None and shard.ids:
                raise UserError(f"{path} has no image field ({', '.join(FIELDS)}): give shards of images")
            shard_by_image = self._of.setdefault(path.parent, {})
            for image_id in shard.ids:
                shard_by_image.setdefault(image_id, (shard, name))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def get(self, sample: Sample) -> np.ndarray:
        """Return a sample's image, uint8 (H, W, 3), shrunk to at most ``side`` px unless that is 0.

        Raises UserError if no or more than one shard has the image, StoreError for a damaged shard or changed original.
        """
        shard, name = self._at(sample)
        if self.originals is not None:
            original = self.originals(sample, self._original_shape(sample))
            return to_model_input(self._turn(sample).apply(original), self.side)
        return to_model_input(shard.get(name, sample.image_id)[self.covered(sample)], self.side)

    def size(self, sample: Sample) -> tuple[int, int]:
        """Return (H, W) of the image of :meth:`get`, without reading it. Raises UserError like :meth:`get`."""
        if self.originals is not None:
            return fit_size(self._turn(sample).shape(self._original_shape(sample)), self.side)
        return fit_size([part.stop - part.start for part in self.covered(sample)], self.side)

    def covered(self, sample: Sample) -> tuple[slice, slice]:
        """Return the rows and columns of a frame inside its padding, to which boxes refer. Raises like :meth:`get`."""
        shard, name = self._at(sample)
        rows, columns = shard.shape(name)[:2]
        if name != FRAME_FIELD or AFFINE not in shard.fields:
            return slice(0, rows), slice(0, columns)
        key = (shard.path, sample.image_id)
        if key not in self._windows:
            affine, original = shard.get(AFFINE, sample.image_id), self._original_shape(sample)
            self._windows[key] = covered_window(affine, original, (rows, columns))
        return self._windows[key]

    def _original_shape(self, sample: Sample) -> tuple[int, int]:
        rows, columns = self._at(sample)[0].get(ORIGINAL, sample.image_id)
        return int(rows), int(columns)

    def _turn(self, sample: Sample) -> ImageTurn:
        """Return the rotation and reflection that make a sample's original upright, as its frame is."""
        shard, _ = self._at(sample)
        return turn_from_affine(shard.get(AFFINE, sample.image_id)) if AFFINE in shard.fields else UPRIGHT

    def view(self, sample: Sample) -> str:
        """Return a text that identifies a sample's image among all shards. Raises UserError like :meth:`get`."""
        return f"{self._at(sample)[0].path.parent.as_posix()}/{sample.image_id}"

    def frame(self, sample: Sample) -> np.ndarray:
        """Return a sample's stored image with its padding, uint8 (H, W). Raises like :meth:`get`."""
        shard, name = self._at(sample)
        picture = shard.get(name, sample.image_id)
        return cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY) if picture.ndim == 3 else picture

    def _at(self, sample: Sample) -> tuple[Shard, str]:
        places = [self.folders[sample.source]] if sample.source in self.folders else self._of
        holding_folders = [folder for folder in places if sample.image_id in self._of.get(folder, {})]
        matching_folders = [folder for folder in holding_folders if folder.name == sample.source] or holding_folders
        image = f"the image {sample.image_id!r} of {sample.source!r}"
        if not matching_folders:
            raise UserError(f"{sample.sample_id}: no shard has {image}: add its shard")
        if len(matching_folders) > 1:
            raise UserError(
                f"{sample.sample_id}: {image} is in {matching_folders[0]} and in {matching_folders[1]}: give only the "
                "shards of its source, or lines that name the source"
            )
        return self._of[matching_folders[0]][sample.image_id]


def covered_window(affine: np.ndarray, original: tuple[int, int], frame: Sequence[int]) -> tuple[slice, slice]:
    """Return the rows and columns of a frame that its original covers. ``affine`` maps the frame to the original."""
    rows, columns = original
    edges = np.rint(boxes_to_frame(np.array([0.0, 0.0, columns, rows]), affine)).astype(int).reshape(2, 2)
    height, width = frame
    (x1, y1), (x2, y2) = np.clip(edges, 0, [width, height]).tolist()
    return slice(y1, y2), slice(x1, x2)


def to_model_input(picture: np.ndarray, side: int) -> np.ndarray:
    """Convert an image, uint8 (H, W) or (H, W, 3), to (H, W, 3), shrunk to at most ``side`` px unless that is 0."""
    picture = np.repeat(picture[..., None], 3, axis=2) if picture.ndim == 2 else picture
    height, width = fit_size(picture.shape, side)
    if (height, width) != picture.shape[:2]:
        picture = cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA)
    return np.ascontiguousarray(picture)


def fit_size(shape: Sequence[int], side: int) -> tuple[int, int]:
    """Return (H, W) of an image that is shrunk to at most ``side`` px, unless that is 0."""
    height, width = shape[:2]
    scale = min(1.0, side / max(height, width)) if side else 1.0
    return max(1, round(height * scale)), max(1, round(width * scale))


def all_texts(samples: Iterable[Sample], convention: Convention) -> Iterator[str]:
    """Yield all questions and answers, for building a tokenizer. Boxes are written for an image of 1000 × 1000 px."""
    for sample in samples:
        for turn in range(len(sample.turns)):
            yield sample.question(turn, convention)
            yield sample.answer(turn, convention, InputSize(GRID, GRID))
