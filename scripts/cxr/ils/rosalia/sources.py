"""Read pairs, images, masks and wordings one by one. Each process opens a file on first use."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
from PIL import Image, UnidentifiedImageError

from cxr.base.errors import UserError, refuse_unreadable
from cxr.base.faults import broken_part
from cxr.base.hdf5 import Shard
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_lines, read_table

FIELDS = {"pair_id": str, "image_id": str, "instruction": str, "answer": str, "seg": bool, "mask_id": str | None}
"""{field of a pair's line that is read: its type}."""
GREY_MODES = ("1", "L", "LA", "P", "RGB", "RGBA")  # Pillow's modes with at most eight bits per channel


class _PerProcess:
    """Base class of objects with open files. Copies made by fork or pickle open the files again."""

    def __init__(self) -> None:
        self._open: dict = {}
        self._process = os.getpid()

    def _files(self) -> dict:
        if self._process != os.getpid():
            self._open, self._process = {}, os.getpid()
        return self._open

    def __getstate__(self) -> dict:
        return self.__dict__ | {"_open": {}, "_process": 0}


class PairLines(_PerProcess):
    """The N pairs of a JSONL file by row, read on demand. Only 17 bytes per pair and the image ids are in memory.

    ``positive``: polarity of each pair, bool (N,); ``image``: index of each pair's image in ``images``, int32 (N,).
    Raises UserError for a missing or empty file, and for a line that is not JSON, lacks a field or repeats a pair id.
    """

    def __init__(self, path: str | Path):
        super().__init__()
        self.path = Path(path)
        offsets, positive, image, numbers, pair_ids = [0], [], [], {}, set()
        remedy = "run snakemake dataset, or correct the file"
        with refuse_unreadable(path, f"{path} cannot be read", remedy), open(self.path, "rb") as file:
            for number, text in enumerate(file, 1):
                line = self._parsed(text, number)
                if line["pair_id"] in pair_ids:
                    raise UserError(f"{path} line {number} repeats the pair {line['pair_id']}: regenerate the dataset")
                pair_ids.add(line["pair_id"])
                offsets.append(offsets[-1] + len(text))
                positive.append(line["seg"])
                image.append(numbers.setdefault(line["image_id"], len(numbers)))
        if not positive:
            raise UserError(f"{path} holds no pair: choose another split, or a dataset with more studies")
        self.offsets = np.array(offsets[:-1], np.int64)
        self.positive, self.image = np.array(positive, bool), np.array(image, np.int32)
        self.images: list[str] = list(numbers)

    def _parsed(self, text: bytes, number: int) -> dict:
        try:
            line = json.loads(text)
        except ValueError:
            raise UserError(f"{self.path} line {number} is damaged (no JSON): regenerate the dataset") from None
        for name, kind in FIELDS.items():
            if not isinstance(line, dict) or name not in line or not isinstance(line[name], kind):
                raise UserError(f"{self.path} line {number} has no valid {name!r}: regenerate the dataset")
        if line["seg"] and not line["mask_id"]:
            raise UserError(
                f"{self.path} line {number}: the positive pair {line['pair_id']} has no mask: regenerate the dataset"
            )
        return line

    def __len__(self) -> int:
        return len(self.offsets)

    def __iter__(self) -> Iterator[dict]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, row: int) -> dict:
        files = self._files()
        if "file" not in files:
            files["file"] = open(self.path, "rb")  # noqa: SIM115 (kept open)
        files["file"].seek(self.offsets[row])
        return self._parsed(files["file"].readline(), row + 1)


class ImageSource(Protocol):
    """Source of grey images, uint8 (H, W), by image id."""

    name: str

    def __contains__(self, image_id: str) -> bool: ...

    def get(self, image_id: str) -> np.ndarray:
        """Return an image. Raises UserError or StoreError if it cannot be read."""


class ShardFrames(_PerProcess):
    """The frames in the shards ``paths``, uint8 (H, W)."""

    field, key = "image", "image_id"

    def __init__(self, paths: list[str] | list[Path]):
        super().__init__()
        self.name = f"{paths[0]} and {len(paths) - 1} more" if len(paths) > 1 else str(*paths) or "no frames"
        self._place: dict[str, Path] = {}
        for path in paths:
            with Shard(path, self.key) as shard:
                self._place |= dict.fromkeys(shard.ids, Path(path))

    def __contains__(self, row_id: str) -> bool:
        return row_id in self._place

    def get(self, row_id: str) -> np.ndarray:
        return self._shard(self._place[row_id]).get(self.field, row_id)

    def _shard(self, path: Path) -> Shard:
        files = self._files()
        if path not in files:
            files[path] = Shard(path, self.key).__enter__()
        return files[path]


class ShardMasks(ShardFrames):
    """The masks in the shards ``paths``, bool (H, W)."""

    field, key = "mask", "mask_id"

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Shape (H, W) of the masks; None without masks."""
        return next((self._shard(path).shape() for path in self._place.values()), None)


class ImageTable:
    """The 8-bit images in a table (image_id, path relative to its folder). Raises UserError if a column is missing."""

    def __init__(self, path: str | Path):
        self.name = str(path)
        table = read_table(path)
        for column in ("image_id", "path"):
            if column not in table.columns:
                raise UserError(f"{path} has no column {column!r}: give a table with image_id and path")
        self._paths = {
            str(name): Path(path).parent / place for name, place in table.select("image_id", "path").iter_rows()
        }

    def __contains__(self, image_id: str) -> bool:
        return image_id in self._paths

    def get(self, image_id: str) -> np.ndarray:
        path = self._paths[image_id]
        try:
            with Image.open(path) as image:
                image.load()
                if image.mode not in GREY_MODES:
                    raise UserError(f"{path} has more than eight bits per channel ({image.mode}): convert it to 8 bits")
                return np.array(image.convert("L"))
        except (OSError, UnidentifiedImageError, SyntaxError) as error:
            if broken_part(error):
                raise
            raise UserError(f"{path} is missing or damaged: fetch it again ({type(error).__name__})") from None


def open_image_source(frames: list[str] | list[Path] | None, pictures: str | Path | None) -> ImageSource:
    """Return the images in the table ``pictures`` if there is one, else those in the shards ``frames``."""
    return ImageTable(pictures) if pictures else ShardFrames(frames or [])


NO_WORDING = "no_wording"  # fault of a pair whose instruction has no wording of the persona
WORDING_FIELDS = ("instruction", "persona", "wordings")


class RandomWording:
    """Random choice of the instruction or one of its paraphrases, with equal probability."""

    def __init__(self, path: str | Path):
        """``path``: file of wordings from the paraphrase stage."""
        self.wordings_by_instruction: dict[str, list[str]] = {}
        for line in _read_wordings(path):
            self.wordings_by_instruction.setdefault(line["instruction"], []).extend(line["wordings"])

    def texts(self, instruction: str) -> list[str]:
        """Return the instruction and then all its paraphrases."""
        return [instruction, *self.wordings_by_instruction.get(instruction, [])]

    def text(self, line: Mapping, chance: float) -> str:
        """Return the wording that a random number ``chance`` in [0, 1) selects; 0 selects the plain instruction."""
        texts = self.texts(line["instruction"])
        return texts[int(chance * len(texts))]


class PersonaWording:
    """Choice of one of a persona's wordings by the seed, the pair and the persona."""

    def __init__(self, path: str | Path, persona: str, seed: int):
        """``path``: file of wordings from the paraphrase stage."""
        self.persona, self.seed = persona, seed
        self.wordings_by_instruction = {
            line["instruction"]: line["wordings"] for line in _read_wordings(path) if line["persona"] == persona
        }
        if not self.wordings_by_instruction:
            raise UserError(f"{path} holds no wording of the persona {persona!r}: run snakemake paraphrase again")

    def text(self, line: Mapping, chance: float) -> str:
        """Return a pair's wording; ``chance`` is not used. Raises UserError (``NO_WORDING``) if there is none."""
        texts = self.wordings_by_instruction.get(line["instruction"])
        if not texts:
            raise UserError(NO_WORDING)
        return texts[stable_hash(self.seed, "wording", line["pair_id"], self.persona) % len(texts)]


def _read_wordings(path: str | Path):
    for line in read_lines(path):
        if any(name not in line for name in WORDING_FIELDS):
            raise UserError(f"{path} holds no wordings of instructions: run snakemake paraphrase again")
        yield line
