"""Adds ROSALIA's masks to a conversation about one image."""

import json
from pathlib import Path

import cv2
import numpy as np

from cxr.base.atomic import atomic_folder
from cxr.base.errors import UserError
from cxr.base.tables import read_lines
from cxr.imaging.one_image import decode_image_file, segmentation_time
from cxr.vlm.answers.one_image import ANSWERS, NO_BASE, Mask, MaskSource, Reply, write_results
from cxr.vlm.reading import Reading

DEVICE = "ROSALIA"  # name of the device in a DICOM segmentation


def run(
    *, conversation: str, asked: str, masks: str, image: str, output: str, cohort: dict, frames: dict, quality: int,
    code: str,
) -> None:  # fmt: skip
    """Write a conversation with ROSALIA's masks for the requests ``asked``. ``cohort``, ``frames``: settings by which
    ``image`` is decoded. Raises UserError if a mask does not have the size of the image."""
    picture, header = decode_image_file(image, cohort, frames)
    paths = (Path(folder, ANSWERS) for folder in (conversation, masks))
    conversation_answers, mask_answers = (json.loads(path.read_text(encoding="utf-8")) for path in paths)
    of_turn: dict[int, list[Mask]] = {}
    for line, finding in zip(read_lines(asked), mask_answers["findings"], strict=True):
        grey = cv2.imread(str(Path(masks, finding["mask"])), cv2.IMREAD_UNCHANGED)
        if grey is None or grey.shape != picture.grey.shape:
            raise UserError(f"{Path(masks, finding['mask'])} is not a mask of {image}: delete {masks} and rerun")
        mask = Mask(line["instruction"], grey > 0, finding["answer"] or "")
        of_turn.setdefault(line["turn"], []).append(mask)
    replies = [
        Reply(
            turn["question"], turn["answer"], turn["stop"], turn["failure"],
            Reading("", np.array(turn["boxes"], np.float64).reshape(-1, 4), notes=tuple(turn["notes"])),
            tuple(of_turn.get(number, ())),
        )
        for number, turn in enumerate(conversation_answers["turns"])
    ]  # fmt: skip
    segmentation = None
    if header is not None and of_turn:
        segmentation = MaskSource(header, mask_answers["model"], code, segmentation_time(), DEVICE)
    with atomic_folder(output) as folder:
        warnings = [note for note in conversation_answers["notes"] if note == NO_BASE]
        write_results(Path(folder), picture, replies, conversation_answers["model"], quality, segmentation, warnings)
