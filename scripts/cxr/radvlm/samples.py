"""The JSON line of a sample, written by the instructions stage and read by tuning, inference and evaluation.

An answer marks a box by a slot ``<box:name>``; ``boxes`` holds its corners as fractions of the original image. Each run
chooses how coordinates are written (``cxr.vlm.conventions``).
"""

from collections.abc import Mapping, Sequence

from cxr.instructions.record import Box, Record, Turn

TASKS = (
    "report_generation", "classification", "anatomical_grounding", "abnormality_grounding", "abnormality_detection",
    "phrase_grounding", "conversation", "conversation_grounded", "absent_grounding", "ils_grounding",
    "ils_segmentation",
)  # fmt: skip
"""All tasks, in the order of a mix."""
TEXT_TASKS = ("report_generation", "phrase_grounding", "conversation", "conversation_grounded")
"""Tasks whose turns contain report text or text derived from it."""
SEG = "[SEG]"
"""Token of an answer that stands for a mask."""


def box_slot(name: str) -> str:
    """Return the slot of the boxes ``name``. Raises ValueError for an empty name or one with < or >."""
    if not name or set(name) & set("<>"):
        raise ValueError(f"{name!r} is not a valid name for boxes")
    return f"<box:{name}>"


def make_sample(
    sample_id: str,
    task: str,
    image: Mapping,
    turns: Sequence[Turn],
    *,
    boxes: Mapping[str, Sequence[Box]] | None = None,
    labels: Sequence[str] | None = None,
    mask_ids: Sequence[str] = (),
    facts: Sequence[str] = (),
    engine: str = "",
    number: int = 0,
    target: str | None = None,
) -> Record:
    """Return a sample about ``image``, a row with source, image_id, study_id, subject_id and split.

    ``labels``: present labels, None if the source has none; ``facts``: ids of the supporting facts; ``number``: pass;
    ``target``: requested region, finding or phrase; ``engine``: engine of a generated text. Raises ValueError for an
    invalid :class:`Record`.
    """
    extra_fields = {"pass": number, "asked": target, "labels": labels, "facts": list(facts), "engine": engine}
    return Record(
        sample_id, task, image["source"], image["split"], image["subject_id"], image["study_id"], image["image_id"],
        tuple(turns), {name: tuple(map(tuple, slot_boxes)) for name, slot_boxes in (boxes or {}).items()},
        tuple(mask_ids), extra_fields,
    )  # fmt: skip


def sample_line(sample: Record) -> dict:
    """Return the JSON line of a sample, with keys in a fixed order."""
    return {
        "sample_id": sample.sample_id,
        "task": sample.task,
        "source": sample.source,
        "subject_id": sample.subject_id,
        "study_id": sample.study_id,
        "image_id": sample.image_id,
        "split": sample.split,
        "pass": sample.more["pass"],
        "asked": sample.more["asked"],
        "turns": [{"question": turn.question, "answer": turn.answer, "wording": turn.wording} for turn in sample.turns],
        "boxes": {name: [list(box) for box in boxes] for name, boxes in sample.boxes.items()},
        "labels": sample.more["labels"],
        "mask_ids": list(sample.mask_ids),
        "facts": sample.more["facts"],
        "engine": sample.more["engine"],
    }
