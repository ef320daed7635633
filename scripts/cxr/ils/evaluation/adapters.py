"""Convert the outputs of other models to predictions, with an adapter for each of the eight baselines of Table 4.

Each model must be asked every pair separately and name its output after the pair_id. ``docs/systems/evaluation.md``
lists the necessary change in each model's code.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cxr.base.errors import UserError
from cxr.base.hdf5 import ShardWriter, unpack
from cxr.base.ids import clean_id
from cxr.base.jobs import progress
from cxr.base.tables import read_lines, write_lines
from cxr.ils.evaluation.predictions import MaskFault, fit_mask, read_map, read_mask_image, unite_masks
from cxr.ils.evaluation.settings import OutputFormat

LISA_ABOVE = 50
"""Grey level above which a pixel of LISA's JPEG masks is lesion; its script writes 100 for the lesion."""
BACKGROUND = "others"  # Text4Seg's label of the background


@dataclass(frozen=True)
class Output:
    """The output of another model for one pair."""

    mask: np.ndarray | None  # Union of the pair's masks, bool (H, W), of any square size
    answer: str | None = None
    note: str = ""  # Code of the reason why the mask is None


Adapter = Callable[[str], Output]  # function from pair_id to output that raises MaskFault if no output is usable


class MaskFiles(NamedTuple):
    """The naming and format of the mask files in a folder. The masks of one pair are united."""

    pattern: str  # Regular expression of the file names, with the groups (pair_id, number)
    read: Callable[[Path], np.ndarray | None]  # Function that reads one file


_PROBABILITIES = MaskFiles(r"(.+)()\.npy", partial(read_map, threshold=0.5))
"""Probability maps (H, W) or (n, H, W)."""
MASK_FILES = {
    # lesion above 0
    "png": MaskFiles(r"(.+)()\.png", read_mask_image),
    # LISA-7B's and -13B's masks, one per [SEG]
    "lisa": MaskFiles(r"(.+)_mask_(\d+)\.(?:jpg|png)", partial(read_mask_image, above=LISA_ABOVE)),
    # Text4Seg's masks after its refinement by SAM, lesion 255
    "text4seg_sam": MaskFiles(r"(.+)()_sam_mask\.png", read_mask_image),
    # PixelLM-7B's and -13B's logits (n, H, W), one map per named target
    "pixellm": MaskFiles(r"(.+)()\.npy", partial(read_map, threshold=0.0)),
    "biomedparse": _PROBABILITIES,
    "reclmis": _PROBABILITIES,
    "imisnet": _PROBABILITIES,
}
ADAPTERS = (*MASK_FILES, "text4seg", "everything")


def choose_adapter(name: str, path: str, grid: int) -> Adapter:
    """Return the adapter ``name`` for the outputs in the folder or file ``path``.

    A folder may also have the answers, in files ``<pair_id>.txt``. ``grid``: rows and columns of Text4Seg's grid.
    """
    if name == "everything":  # baseline that predicts the whole image
        return lambda pair_id: Output(np.ones((8, 8), bool))
    if name == "text4seg":
        texts = _read_texts(Path(path))

        def read_text(pair_id: str) -> Output:
            if len(texts.get(pair_id, ())) != 1:
                raise MaskFault("duplicate" if pair_id in texts else "no_prediction")
            try:
                return Output(parse_grid(texts[pair_id][0], grid))
            except ValueError:  # without a grid the mask is empty, as in Text4Seg's code
                return Output(None, note="undecodable_text")

        return read_text
    masks, answers = (_group_files(Path(path), pattern) for pattern in (MASK_FILES[name].pattern, r"(.+)()\.txt"))

    def read(pair_id: str) -> Output:
        answer_files = answers.get(pair_id, [])
        if not answer_files and pair_id not in masks:
            raise MaskFault("no_prediction")  # the pair was not asked
        answer = answer_files[0].read_text(encoding="utf-8", errors="replace").strip() if answer_files else None
        pair_masks = [MASK_FILES[name].read(mask_path) for mask_path in masks.get(pair_id, [])]
        return Output(unite_masks([mask for mask in pair_masks if mask is not None]), answer)

    return read


def parse_grid(text: str, side: int) -> np.ndarray:
    """Return the mask in a text of Text4Seg, bool (side, side), True where the label is not the background's.

    The text has rows of "label *count| label *count" between <seg> and </seg>. If it has too few cells, the last cell
    is repeated. Surplus cells are dropped. Raises ValueError if the text has no grid.
    """
    match = re.search(r"<seg>(.*?)(?:</seg>|$)", text, flags=re.S)
    if match is None:
        raise ValueError("the text has no <seg>")
    cells: list[bool] = []
    for run in re.split(r"[|\n]", match[1].strip("\n")):
        if not run.strip():
            continue
        label, star, count = run.rpartition("*")
        if not star or not count.strip().isdecimal():
            raise ValueError("a label has no count")
        cells += [label.strip().lower() != BACKGROUND] * min(int(count), side * side)
        if len(cells) >= side * side:
            break
    if not cells:
        raise ValueError("the grid is empty")
    cells = (cells + [cells[-1]] * (side * side - len(cells)))[: side * side]
    return np.array(cells).reshape(side, side)


def _group_files(folder: Path, pattern: str) -> dict[str, list[Path]]:
    matches = [(match, path) for path in folder.iterdir() if (match := re.fullmatch(pattern, path.name))]
    paths_by_pair: dict[str, list[Path]] = {}
    for match, path in sorted(matches, key=lambda item: (item[0][1], int(item[0][2] or 0), item[1].name)):
        paths_by_pair.setdefault(clean_id(match[1]), []).append(path)
    return paths_by_pair


def _read_texts(path: Path) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {}
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                entry = json.loads(line)
                texts.setdefault(clean_id(entry["pair_id"]), []).append(str(entry["text"]))
            except (ValueError, TypeError, KeyError, AttributeError):
                raise UserError(f"{path} line {number} is no JSON object with pair_id and text: correct it") from None
    return texts


def run_predictions(
    *,
    lines: str,
    predictions: str,
    prediction_masks: str,
    options: OutputFormat,
    size: int,
    attrs: dict,
    source: str | None = None,
) -> None:
    """Write another model's outputs, in the file or folder ``source``, as predictions for the pairs of ``lines``.

    A pair without an output gets no line, and a pair with an unusable output gets a line with ``failure``. The masks
    have ``size`` x ``size`` pixels. Raises UserError if no pair has an output.
    """
    adapter = choose_adapter(options.adapter, source or "", options.grid)
    pair_ids = [line["pair_id"] for line in read_lines(lines)]
    entries = []
    with ShardWriter(prediction_masks, key="pair_id", attrs=attrs, empty={"mask": ((size, size), bool)}) as writer:
        for pair_id in progress(pair_ids, len(pair_ids), "pairs with an output"):
            try:
                output = adapter(pair_id)
                packed = None if output.mask is None else fit_mask(output.mask, size)
            except MaskFault as fault:
                if fault.reason != "no_prediction":
                    entry = {"pair_id": pair_id, "answer": None, "failure": fault.reason, "detail": fault.detail}
                    entries.append(entry)
                continue
            if packed is not None:
                writer.append(pair_id, mask=unpack(packed))
            entry = {"pair_id": pair_id, "answer": output.answer, "mask": None if packed is None else pair_id}
            entries.append(entry | ({"note": output.note} if output.note else {}))
        if pair_ids and not entries:
            raise UserError(
                "evaluation.predictions: there is no output for any pair of this split: name outputs after the pair_id"
            )
    write_lines(predictions, entries)
