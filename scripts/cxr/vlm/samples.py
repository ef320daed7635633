"""Samples that a model is trained on or asked: JSON lines of any system, and the pictures in its shards.

A line is a grounding query (``query_id, image_id, query, boxes`` on a grid of 1000), whose answer is JSON, or a
conversation (``sample_id, image_id, turns: [{question, answer}], boxes: {name: fractions}``), whose answers may hold
slots ``<box:name>``: boxes in a sentence. Both are written in the run's convention of coordinates.
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
from cxr.vlm.conventions import Convention, Seen
from cxr.vlm.wording import locate

GRID = 1000
FIELDS = ("picture", "frame", "image")
"""Fields of a shard that may hold the picture, the first that is there."""
FRAMED, AFFINE, ORIGINAL = "image", "to_original", "original_shape"
"""Fields of a frame, of its map to the original picture, and of that picture's rows and columns."""
_SLOT = re.compile(r"<box:([^<>]+)>")


@dataclass(frozen=True)
class Sample:
    """One picture with its turns. boxes: {name of a slot: fractions (x1, y1, x2, y2) of the picture}; mask_ids: of the
    [SEG] of its answers, in order, empty for an empty mask.
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

    def question(self, turn: int, convention: Convention, wording: str = "") -> str:
        """Return what the model is asked in a turn. ``wording``: another file of wordings, for boxes."""
        text = self.turns[turn].question
        return locate(text, convention, wording) if self.asks_boxes else text

    def answer(self, turn: int, convention: Convention, size: Seen) -> str:
        """Return the answer that a model learns, its slots written. Raises UserError for a slot without boxes."""
        return _SLOT.sub(lambda slot: self._written(slot[1], convention, size), self.turns[turn].answer)

    def _written(self, name: str, convention: Convention, size: Seen) -> str:
        if name not in self.boxes:
            raise UserError(f"{self.sample_id}: its answer has the slot {name!r}, but no boxes of that name: add them")
        boxes = self.boxes[name]
        return convention.answer(boxes, size) if self.asks_boxes else convention.listed(boxes, size)


def sample_of(line: Mapping) -> Sample:
    """Return the sample of a line. Raises UserError for one that lacks a field."""
    try:
        common_fields = {name: str(line.get(name, "")) for name in ("source", "split", "domain")}
        if "turns" in line:
            turns = tuple(Turn(turn["question"], turn["answer"]) for turn in line["turns"])
            answer_fields = {"boxes": line.get("boxes", {}), "mask_ids": tuple(map(str, line.get("mask_ids", ())))}
            return Sample(
                line["sample_id"], line["image_id"], **common_fields, task=line["task"], turns=turns, **answer_fields
            )
        boxes = {"answer": (np.array(line["boxes"], np.float64).reshape(-1, 4) / GRID).tolist()}
        turns = (Turn(line["query"], "<box:answer>"),)
        sample = Sample(line["query_id"], line["image_id"], **common_fields, task="grounding", turns=turns, boxes=boxes)
        return Sample(**sample.__dict__ | {"asks_boxes": True})
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"a line of samples lacks or misstates {error}: give query lines or conversations") from None


def read_samples(path: str | Path, tasks: Sequence[str] = ()) -> list[Sample]:
    """Return the samples of a file, in its order; with ``tasks``, those of these tasks alone.

    Raises UserError for an id that is there twice, and where no sample is of the ``tasks``.
    """
    samples, sample_ids = [], set()
    for line in read_lines(path):
        sample = sample_of(line)
        if sample.sample_id in sample_ids:
            raise UserError(f"{path} has the sample {sample.sample_id!r} twice: remove one")
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


class PictureStore:
    """Pictures of shards, by source and image: two sources may have images of one id. Use inside ``with``.

    ``folders``: {source: folder of its shards}; of another source it is that of its name, or else the one that has the
    image. Of a frame it is the part that the original picture covers. With ``originals``, which returns the original,
    uint8 (H, W), of a sample and the (H, W) that its frame in the shards tells, it is the original itself.
    """

    def __init__(
        self,
        shards: Iterable[str | Path],
        side: int = 0,
        originals: Callable[[Sample, tuple[int, int]], np.ndarray] | None = None,
        folders: Mapping[str, str] | None = None,
    ):
        self.shards, self.side, self.originals = list(map(Path, shards)), side, originals
        self.folders = {source: Path(folder) for source, folder in (folders or {}).items()}

    def __enter__(self) -> "PictureStore":
        self._stack = ExitStack()
        self._of: dict[Path, dict[str, tuple[Shard, str]]] = {}
        self._windows: dict[tuple[str, str], tuple[slice, slice]] = {}
        for path in self.shards:
            shard = self._stack.enter_context(Shard(path))
            shard_by_image = self._of.setdefault(path.parent, {})
            for image_id in shard.ids:
                shard_by_image.setdefault(image_id, (shard, _field(shard)))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def get(self, sample: Sample) -> np.ndarray:
        """Return a sample's picture, uint8 (H, W, 3), of at most ``side`` px where that is not 0.

        Raises UserError for a picture that no shard has, or shards of two sources have, StoreError for a damaged shard,
        or for an original that is not the one its frame was made of.
        """
        shard, name = self._at(sample)
        if self.originals is not None:
            original = self.originals(sample, self._original_shape(sample))
            return shown(self._turn(sample).apply(original), self.side)
        return shown(shard.get(name, sample.image_id)[self.covered(sample)], self.side)

    def size(self, sample: Sample) -> tuple[int, int]:
        """Return (H, W) of the picture that :meth:`get` returns, without reading it. Raises UserError like it."""
        if self.originals is not None:
            return fitted(self._turn(sample).shape(self._original_shape(sample)), self.side)
        return fitted([part.stop - part.start for part in self.covered(sample)], self.side)

    def covered(self, sample: Sample) -> tuple[slice, slice]:
        """Return the rows and columns of a sample's frame that its original covers; all of a picture that is no frame.

        Boxes are fractions of the original picture, so that what was padded must go. Raises UserError like :meth:`get`.
        """
        shard, name = self._at(sample)
        rows, columns = shard.shape(name)[:2]
        if name != FRAMED or not shard.has(AFFINE):
            return slice(0, rows), slice(0, columns)
        key = (shard.path.as_posix(), sample.image_id)
        if key not in self._windows:
            original = self._original_shape(sample)
            self._windows[key] = window_of(shard.get(AFFINE, sample.image_id), original, (rows, columns))
        return self._windows[key]

    def _original_shape(self, sample: Sample) -> tuple[int, int]:
        rows, columns = self._at(sample)[0].get(ORIGINAL, sample.image_id)
        return int(rows), int(columns)

    def _turn(self, sample: Sample) -> ImageTurn:
        """Return how a sample's original becomes upright, as its frame shows it."""
        shard, _ = self._at(sample)
        return turn_from_affine(shard.get(AFFINE, sample.image_id)) if shard.has(AFFINE) else UPRIGHT

    def view(self, sample: Sample) -> str:
        """Return the name of a sample's image among all shards. Raises UserError like :meth:`get`."""
        return f"{self._at(sample)[0].path.parent.as_posix()}/{sample.image_id}"

    def frame(self, sample: Sample) -> np.ndarray:
        """Return a sample's picture as its shard has it, uint8 (H, W), padding included. Raises as :meth:`get`."""
        shard, name = self._at(sample)
        picture = shard.get(name, sample.image_id)
        return cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY) if picture.ndim == 3 else picture

    def _at(self, sample: Sample) -> tuple[Shard, str]:
        places = [self.folders[sample.source]] if sample.source in self.folders else self._of
        holding_folders = [folder for folder in places if sample.image_id in self._of.get(folder, {})]
        matching_folders = [folder for folder in holding_folders if folder.name == sample.source] or holding_folders
        image = f"the image {sample.image_id!r} of {sample.source!r}"
        if not matching_folders:
            raise UserError(f"{sample.sample_id}: no shard has {image}: give its shards")
        if len(matching_folders) > 1:
            raise UserError(
                f"{sample.sample_id}: {image} may be that of {matching_folders[0]} or of {matching_folders[1]}: give "
                "the shards of its source alone, or lines that name it"
            )
        return self._of[matching_folders[0]][sample.image_id]


def window_of(affine: np.ndarray, original: tuple[int, int], frame: Sequence[int]) -> tuple[slice, slice]:
    """Return the rows and columns of a frame (rows, columns) that its original picture (rows, columns) covers.

    ``affine``: from the frame to the original.
    """
    rows, columns = original
    edges = np.rint(boxes_to_frame(np.array([0.0, 0.0, columns, rows]), affine)).astype(int).reshape(2, 2)
    height, width = frame
    (x1, y1), (x2, y2) = np.clip(edges, 0, [width, height]).tolist()
    return slice(y1, y2), slice(x1, x2)


def shown(picture: np.ndarray, side: int) -> np.ndarray:
    """Return a picture, uint8 (H, W) or (H, W, 3), as a model gets it: (H, W, 3), of at most ``side`` px if not 0."""
    picture = np.repeat(picture[..., None], 3, axis=2) if picture.ndim == 2 else picture
    height, width = fitted(picture.shape, side)
    if (height, width) != picture.shape[:2]:
        picture = cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA)
    return np.ascontiguousarray(picture)


def fitted(shape: Sequence[int], side: int) -> tuple[int, int]:
    """Return (H, W) of a picture that is reduced to at most ``side`` px, if that is not 0."""
    height, width = shape[:2]
    scale = min(1.0, side / max(height, width)) if side else 1.0
    return max(1, round(height * scale)), max(1, round(width * scale))


def _field(shard: Shard) -> str:
    for name in FIELDS:
        try:
            shard.shape(name)
        except KeyError:
            continue
        return name
    raise UserError(f"{shard.path} has no field of pictures ({', '.join(FIELDS)}): give shards of pictures")


def texts_of(samples: Iterable[Sample], convention: Convention, wording: str = "") -> Iterator[str]:
    """Yield all questions and answers, with boxes in some picture of 1000 px, for a tokenizer that is made of them."""
    for sample in samples:
        for turn in range(len(sample.turns)):
            yield sample.question(turn, convention, wording)
            yield sample.answer(turn, convention, Seen(GRID, GRID))
