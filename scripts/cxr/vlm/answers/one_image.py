"""Ask a run about one chest X-ray file: a conversation, its boxes and masks drawn, and a page that replays it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
from pydicom.dataset import Dataset

from cxr.base.atomic import atomic, whole
from cxr.base.errors import UserError
from cxr.dicom.segmentation import Segment, lesion_of, save_segmentation
from cxr.imaging.one_image import Picture, in_picture, made_at, picture_of
from cxr.instructions.record import Turn
from cxr.plotting import replay
from cxr.plotting.encoding import encode_image
from cxr.plotting.overlay import SIDES, draw_overlay
from cxr.plotting.plots import save_png
from cxr.vlm.answers.ask import Asker, pictures_of
from cxr.vlm.answers.engine import AnswersOptions, Execution
from cxr.vlm.answers.masks import Drawer
from cxr.vlm.conventions import Seen, convention_of
from cxr.vlm.models import base_of, read_run, tells_masks
from cxr.vlm.reading import Reading, read_boxes
from cxr.vlm.samples import Sample, fitted, shown, window_of
from cxr.vlm.tokens import SEG as MARK

ANSWERS, PAGE, SEG = "answers.json", "conversation.html", "segmentation.dcm"
DPI = 110
MIRRORED = "the header says that the image is mirrored; the model takes the image's left as right"
FAILED = {
    "too_long": "the conversation is longer than the model may read: ask fewer questions, or raise "
    "vlm.answers.max_length",
    "reserved": "the question holds a mark of the model's own chat: reword it",
    "turn_before": "not asked, as the turn before it failed",
}
"""Reasons of :mod:`cxr.vlm.answers.ask`, in words."""


@dataclass(frozen=True)
class Mask:
    """A mask of an answer, bool (rows, columns) in the image's own pixels; shows: what it is of, as an instruction or
    in the words of the conversation; said: what another model, which drew it, says besides, "" for nothing.
    """

    shows: str
    drawn: np.ndarray
    said: str = ""


@dataclass(frozen=True)
class Reply:
    """A turn's answer, its boxes as they were read, its masks in order, and why there is no answer."""

    question: str
    answer: str
    stop: str
    failure: str
    reading: Reading
    masks: tuple[Mask, ...] = ()

    @property
    def mask(self) -> np.ndarray | None:
        """All masks in one, bool (rows, columns); None without any."""
        return np.logical_or.reduce([mask.drawn for mask in self.masks]) if self.masks else None


@dataclass(frozen=True)
class Drawn:
    """Who drew masks, for a DICOM segmentation. header: of the image's file; model: its name; version: of the code;
    made: when; device: name of the kind of model.
    """

    header: Dataset
    model: str
    version: str
    made: datetime
    device: str


class OnePicture:
    """A store of one picture, as the model was tuned on pictures: the original, or the part of its canonical frame that
    it covers.
    """

    def __init__(self, picture: Picture, side: int, original: bool = False):
        window = window_of(picture.affine, picture.grey.shape, picture.frame.shape)
        self.picture, self.side = picture, side
        self.part = picture.upright(picture.grey) if original else picture.frame[window]

    def get(self, sample: Sample) -> np.ndarray:
        """Return the picture, uint8 (H, W, 3), whatever the sample."""
        return shown(self.part, self.side)

    def size(self, sample: Sample) -> tuple[int, int]:
        """Return (H, W) of it."""
        return fitted(self.part.shape, self.side)


def samples_of(questions: Sequence[str], referring: bool) -> list[Sample]:
    """Return one conversation of all questions; of a ``referring`` run, which knows one turn, a sample for each.

    Raises UserError for an empty question.
    """
    if not questions or not all(isinstance(text, str) and text.strip() for text in questions):
        raise UserError("questions holds an empty one: give texts, such as questions='[\"Where is the heart?\"]'")
    turns = [Turn(text.strip(), "") for text in questions]
    parts = [(turn,) for turn in turns] if referring else [tuple(turns)]
    return [
        Sample(f"{number:03d}", "picture", "", "", "asked", part, asks_boxes=referring)
        for number, part in enumerate(parts)
    ]


def ask(asker: Asker, samples: Sequence[Sample], store: OnePicture, drawer: Drawer | None = None) -> list[Reply]:
    """Return the replies to all turns, in order; later turns see the model's own earlier answers.

    ``drawer``: of a run that draws a mask for each [SEG] of its answers.
    """
    questions = [turn.question for sample in samples for turn in sample.turns]
    replies: list[Reply] = []
    for question, model_reply in zip(questions, asker.replies(samples, store), strict=True):
        line = model_reply.line()
        reading = read_boxes(line["text"], convention_of(line["convention"]), Seen(*line["seen"]))
        failure = line["failure"] and FAILED.get(line["failure"], line["failure"])
        earlier_texts = (
            [] if model_reply.turn == 0 else [text for reply in replies for text in (reply.question, reply.answer)]
        )
        masks = ()
        if drawer and model_reply.said.marks:
            picture = store.picture
            mask_logits = drawer.logits("picture", picture.frame, model_reply.said.marks)
            names = shows(question, line["text"], earlier_texts)
            masks = tuple(
                Mask(name, in_picture(logits, picture)) for name, logits in zip(names, mask_logits, strict=True)
            )
        replies.append(Reply(question, line["text"], line["stop"], failure, reading, masks))
    return replies


def shows(question: str, answer: str, earlier_texts: Sequence[str] = ()) -> list[str]:
    """Return what each [SEG] of an answer is of: the text nearest to it that names one of the seven lesion types.

    These are, in this order, the answer up to the [SEG], its end if no other [SEG] is there, the question, and the
    texts ``earlier_texts`` from the last. Where none names a lesion, it is the question.
    """
    *parts, last_text = answer.split(MARK)
    mask_names = []
    for number in range(len(parts)):
        texts = [
            *reversed(parts[: number + 1]),
            *([last_text] if len(parts) == 1 else []),
            question,
            *reversed(earlier_texts),
        ]
        mask_names.append(next((text.strip() for text in texts if lesion_of(text)), question))
    return mask_names


def write(
    folder: Path,
    picture: Picture,
    replies: Sequence[Reply],
    model: str,
    quality: int,
    segmentation_source: Drawn | None = None,
) -> dict:
    """Write ``answers.json``, of each turn ``<n>_overlay.png`` and ``<n>_mask_<k>.png`` (255 where the mask is), and
    the page; return the content of answers.json.

    ``segmentation_source``: given for a DICOM image whose answers have masks; then ``segmentation.dcm`` is written too,
    with a segment for each mask that is not empty.
    """
    rows, number = [], 0
    upright = picture.upright(picture.grey)
    upright_masks = [None if reply.mask is None else picture.upright(reply.mask) for reply in replies]
    for place, (reply, upright_mask) in enumerate(zip(replies, upright_masks, strict=True), 1):
        name = f"{place}_overlay.png"
        figure = draw_overlay(
            upright, upright_mask, reply.question, reply.failure or reply.answer, picture.sides, reply.reading.boxes
        )
        save_png(figure, folder / name, DPI)
        masks = []
        for count, reply_mask in enumerate(reply.masks, 1):
            path, has_pixels = f"{place}_mask_{count}.png", bool(reply_mask.drawn.any())
            with atomic(folder / path) as temporary:
                temporary.write_bytes(encode_image(".png", reply_mask.drawn.astype(np.uint8) * 255))
            number += has_pixels
            masks.append({
                "shows": reply_mask.shows, "said": reply_mask.said, "file": path,
                "pixels": int(reply_mask.drawn.sum()),
                "segment": number if has_pixels and segmentation_source else None,
            })  # fmt: skip
        rows.append({
            "question": reply.question, "answer": reply.answer, "failure": reply.failure, "stop": reply.stop,
            "boxes": np.round(reply.reading.boxes, 4).tolist(), "notes": list(reply.reading.notes), "masks": masks,
            "overlay": name,
        })  # fmt: skip
    about = {"model": model, "rows": picture.grey.shape[0], "columns": picture.grey.shape[1], "turns": rows}
    notes = [f"the image: {note}" for note in picture.notes]
    about |= {"segmentation": None, "notes": [*notes, MIRRORED] if picture.sides != SIDES else notes}
    if segmentation_source:
        _segment(folder, [mask for reply in replies for mask in reply.masks], segmentation_source, about)
    with atomic(folder / ANSWERS) as temporary:
        temporary.write_text(json.dumps(about, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    replay_turns = [
        replay.Turn(reply.question, reply.answer, reply.failure, reply.reading.boxes.tolist(), mask=mask)
        for reply, mask in zip(replies, upright_masks, strict=True)
    ]
    replay_conversation = replay.Conversation(
        "Conversation", "; ".join(about["notes"]), upright, replay_turns, picture.sides
    )
    replay.write_replay(folder / PAGE, f"Answers of {model}", [replay_conversation], quality)
    return about


def _segment(folder: Path, masks: Sequence[Mask], segmentation_source: Drawn, about: dict) -> None:
    """Write the DICOM segmentation, or note in ``about`` why there is none."""
    segments = [Segment(mask.shows, mask.drawn) for mask in masks]
    dicom_fields = {
        "version": segmentation_source.version,
        "model": segmentation_source.model,
        "made": segmentation_source.made,
        "device": segmentation_source.device,
    }
    if reason := save_segmentation(folder / SEG, segmentation_source.header, segments, **dicom_fields):
        about["notes"].append(f"no DICOM segmentation: {reason}")
        for mask in (mask for row in about["turns"] for mask in row["masks"]):
            mask["segment"] = None
        return
    about["segmentation"] = SEG


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
    """Ask a run about the image in a file; write the results into the folder ``output``, return its answers.json.

    ``asking``: fields of AnswersOptions; ``cohort``, ``frames``: options of those stages; ``quality``: of the page's
    picture; ``code``: digest of the code, which a DICOM segmentation states as its version. A run with a head gives its
    masks too. Raises UserError for a user's mistake.
    """
    options, samples = AnswersOptions(**asking), samples_of(questions, referring)
    picture, header = picture_of(image, cohort, frames)
    execution = Execution(compute.get("device", "auto"), compute.get("asked"), compute.get("batch", 8))
    asker = Asker.from_run(run, base_of(base, options.model, options.revision), options, execution)
    facts, name = read_run(run), Path(run).resolve().parts[-2]
    drawer = Drawer.load(run, options, execution) if tells_masks(run) else None
    side, decoding = pictures_of(run)
    replies = ask(asker, samples, OnePicture(picture, side, bool(decoding)), drawer)
    segmentation_source = None
    if header is not None and any(reply.masks for reply in replies):
        segmentation_source = Drawn(header, name, code, made_at(), facts["family"])
    with whole(output) as folder:
        return write(Path(folder), picture, replies, name, quality, segmentation_source)
