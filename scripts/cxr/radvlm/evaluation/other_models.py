"""External models: the questions to ask them, and the conversion of their outputs to the format of our answers."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from cxr.base.errors import UserError, refuse_empty
from cxr.base.resources import load_resource
from cxr.base.tables import read_lines, read_table, write_lines

RESOURCE_FILES = ("radvlm/models.yaml", "radvlm/labels.yaml")
JSONL = "jsonl"
BOX_TASKS = ("anatomical_grounding", "abnormality_grounding", "phrase_grounding", "abnormality_detection",
         "absent_grounding", "ils_grounding", "conversation_grounded")  # fmt: skip
"""Tasks whose answers may contain boxes. The texts of these answers are not cleaned."""


@dataclass(frozen=True)
class Adapter:
    """How to ask a model, and how to read its answers."""

    name: str  # name in the paper
    model: str  # Hugging Face id
    boxes: str  # grammar of its boxes
    tasks: tuple[str, ...]  # tasks that it was made for; empty: all
    strip: tuple[str, ...]  # patterns of special tokens to remove
    asks: Mapping[str, str]  # {task: question in place of the sample's}

    def made_for(self, task: str) -> bool:
        """Return whether the model was made for a task. This is assumed if its tasks are unknown."""
        return not self.tasks or task in self.tasks

    def clean(self, text: str) -> str:
        """Return a text without the model's special tokens and markup."""
        for pattern in self.strip:
            text = re.sub(pattern, " ", text)
        return " ".join(text.split())


@cache
def load_adapters() -> dict[str, Adapter]:
    """Return {name: adapter}, which are loaded once per process."""
    entries = load_resource(RESOURCE_FILES[0])
    lists = ("tasks", "strip")
    return {name: Adapter(**entry | {key: tuple(entry[key]) for key in lists}) for name, entry in entries.items()}


def convert_answers(
    lines: Iterator[Mapping], line_by_sample: Mapping, sizes: Mapping, model: str, kind: str, boxes: str, beyond: bool
) -> Iterator[dict]:
    """Yield the outputs of an external model in the format of our answers. Raises UserError for an invalid line.

    Outputs for tasks that the model was not made for are skipped, unless ``beyond`` is set. ``kind``: name of the
    adapter; ``boxes``: form of its boxes, "" for the adapter's; ``sizes``: {(source, image id): (width, height)} in px.
    """
    adapter, key = load_adapters()[kind], f"radvlm.evaluation.predictions.{model}"
    for number, line in enumerate(lines, 1):
        name, turn = line.get("sample_id"), line.get("turn", 0)
        text, failure = line.get("text", ""), line.get("failure") or ""
        if not isinstance(name, str) or not isinstance(turn, int) or not isinstance(text, str):
            raise UserError(f"{key}.path, line {number}: give sample_id and text as strings, and turn as a number")
        crop = line.get("crop") or []
        is_list = isinstance(crop, list) and all(isinstance(number, int | float) for number in crop)
        if crop and not (is_list and len(crop) == 4 and 0 <= crop[0] < crop[2] <= 1 and 0 <= crop[1] < crop[3] <= 1):
            raise UserError(f"{key}.path, line {number}: give crop as four fractions, x1 < x2 and y1 < y2, or omit it")
        sample = line_by_sample.get(name)
        if sample is not None and not beyond and not adapter.made_for(sample["task"]):
            continue
        boxed = sample is None or sample["task"] in BOX_TASKS
        size = (1, 1) if sample is None else sizes.get((sample["source"], sample["image_id"]), (1, 1))
        yield {
            "sample_id": name, "turn": turn, "text": text if boxed else adapter.clean(text), "tokens": 0,
            "stop": "end", "failure": failure, "convention": boxes or adapter.boxes, "seen": list(size),
        } | ({"crop": crop} if crop else {})  # fmt: skip


def run_read(
    *, lines: str, path: str, images: Sequence[str], answers: str, model: str, adapter: str, boxes: str, beyond: bool
) -> None:
    """Convert the file ``path`` of outputs to the file ``answers``, with sizes from ``images`` (tables of images)."""
    line_by_sample = {line["sample_id"]: line for line in read_lines(lines)}
    tables = (read_table(path).select("source", "image_id", "columns", "rows").drop_nulls() for path in images)
    sizes = {tuple(row[:2]): tuple(row[2:]) for table in tables for row in table.iter_rows()}
    write_lines(answers, convert_answers(read_lines(path), line_by_sample, sizes, model, adapter, boxes, beyond))


def build_questions(lines: Iterator[Mapping], beyond: bool) -> Iterator[dict]:
    """Yield a question per model and turn. ``beyond``: also for tasks that the model was not made for.

    The fields are model, adapter, sample_id, turn, image_id, source, question and made_for.
    """
    labels = ", ".join(load_resource(RESOURCE_FILES[1])["labels"])
    for line in lines:
        for name, adapter in load_adapters().items():
            made_for = adapter.made_for(line["task"])
            if name == JSONL or not (made_for or beyond):
                continue
            task_question = adapter.asks.get(line["task"])
            for turn, qa_pair in enumerate(line["turns"]):
                question = qa_pair["question"]
                if task_question and not turn:
                    question = task_question.replace("{labels}", labels).replace("{asked}", line.get("asked") or "")
                yield {
                    "model": adapter.model, "adapter": name, "sample_id": line["sample_id"], "turn": turn,
                    "image_id": line["image_id"], "source": line["source"], "question": question,
                    "made_for": made_for,
                }  # fmt: skip


def run_asked(*, lines: str, asked: str, beyond: bool) -> None:
    """Write the questions to external models about the test lines. ``beyond``: as in :func:`build_questions`."""
    refuse_empty(lines, "to score")
    write_lines(asked, build_questions(read_lines(lines), beyond))
