"""The line of a sample: what RadVLM's instructions write, models are asked, and the evaluation reads.

A box is a slot ``<box:name>`` of an answer, and its corners stand under ``boxes`` as fractions of the original picture:
how they are written is the run's (``cxr.vlm.conventions``).
"""

from collections.abc import Mapping, Sequence

from cxr.instructions.record import Box, Record, Turn

TASKS = (
    "report_generation", "classification", "anatomical_grounding", "abnormality_grounding", "abnormality_detection",
    "phrase_grounding", "conversation", "conversation_grounded", "absent_grounding", "ils_grounding",
    "ils_segmentation",
)  # fmt: skip
"""Kinds of samples."""
TEXT_TASKS = ("report_generation", "phrase_grounding", "conversation", "conversation_grounded")
"""Those whose turns quote a report, or were made from its text."""
SEG = "[SEG]"
"""Where an answer gives a mask."""


def slot(name: str) -> str:
    """Return the slot of the boxes ``name``. Raises ValueError for a name that would end it."""
    if not name or set(name) & set("<>"):
        raise ValueError(f"{name!r} is no name of boxes")
    return f"<box:{name}>"


def record(
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
    """Return a sample about ``image``, a row of the source's images (source, image_id, study_id, subject_id, split).

    ``labels``: those that are present, None where the source says nothing of them; ``facts``: ids of the facts that it
    rests on; ``number``: its pass; ``target``: the region, finding or phrase that it asks for; ``engine``: of a
    generated text. Raises ValueError like the record.
    """
    extra_fields = {"pass": number, "asked": target, "labels": labels, "facts": list(facts), "engine": engine}
    return Record(
        sample_id, task, image["source"], image["split"], image["subject_id"], image["study_id"], image["image_id"],
        tuple(turns), {name: tuple(map(tuple, slot_boxes)) for name, slot_boxes in (boxes or {}).items()},
        tuple(mask_ids), extra_fields,
    )  # fmt: skip


def line_of(sample: Record) -> dict:
    """Return the JSON line of a sample; its keys stand in this order in every file."""
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
