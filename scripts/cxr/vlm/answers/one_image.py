"""Asking a model about one chest X-ray file. The results are the answers with boxes and masks, and a page of them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydicom.dataset import Dataset

from cxr.base.atomic import atomic_file, atomic_folder
from cxr.base.engines import Setup
from cxr.base.errors import UserError
from cxr.dicom.segmentation import Segment, find_lesion, save_segmentation
from cxr.imaging.one_image import FramedImage, decode_image_file, project_mask, segmentation_time
from cxr.instructions.record import Turn
from cxr.plotting import replay
from cxr.plotting.encoding import encode_image
from cxr.plotting.overlay import draw_overlay
from cxr.plotting.plots import save_png
from cxr.vlm.answers.ask import Asker, image_options
from cxr.vlm.answers.engine import AnswersOptions
from cxr.vlm.answers.masks import MaskPredictor
from cxr.vlm.conventions import InputSize, find_convention
from cxr.vlm.models import base_folder, has_segmenter, read_run
from cxr.vlm.reading import Reading, read_boxes
from cxr.vlm.samples import Sample, covered_window, fit_size, to_model_input
from cxr.vlm.tokens import SEG as MARK

ANSWERS, PAGE, SEG = "answers.json", "conversation.html", "segmentation.dcm"
NO_BASE = (
    "a small demonstration model that began without a published base: what it says about a real radiograph cannot be "
    "relied on, however certain it sounds"
)
"""Note on the answers of a small model, which has seen only its tuning samples: in the demo, synthetic X-rays."""
DPI = 110
FAILURE_MESSAGES = {
    "too_long": "the conversation is longer than the model may read: ask fewer questions, or raise "
    "vlm.answers.max_length",
    "reserved": "the question contains a token of the model's chat template: reword it",
    "turn_before": "not asked, because the turn before it failed",
}
"""{reason of a failure in :mod:`cxr.vlm.answers.ask`: message to the user}."""


@dataclass(frozen=True)
class Mask:
    """A mask of an answer, with a ``description`` in words of the conversation.

    ``pixels`` is bool (rows, columns), in the pixels of the image file. ``comment`` is the text of the model that
    predicted the mask, if another model answered.
    """

    description: str
    pixels: np.ndarray
    comment: str = ""


@dataclass(frozen=True)
class Reply:
    """A turn: question, answer with boxes (``reading``) and masks, and the reason of a missing answer (``failure``)."""

    question: str
    answer: str
    stop: str
    failure: str
    reading: Reading
    masks: tuple[Mask, ...] = ()

    @property
    def mask(self) -> np.ndarray | None:
        """Union of all masks, bool (rows, columns), or None if there are none."""
        return np.logical_or.reduce([mask.pixels for mask in self.masks]) if self.masks else None


class MaskSource(NamedTuple):
    """Origin of the masks in a DICOM segmentation: header of the image file, name of the model, version of the code,
    time, and family of the model (``device``).
    """

    header: Dataset
    model: str
    version: str
    created_at: datetime
    device: str


class SingleImageStore:
    """An image store with one image: the original if ``original`` is true, otherwise its frame without padding."""

    def __init__(self, picture: FramedImage, side: int, original: bool = False):
        window = covered_window(picture.affine, picture.grey.shape, picture.frame.shape)
        self.picture, self.side = picture, side
        self.part = picture.upright(picture.grey) if original else picture.frame[window]

    def get(self, sample: Sample) -> np.ndarray:
        """Return the image, uint8 (H, W, 3), for any sample."""
        return to_model_input(self.part, self.side)

    def size(self, sample: Sample) -> tuple[int, int]:
        """Return (H, W) of the image that :meth:`get` returns."""
        return fit_size(self.part.shape, self.side)


def make_samples(questions: Sequence[str], referring: bool) -> list[Sample]:
    """Return one sample that has all ``questions`` as turns. If ``referring``, return one sample per question, which
    asks for the boxes of a phrase. Raises UserError for an empty text."""
    if not questions or not all(isinstance(text, str) and text.strip() for text in questions):
        raise UserError("questions contains an empty text: give questions='[\"Where is the heart?\"]' or similar")
    turns = [Turn(text.strip(), "") for text in questions]
    parts = [(turn,) for turn in turns] if referring else [tuple(turns)]
    fields = ("picture", "", "", "asked")
    return [Sample(f"{number:03d}", *fields, part, asks_boxes=referring) for number, part in enumerate(parts)]


def ask(
    asker: Asker, samples: Sequence[Sample], store: SingleImageStore, drawer: MaskPredictor | None = None
) -> list[Reply]:
    """Return the replies to all turns. Later turns see earlier answers. ``drawer`` predicts a mask for each [SEG]."""
    questions = [turn.question for sample in samples for turn in sample.turns]
    replies: list[Reply] = []
    for question, model_reply in zip(questions, asker.replies(samples, store), strict=True):
        answer, picture = model_reply.answer, store.picture
        reading = read_boxes(answer.text, find_convention(model_reply.convention), InputSize(*model_reply.input_size))
        masks = ()
        if drawer and answer.marks:
            earlier_replies = replies if model_reply.turn else []
            earlier_texts = [text for reply in earlier_replies for text in (reply.question, reply.answer)]
            names = name_masks(question, answer.text, earlier_texts)
            mask_logits = drawer.logits("picture", picture.frame, answer.marks)
            named_logits = zip(names, mask_logits, strict=True)
            masks = tuple(Mask(name, project_mask(logits, picture)) for name, logits in named_logits)
        failure = FAILURE_MESSAGES.get(answer.failure, answer.failure)
        replies.append(Reply(question, answer.text, answer.stop, failure, reading, masks))
    return replies


def name_masks(question: str, answer: str, earlier_texts: Sequence[str] = ()) -> list[str]:
    """Return a description for each [SEG] of an answer: the nearest text that names one of the seven lesion types.

    The search order is the answer before the [SEG], the end of the answer if it has only one [SEG], the question, and
    ``earlier_texts`` from last to first. If no text names a lesion type, the description is the question.
    """
    *parts, last_text = answer.split(MARK)
    later_texts = [*([last_text] if len(parts) == 1 else []), question, *reversed(earlier_texts)]
    texts_by_mask = ([*reversed(parts[: number + 1]), *later_texts] for number in range(len(parts)))
    return [next((text.strip() for text in texts if find_lesion(text)), question) for texts in texts_by_mask]


def write_results(
    folder: Path, picture: FramedImage, replies: list[Reply], model: str, quality: int,
    source: MaskSource | None = None, warnings: Sequence[str] = (),
) -> dict:  # fmt: skip
    """Write ``answers.json``, the page, and for each turn ``<n>_overlay.png`` and ``<n>_mask_<k>.png`` (255: mask).

    With ``source`` (of a DICOM image whose answers have masks), ``segmentation.dcm`` is written too. It has a segment
    for each non-empty mask. ``warnings`` come first in the notes. Returns the content of answers.json.
    """
    notes, has_segmentation = [*warnings, *picture.list_notes()], False
    if source:
        segments = [Segment(mask.description, mask.pixels) for reply in replies for mask in reply.masks]
        reason = save_segmentation(folder / SEG, segments=segments, **source._asdict())
        has_segmentation = not reason
        notes += [f"no DICOM segmentation: {reason}"] if reason else []
    rows, turns, segment_numbers = [], [], count(1)
    upright = picture.upright(picture.grey)
    for place, reply in enumerate(replies, 1):
        mask = None if reply.mask is None else picture.upright(reply.mask)
        boxes, text = reply.reading.boxes, reply.failure or reply.answer
        overlay = f"{place}_overlay.png"
        save_png(draw_overlay(upright, mask, reply.question, text, picture.sides, boxes), folder / overlay, DPI)
        turns.append(replay.Turn(reply.question, reply.answer, reply.failure, boxes.tolist(), mask=mask))
        masks = []
        for number, each in enumerate(reply.masks, 1):
            path, num_pixels = f"{place}_mask_{number}.png", int(each.pixels.sum())
            with atomic_file(folder / path) as temporary:
                temporary.write_bytes(encode_image(".png", each.pixels.astype(np.uint8) * 255))
            segment = next(segment_numbers) if num_pixels and has_segmentation else None
            masks.append({
                "shows": each.description, "said": each.comment, "file": path, "pixels": num_pixels, "segment": segment,
            })  # fmt: skip
        rows.append({
            "question": reply.question, "answer": reply.answer, "failure": reply.failure, "stop": reply.stop,
            "boxes": np.round(boxes, 4).tolist(), "notes": list(reply.reading.notes), "masks": masks,
            "overlay": overlay,
        })  # fmt: skip
    about = {"model": model, "rows": picture.grey.shape[0], "columns": picture.grey.shape[1], "turns": rows}
    about |= {"segmentation": SEG if has_segmentation else None, "notes": notes}
    with atomic_file(folder / ANSWERS) as temporary:
        temporary.write_text(json.dumps(about, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    conversation = replay.Conversation("Conversation", "; ".join(notes), upright, turns, picture.sides)
    replay.write_replay(folder / PAGE, f"Answers of {model}", [conversation], quality)
    return about


def run_image(
    *,
    run: str,
    base: str | list[str],
    image: str,
    output: str,
    questions: Sequence[str],
    referring: bool,
    asking: dict,
    cohort: dict,
    frames: dict,
    quality: int,
    compute: dict,
    code: str,
) -> dict:
    """Ask the model of a run about an image file. Write the folder ``output``; return the content of its answers.json.

    ``asking`` has the fields of AnswersOptions. ``cohort`` and ``frames`` are the options of those stages. ``code`` is
    the version in a DICOM segmentation. A run with a segmenter gives masks too. Raises UserError for invalid input.
    """
    options, samples = AnswersOptions(**asking), make_samples(questions, referring)
    picture, header = decode_image_file(image, cohort, frames)
    setup = Setup.of_job({}, compute)
    asker = Asker.from_run(run, base_folder(base, options.model, options.revision), options, setup)
    facts, name = read_run(run), Path(run).resolve().parts[-2]
    drawer = MaskPredictor.load(run, options, setup) if has_segmenter(run) else None
    side, decoding = image_options(run)
    replies = ask(asker, samples, SingleImageStore(picture, side, bool(decoding)), drawer)
    source = None
    if header is not None and any(reply.masks for reply in replies):
        source = MaskSource(header, name, code, segmentation_time(), facts["family"])
    with atomic_folder(output) as folder:
        return write_results(Path(folder), picture, replies, name, quality, source, () if facts["base"] else (NO_BASE,))
