"""Ask a model about one chest X-ray file, and write answers, masks in original pixels, overlays and a DICOM SEG."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path

import numpy as np
from pydicom.dataset import Dataset

from cxr.base.atomic import atomic_folder
from cxr.base.errors import UserError, describe
from cxr.base.tables import read_lines
from cxr.dicom.segmentation import Segment, save_segmentation
from cxr.ils.inference.asker import NO_SEG, SEVERAL_SEG, Asker
from cxr.ils.inference.settings import InferenceOptions
from cxr.ils.rosalia.samples import make_sample, prepare_pixels
from cxr.imaging.one_image import FramedImage, decode_image_file, project_mask, segmentation_time
from cxr.plotting.encoding import encode_image
from cxr.plotting.overlay import draw_overlay
from cxr.plotting.plots import save_png
from cxr.segmentation.images import equalise

ANSWERS, SEG = "answers.json", "segmentation.dcm"
DPI = 110
NOTES = {
    NO_SEG: "the answer has no [SEG], so there is no mask",
    SEVERAL_SEG: "the answer has several [SEG], so the mask is the union of their masks",
}


@dataclass(frozen=True)
class Finding:
    """The model's reply to one instruction. ``mask`` is bool (rows, columns) in original pixels."""

    instruction: str
    answer: str | None
    mask: np.ndarray
    note: str = ""


def ask_about_image(asker: Asker, picture: FramedImage, instructions: Sequence[str]) -> list[Finding]:
    """Return one finding per instruction. Raises UserError for an empty instruction, or if the model fails."""
    if not instructions or not all(text.strip() for text in instructions):
        raise UserError("instruction is empty: give one, such as 'Segment the effusion.'")
    options = asker.pair_options()
    pixels = prepare_pixels(equalise(picture.frame) if options.equalise else picture.frame, options)
    about = {"image_id": "picture", "equalised": options.equalise, "answer": None, "mask": None}
    texts = [text.strip() for text in instructions]
    samples = [make_sample(asker.tokens, options, pixels, text, pair_id=text, **about) for text in texts]
    findings = []
    for text, reply in zip(texts, asker.ask(samples), strict=True):
        if reply.fault:
            why = describe(reply.error) if reply.error else reply.fault
            raise UserError(f"the model failed on {text!r} ({why}): reword the instruction, or take another image")
        mask = np.zeros(picture.grey.shape, bool)
        if reply.mask_values is not None:
            mask = project_mask(reply.mask_values, picture)
        findings.append(Finding(text, reply.answer, mask, NOTES.get(reply.note, "")))
    return findings


def write_findings(
    folder: Path,
    picture: FramedImage,
    findings: Sequence[Finding],
    *,
    header: Dataset | None,
    version: str,
    model: str,
    created_at: datetime,
) -> dict:
    """Write the findings and ``answers.json`` into a folder, and return the content of ``answers.json``.

    Each instruction gets ``<n>_mask.png`` (255 inside the lesion) and ``<n>_overlay.png``. If the ``header`` of a DICOM
    image is given, ``segmentation.dcm`` has a segment for each mask that is not empty. ``version`` (of the code) and
    ``created_at`` are written into this DICOM file, and ``model`` (its name) into both files.
    """
    notes, is_segmented = picture.list_notes(), False
    if header is not None:
        segments = [Segment(finding.instruction, finding.mask) for finding in findings]
        reason = save_segmentation(folder / SEG, header, segments, version=version, model=model, created_at=created_at)
        is_segmented = not reason
        notes += [f"no DICOM segmentation: {reason}"] if reason else []
    rows, segment_numbers = [], count(1)
    for place, finding in enumerate(findings, 1):
        mask_name, overlay_name, num_pixels = f"{place}_mask.png", f"{place}_overlay.png", int(finding.mask.sum())
        (folder / mask_name).write_bytes(encode_image(".png", finding.mask.astype(np.uint8) * 255))
        texts = finding.instruction, finding.answer if finding.answer is not None else "(no answer was asked for)"
        grey, mask = picture.upright(picture.grey), picture.upright(finding.mask)
        save_png(draw_overlay(grey, mask, *texts, picture.sides), folder / overlay_name, DPI)
        segment = next(segment_numbers) if num_pixels and is_segmented else None
        row = {"instruction": finding.instruction, "answer": finding.answer, "note": finding.note, "mask": mask_name}
        rows.append(row | {"overlay": overlay_name, "pixels": num_pixels, "segment": segment})
    about = {"model": model, "rows": picture.grey.shape[0], "columns": picture.grey.shape[1], "findings": rows}
    about |= {"segmentation": SEG if is_segmented else None, "notes": notes}
    (folder / ANSWERS).write_text(json.dumps(about, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return about


def run(
    *,
    model: str,
    image: str,
    instructions: Sequence[str],
    output: str,
    asking: dict,
    cohort: dict,
    frames: dict,
    compute: dict,
    code: str,
    instructions_file: str | None = None,
) -> dict:
    """Ask a model about an image file, write the results into the folder ``output``, and return its answers.json.

    ``asking``: values of :class:`InferenceOptions`; ``cohort``, ``frames``, ``compute``: sections of the settings;
    ``code``: version of the code; ``instructions_file``: JSON Lines with the field instruction, in place of
    ``instructions``. An empty file gives no findings. Raises UserError for a missing or unreadable input.
    """
    if instructions_file:
        instructions = [line["instruction"] for line in read_lines(instructions_file)]
    elif not image or not instructions:
        raise UserError(
            "predict needs an image and an instruction: add --config image=chest.dcm instruction='Segment the edema.'"
        )
    options = InferenceOptions(**asking)
    picture, header = decode_image_file(image, cohort, frames)
    findings = ask_about_image(Asker.load(model, options, compute), picture, instructions) if instructions else []
    name = "/".join(Path(model).resolve().parts[-2:])
    about = {"header": header, "version": code, "model": name, "created_at": segmentation_time()}
    with atomic_folder(output) as folder:
        return write_findings(Path(folder), picture, findings, **about)
