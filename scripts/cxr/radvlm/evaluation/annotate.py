"""Annotate the reports of a run and their references by a model: one module ``annotate_<name>`` each.

A module declares METRIC, the metric that its annotations are of; PAIRS, whether it reads an answer beside its reference
or each text alone; INPUTS, files that it reads; FILES, settings of its own that are a user's files; PLACED, files of
the user's folder ``model``; LLM, whether it asks a language model; ENVIRONMENT, the ending of its environment's name,
if that is not its own; and offers ``load(own, files, execution)``. Its lines are those that annotations made elsewhere
have, so the formula is the same.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from cxr.base.tables import read_lines, write_lines
from cxr.radvlm.evaluation.answers import ANSWER, FILTERED, ORIGINAL, join_answers

log = logging.getLogger("cxr")
BOTH = "both"
TASK = "report_generation"
Item = tuple[str, str, tuple[str, ...]]
"""A sample, of what its annotation is, and the text, or the answer and its reference."""


@dataclass(frozen=True)
class AnnotateOptions:
    """annotator: its name; own: its settings; engine: what its lines name it; reference: filtered, original or both."""

    annotator: str
    own: Mapping
    engine: str
    reference: str


def list_items(
    lines: Sequence[Mapping], answers: Mapping, texts: Mapping, reference: str, pairs: bool
) -> Iterator[Item]:
    """Yield what is annotated. ``answers``: {sample: its answer}; ``texts``: {(source, study): a report's own section}.

    An answer that failed has no annotation.
    """
    reference_kinds = (FILTERED, ORIGINAL) if reference == BOTH else (reference,)
    for line in lines:
        name, answer = line["sample_id"], answers[line["sample_id"]]
        answer_text = None if answer.failure else answer.text
        if not pairs and answer_text is not None:
            yield name, ANSWER, (answer_text,)
        for reference_kind in reference_kinds:
            reference_text = (
                line["turns"][0]["answer"] if reference_kind == FILTERED else texts[line["source"], line["study_id"]]
            )
            if not pairs:
                yield name, reference_kind, (reference_text,)
            elif answer_text is not None:
                yield name, reference_kind, (answer_text, reference_text)


def run(
    *, lines: str, answers: str, notes_out: str, options: AnnotateOptions, execution: Mapping,
    texts: Sequence[str] = (), weights: str = "", prompt: str = "", placed: Sequence[str] = (), code: str = "",
) -> None:  # fmt: skip
    """Write an annotation a line: metric, engine, sample_id, of, and what the model found. Equal texts are read once.

    ``texts``: reports of the sources, for ``reference: original``; ``weights``, ``prompt``: files of an annotator that
    declares them; ``placed``: those of its folder; ``execution``: how a language model is run, whose answers are kept
    beside the lines. A text without an annotation has ``failure``, the reason, instead. Raises UserError for a model
    that is missing.
    """
    del placed  # inputs alone: the settings name their folder
    module = import_module(f"cxr.radvlm.evaluation.annotate_{options.annotator}")
    report_lines = [line for line in read_lines(lines) if line["task"] == TASK]
    names = {line["sample_id"] for line in report_lines}
    answer_by_sample, _ = join_answers(
        report_lines, (answer for answer in read_lines(answers) if answer["sample_id"] in names)
    )
    original = {(report["source"], report["study_id"]): report["text"] for path in texts for report in read_lines(path)}
    annotation_items = list(list_items(report_lines, answer_by_sample, original, options.reference, module.PAIRS))
    unique_texts = sorted({item_texts for *_, item_texts in annotation_items})
    files = {"weights": weights, "prompt": prompt}
    resumable_execution = dict(execution) | {"answers": str(Path(notes_out).with_suffix("")), "code": code}
    annotations = dict(
        zip(
            unique_texts,
            module.load(options.own, files, resumable_execution)(unique_texts) if unique_texts else (),
            strict=True,
        )
    )
    if failures := Counter(
        annotations[item_texts]["failure"]
        for *_, item_texts in annotation_items
        if "failure" in annotations[item_texts]
    ):
        log.warning(
            "%d of %d annotations failed: %s", failures.total(), len(annotation_items), dict(sorted(failures.items()))
        )
    common_fields = {"metric": module.METRIC, "engine": options.engine}
    write_lines(
        notes_out,
        (
            common_fields | {"sample_id": name, "of": text_kind} | annotations[item_texts]
            for name, text_kind, item_texts in annotation_items
        ),
    )
