"""Convert the outputs of other models to predictions: one small adapter for each of Table 4's eight baselines.

The published codes name their outputs after images. Here each pair is asked separately, and its output is named after
the pair_id (``docs/systems/evaluation.md`` lists the change in each model's code). An adapter is made from the folder
or file and the options; it returns the union of a pair's masks in the model's own size, or None without a mask.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cxr.base.errors import UserError
from cxr.base.hdf5 import ShardWriter, unpack
from cxr.base.ids import clean_id
from cxr.base.jobs import progress
from cxr.base.tables import write_lines
from cxr.ils.evaluation.mask_files import MaskFault, fit_mask, read_map, read_mask_image, unite_masks

LISA_ABOVE = 50
"""LISA's and PixelLM's scripts write masks as JPEG with 100 for the lesion; this threshold is half of it."""
BACKGROUND = "others"
"""Text4Seg's label of the background."""


@dataclass(frozen=True)
class ReadOptions:
    """How to read outputs: threshold of a map (None: the model's own), and side of Text4Seg's grid in cells."""

    threshold: float | None
    grid: int


@dataclass(frozen=True)
class Output:
    """A model's output for one pair: its mask (H, W) in any square size, or None; its answer; a note."""

    mask: np.ndarray | None
    answer: str | None = None
    note: str = ""


Adapter = Callable[[str], Output]
"""Returns the output of a pair_id. Raises Fault if there is no usable output."""


def png(folder: Path, _: ReadOptions) -> Adapter:
    """Read ``<pair_id>.png``, lesion above 0, and the answer from ``<pair_id>.txt``, if there is one."""

    files = _list_files(folder)

    def read(pair_id: str) -> Output:
        path = _find_file(files, f"{pair_id}.png")
        answer = _read_answer(files, pair_id)
        if path is None:
            return _make_maskless_output(answer)
        return Output(read_mask_image(path), answer)

    return read


def lisa(folder: Path, _: ReadOptions) -> Adapter:
    """Read LISA-7B's and -13B's ``<pair_id>_mask_<k>.jpg``, one per [SEG], and their printed text ``<pair_id>.txt``."""
    masks, files = _group_numbered_files(folder, r"(.+)_mask_(\d+)\.(?:jpg|png)"), _list_files(folder)

    def read(pair_id: str) -> Output:
        answer = _read_answer(files, pair_id)
        if pair_id not in masks:
            return _make_maskless_output(answer)
        return Output(unite_masks([read_mask_image(path, LISA_ABOVE) for path in masks[pair_id]]), answer)

    return read


def text4seg(lines: Path, reading: ReadOptions) -> Adapter:
    """Read Text4Seg's raw texts, JSON Lines of pair_id and text; without a grid the mask is empty, as in its code."""
    texts = _read_texts(lines)

    def read(pair_id: str) -> Output:
        if len(texts.get(pair_id, ())) != 1:
            raise MaskFault("duplicate" if pair_id in texts else "no_prediction")
        try:
            return Output(parse_grid(texts[pair_id][0], reading.grid))
        except ValueError:
            return Output(None, note="undecodable_text")

    return read


def text4seg_sam(folder: Path, _: ReadOptions) -> Adapter:
    """Read Text4Seg's masks after its refinement by SAM, ``<pair_id>_sam_mask.png``, lesion 255."""

    files = _list_files(folder)

    def read(pair_id: str) -> Output:
        path = _find_file(files, f"{pair_id}_sam_mask.png")
        if path is None:
            raise MaskFault("no_prediction")
        return Output(read_mask_image(path))

    return read


def pixellm(folder: Path, reading: ReadOptions) -> Adapter:
    """Read PixelLM-7B's and -13B's logits ``<pair_id>.npy`` (n, H, W), one map per named target; above 0 is lesion."""
    return _make_map_adapter(folder, 0.0 if reading.threshold is None else reading.threshold)


def biomedparse(folder: Path, reading: ReadOptions) -> Adapter:
    """Read BiomedParse's probabilities ``<pair_id>.npy`` (1, H, W) or (H, W); above 0.5 is lesion."""
    return _make_map_adapter(folder, 0.5 if reading.threshold is None else reading.threshold)


def reclmis(folder: Path, reading: ReadOptions) -> Adapter:
    """Read RecLMIS's outputs after its sigmoid, ``<pair_id>.npy`` of 224 x 224; above 0.5 is lesion."""
    return _make_map_adapter(folder, 0.5 if reading.threshold is None else reading.threshold)


def imisnet(folder: Path, reading: ReadOptions) -> Adapter:
    """Read IMIS-Net's best mask after its sigmoid, ``<pair_id>.npy``; above 0.5 is lesion."""
    return _make_map_adapter(folder, 0.5 if reading.threshold is None else reading.threshold)


def mark_everything(_: Path | None, __: ReadOptions) -> Adapter:
    """Mark every pixel as lesion: a baseline that ignores the image."""
    return lambda pair_id: Output(np.ones((8, 8), bool))


ADAPTERS = {
    "png": png,
    "lisa": lisa,
    "text4seg": text4seg,
    "text4seg_sam": text4seg_sam,
    "pixellm": pixellm,
    "biomedparse": biomedparse,
    "reclmis": reclmis,
    "imisnet": imisnet,
    "everything": mark_everything,
}
DOCUMENTED_FORMAT = "jsonl"
"""Name for predictions that need no adapter."""


def choose_adapter(name: str, path: str, reading: ReadOptions) -> Adapter:
    """Return the adapter for a model's outputs at ``path``. Raises UserError for an unknown adapter or path."""
    if name not in ADAPTERS:
        adapter_names = ", ".join((DOCUMENTED_FORMAT, *ADAPTERS))
        raise UserError(f"evaluation.predictions: adapter {name!r} is not one of {adapter_names}: choose one")
    if name == "everything":
        return mark_everything(None, reading)
    source = Path(path)
    if name == "text4seg" and not source.is_file():
        raise UserError(f"evaluation.predictions: {path!r} is not a file: adapter {name} reads JSON Lines")
    if name != "text4seg" and not source.is_dir():
        raise UserError(f"evaluation.predictions: {path!r} is not a folder: adapter {name} reads one file per pair")
    return ADAPTERS[name](source, reading)


def parse_grid(text: str, side: int) -> np.ndarray:
    """Return bool (side, side) from Text4Seg's text: rows of "label *count| label *count", between <seg> and </seg>.

    As in its code, missing cells at the end repeat the last cell, and surplus cells are dropped. Raises ValueError for
    a text without a grid.
    """
    match = re.search(r"<seg>(.*?)(?:</seg>|$)", text, flags=re.S)
    if match is None:
        raise ValueError("no <seg>")
    cells: list[bool] = []
    for run in re.split(r"[|\n]", match[1].strip("\n")):
        if not run.strip():
            continue
        label, star, count = run.rpartition("*")
        if not star or not count.strip().isdecimal():
            raise ValueError("a run without a count")
        cells += [label.strip().lower() != BACKGROUND] * min(int(count), side * side)
        if len(cells) >= side * side:
            break
    if not cells:
        raise ValueError("an empty grid")
    cells = (cells + [cells[-1]] * (side * side - len(cells)))[: side * side]
    return np.array(cells).reshape(side, side)


def _make_map_adapter(folder: Path, threshold: float) -> Adapter:
    files = _list_files(folder)

    def read(pair_id: str) -> Output:
        path = _find_file(files, f"{pair_id}.npy")
        if path is None:
            return _make_maskless_output(_read_answer(files, pair_id))
        return Output(read_map(path, threshold), _read_answer(files, pair_id))

    return read


def _list_files(folder: Path) -> dict[str, Path]:
    """Return the files of a folder by name, with accents normalised."""
    return {clean_id(path.name): path for path in sorted(folder.iterdir())}


def _find_file(files: Mapping[str, Path], name: str) -> Path | None:
    """Return the file of this name; None if there is none. Raises Fault for a pair_id that no file can be named by."""
    if "/" in name or "\\" in name or "\0" in name:
        raise MaskFault("no_prediction", "the pair_id is not a file name")
    path = files.get(name)
    return path if path is not None and path.is_file() else None


def _read_answer(files: Mapping[str, Path], pair_id: str) -> str | None:
    path = _find_file(files, f"{pair_id}.txt")
    return path.read_text(encoding="utf-8", errors="replace").strip() if path else None


def _make_maskless_output(answer: str | None) -> Output:
    """Return an output without a mask. Raises Fault without either: the pair was not asked."""
    if answer is None:
        raise MaskFault("no_prediction")
    return Output(None, answer)


def _group_numbered_files(folder: Path, pattern: str) -> dict[str, list[Path]]:
    """Return {pair_id: its files in numerical order}."""
    matches = [(match, path) for path in folder.iterdir() if (match := re.fullmatch(pattern, path.name))]
    paths_by_pair: dict[str, list[Path]] = {}
    for match, path in sorted(matches, key=lambda item: (item[0][1], int(item[0][2]), item[1].name)):
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
                raise UserError(f"{path}: line {number} is no JSON object with pair_id and text: correct it") from None
    return texts


def convert_outputs(pair_ids: list[str], adapter: Adapter, lines: str, masks: str, size: int, attrs: dict) -> None:
    """Write a model's outputs for the pairs of a split, in order: JSON Lines, and masks of ``size`` pixels.

    A pair without an output gets no line; one with an unusable output gets a line with ``failure``. Raises UserError if
    no pair has an output.
    """
    with ShardWriter(masks, key="pair_id", attrs=attrs, empty={"mask": ((size, size), bool)}) as writer:
        entries = list(progress(_convert_pairs(pair_ids, adapter, writer, size), len(pair_ids), "pairs with an output"))
        if pair_ids and not entries:
            raise UserError(
                "evaluation.predictions: there is no output for any pair of this split: name each after its pair_id"
            )
    write_lines(lines, entries)


def _convert_pairs(pair_ids: Iterable[str], adapter: Adapter, writer: ShardWriter, size: int) -> Iterator[dict]:
    for pair_id in pair_ids:
        try:
            output = adapter(pair_id)
            packed = None if output.mask is None else fit_mask(output.mask, size)
        except MaskFault as fault:
            if fault.reason != "no_prediction":
                yield {"pair_id": pair_id, "answer": None, "failure": fault.reason, "detail": fault.detail}
            continue
        if packed is not None:
            writer.append(pair_id, mask=unpack(packed))
        entry = {"pair_id": pair_id, "answer": output.answer, "mask": None if packed is None else pair_id}
        yield entry | ({"note": output.note} if output.note else {})
