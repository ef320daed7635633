"""Read predictions, which are JSON Lines with one line per pair and masks in one of three formats.

A line is ``{"pair_id": …, "answer": text or null, …}`` with at most one field for the mask. ``mask`` names a row of
the HDF5 file of masks (key ``pair_id``, field ``mask``). ``mask_path`` is the path of a grey image, lesion above 0,
relative to the JSON Lines file. ``rle`` is COCO run-length encoding. The masks of a list of paths or encodings are
united. If there is no field for the mask, or it is null, the predicted mask is empty.

Optional fields are ``note`` (one of ``EMPTY``), the reason why there is no mask, and ``failure`` (one of ``FAILURES``
or any text) with ``detail``, if the model failed on the pair.
"""

import json
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from cxr.base.errors import StoreError, UserError, refuse_machine_fault
from cxr.base.hdf5 import Shard, pack, unpack
from cxr.base.ids import clean_id
from cxr.geometry.masks import resize_mask
from cxr.geometry.rle import decode_rle

REASONS = {
    # no mask: scored as an empty mask
    "no_mask": "the model gave no mask",
    "undecodable_text": "the model's text contains no readable mask",
    # failed: counted as wrong, or excluded
    "no_prediction": "the pair has no prediction",
    "duplicate": "the pair has more than one prediction",
    "failed": "the model failed on the pair",
    "missing_mask": "the mask that the line names is missing",
    "damaged_mask": "the mask cannot be read",
    "wrong_size": "the mask is not square",
    # lines that belong to no pair of the split
    "unknown_pair": "the line names a pair that is not in the split",
    "bad_line": "the line is not a JSON object with a pair_id",
    # excluded
    "not_asked": "the instruction has no wording of the persona",
    "reviewed": "reviewers rejected the pair",
}
"""{code: reason why a pair or a line of predictions is excluded, counts as wrong, or has an empty mask}."""
EMPTY = ("no_mask", "undecodable_text")
FAILURES = ("no_prediction", "duplicate", "failed", "missing_mask", "damaged_mask", "wrong_size")
"""Codes of the reasons why a pair has no usable prediction."""
NOT_ASKED = "not_asked"  # only in runs with a persona's wordings; in other runs it is a failure
MASK_FIELDS = ("mask", "mask_path", "rle")


class MaskFault(Exception):
    """Raised for an unusable mask. ``reason`` is a code of ``REASONS``, and ``detail`` contains no patient text."""

    def __init__(self, reason: str, detail: str = ""):
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


def read_mask_image(path: Path, above: int = 0) -> np.ndarray:
    """Return which pixels of a PNG or JPEG exceed the grey level ``above``, bool (H, W), or raise MaskFault."""
    if not path.is_file():
        raise MaskFault("missing_mask", path.name)
    encoded = np.fromfile(path, np.uint8)
    image = cv2.imdecode(encoded, cv2.IMREAD_GRAYSCALE) if encoded.size else None
    if image is None:
        raise MaskFault("damaged_mask", path.name)
    return image > above


def read_map(path: Path, threshold: float) -> np.ndarray | None:
    """Return where the map (H, W) in a .npy file exceeds ``threshold``, bool (H, W).

    Several maps (n, H, W) are united, and the result is None if n is 0. Raises MaskFault if the file has no such map.
    """
    try:
        maps = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        refuse_machine_fault(path, error)
        raise MaskFault("damaged_mask" if path.is_file() else "missing_mask", path.name) from None
    if not isinstance(maps, np.ndarray) or maps.dtype.kind not in "fiub" or maps.ndim not in (2, 3):
        raise MaskFault("damaged_mask", f"{path.name} has no map of numbers of shape (H, W) or (n, H, W)")
    if maps.dtype.kind == "f" and not np.isfinite(maps).all():
        raise MaskFault("damaged_mask", f"{path.name} has values that are not finite")
    return unite_masks(list(np.atleast_3d(maps) > threshold)) if maps.ndim == 3 else maps > threshold


def unite_masks(masks: list[np.ndarray]) -> np.ndarray | None:
    """Return the union of masks; None without masks. Raises MaskFault if their shapes differ."""
    if not masks:
        return None
    if len({mask.shape for mask in masks}) > 1:
        raise MaskFault("wrong_size", "the masks of one pair differ in size")
    return np.logical_or.reduce(masks)


def fit_mask(mask: np.ndarray, size: int) -> np.ndarray:
    """Return a mask resized by nearest neighbour and packed, uint8 (size, size / 8). Raises MaskFault if not square."""
    if mask.ndim != 2 or mask.shape[0] != mask.shape[1] or not mask.size:
        raise MaskFault("wrong_size", f"the mask has {' x '.join(map(str, mask.shape))} pixels, but must be square")
    return pack(resize_mask(mask, size))


@dataclass(frozen=True)
class Prediction:
    """The prediction for one pair."""

    mask: np.ndarray | None  # uint8 packed (size, size / 8); None if unusable
    answer: str | None
    reason: str = ""  # Code of ``REASONS`` if the mask is unusable or empty
    detail: str = ""


class Predictions:
    """A context manager that reads a run's predictions for the pairs of a split. Masks are read one at a time.

    ``entry_by_pair``: the first line of each pair; ``repeated_pairs``: pairs with several lines; ``stray``: (reason,
    line number) of every line that is not in ``entry_by_pair``; ``num_lines``: number of lines in the file.
    """

    def __init__(
        self, path: str | Path, masks: str | Path | None, pair_ids: Collection[str], size: int, reworded: bool = False
    ):
        """``path``: JSON Lines file; ``masks``: HDF5 file of masks, if any; ``size``: side of the masks to return.

        ``reworded``: whether the model received a persona's wordings. Raises UserError if no line is for ``pair_ids``.
        """
        self.path, self.masks, self.size, self.reworded = Path(path), masks, size, reworded
        self.entry_by_pair: dict[str, dict] = {}
        self.repeated_pairs: set[str] = set()
        self.stray: list[tuple[str, int]] = []
        self.num_lines = 0
        if not self.path.is_file():
            raise UserError(f"the file of predictions {path} does not exist: correct the path")
        with open(path, "rb") as file:
            for number, text in enumerate(file, 1):
                if text.strip():
                    self.num_lines += 1
                    self._add_line(text, number, pair_ids)
        if pair_ids and not self.entry_by_pair:
            raise UserError(
                f"{path}: none of the {self.num_lines} lines names a pair_id of this split: give predictions for it"
            )

    def _add_line(self, text: bytes, number: int, pair_ids: Collection[str]) -> None:
        try:
            entry = json.loads(text)
        except ValueError:
            entry = None
        if not isinstance(entry, dict) or not isinstance(entry.get("pair_id"), str):
            self.stray.append(("bad_line", number))
            return
        pair_id = clean_id(entry["pair_id"])
        if pair_id not in pair_ids:
            self.stray.append(("unknown_pair", number))
        elif pair_id in self.entry_by_pair:
            self.repeated_pairs.add(pair_id)
            self.stray.append(("duplicate", number))
        else:
            self.entry_by_pair[pair_id] = entry | {"pair_id": pair_id}

    def __enter__(self) -> "Predictions":
        self._stack = ExitStack()
        self._shard = self._stack.enter_context(Shard(self.masks, key="pair_id")) if self.masks else None
        if self._shard is not None and len(self._shard):
            try:
                self._shard.stored("mask", self._shard.ids[0])
            except KeyError:
                raise UserError(f"{self.masks} has no packed `mask` (docs/systems/evaluation.md): add it") from None
            except StoreError as error:
                if not error.damaged:
                    raise
                # a damaged row makes only its pair unusable
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def get(self, pair_id: str) -> Prediction:
        """Return the prediction for a pair of the split. An unusable prediction has a reason but no mask."""
        entry = self.entry_by_pair.get(pair_id)
        if entry is None:
            return Prediction(None, None, "no_prediction")
        answer = entry["answer"] if isinstance(entry.get("answer"), str) else None
        if pair_id in self.repeated_pairs:
            return Prediction(None, answer, "duplicate")
        if entry.get("failure"):
            failure = str(entry["failure"])
            if self.reworded and failure == NOT_ASKED:
                return Prediction(None, None, NOT_ASKED)
            reason = failure if failure in FAILURES else "failed"
            return Prediction(None, answer, reason, str(entry.get("detail") or failure)[:200])
        try:
            mask = self._mask(entry)
        except MaskFault as fault:
            return Prediction(None, answer, fault.reason, fault.detail)
        if mask is None:
            note = entry.get("note")
            empty = np.zeros((self.size, self.size // 8), np.uint8)
            return Prediction(empty, answer, note if note in EMPTY else "no_mask")
        return Prediction(mask, answer)

    def _mask(self, entry: dict) -> np.ndarray | None:
        mask_fields = [name for name in MASK_FIELDS if entry.get(name) is not None]
        if len(mask_fields) > 1:
            raise MaskFault("damaged_mask", f"the line has {' and '.join(mask_fields)}: only one is allowed")
        if not mask_fields:
            return None
        value = entry[mask_fields[0]]
        if mask_fields[0] == "mask":
            return self._stored(value)
        values = value if isinstance(value, list) else [value]
        mask = unite_masks([self._read_mask(mask_fields[0], each) for each in values])
        return None if mask is None else fit_mask(mask, self.size)

    def _stored(self, row: object) -> np.ndarray:
        if self._shard is None or not isinstance(row, str) or row not in self._shard:
            raise MaskFault("missing_mask", f"row {row!r}"[:200])
        try:
            packed = self._shard.stored("mask", row)
        except StoreError as error:
            if not error.damaged:  # the machine failed, not the prediction
                raise
            raise MaskFault("damaged_mask", f"row {row!r}"[:200]) from None
        return packed if packed.shape == (self.size, self.size // 8) else fit_mask(unpack(packed), self.size)

    def _read_mask(self, field: str, value: object) -> np.ndarray:
        if field == "mask_path":
            if not isinstance(value, str):
                raise MaskFault("missing_mask", "mask_path is not a string")
            return read_mask_image(self.path.parent / value)
        try:
            return decode_rle(value)
        except ValueError as error:
            raise MaskFault("damaged_mask", str(error)[:200]) from None
