"""Annotates the reports of a run, and their references, with a model. An annotator is a module ``annotate_<name>``.

An annotator defines ``load(settings, files, execution)`` and constants. METRIC is the metric of its annotations. PAIRS
is True if it reads answer and reference together. INPUTS are files that it reads, FILES are its settings that name
files of the user, and PLACED are files in the user's folder ``model``. LLM is True if it uses a language model.
ENVIRONMENT is the suffix of its environment's name (default: the annotator's name). The function
:func:`cxr.radvlm.evaluation.reports.read_notes` describes the output lines.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

from cxr.base.tables import read_lines, write_lines
from cxr.radvlm.evaluation.answers import ANSWER, FILTERED, ORIGINAL, join_answers

log = logging.getLogger("cxr")
BOTH = "both"
TASK = "report_generation"
Item = tuple[str, str, tuple[str, ...]]  # (sample id, kind of text, text or (answer, reference))


def run(
    *, lines: str, answers: str, notes_out: str, annotator: str, engine_settings: Mapping, engine: str, reference: str,
    execution: Mapping, texts: Sequence[str] = (), weights: str = "", prompt: str = "", placed: Sequence[str] = (),
    code: str = "",
) -> None:  # fmt: skip
    """Write one JSON line per annotation, or per failure with its reason. Raises UserError if the model is missing.

    A line has metric, engine, sample_id, ``of`` (kind of text), and the metric's fields or ``failure``. Equal texts
    are annotated once, and a language model's replies are cached. ``engine_settings``: settings of the annotator;
    ``texts``: reports of the sources, for ``reference`` original or both; other names: input files of annotators.
    """
    del placed  # job inputs only: the settings name their folder
    module = import_module(f"cxr.radvlm.evaluation.annotate_{annotator}")
    report_lines = [line for line in read_lines(lines) if line["task"] == TASK]
    names = {line["sample_id"] for line in report_lines}
    report_answers = (answer for answer in read_lines(answers) if answer["sample_id"] in names)
    answer_by_sample, _ = join_answers(report_lines, report_answers)
    original = {(report["source"], report["study_id"]): report["text"] for path in texts for report in read_lines(path)}
    reference_kinds = (FILTERED, ORIGINAL) if reference == BOTH else (reference,)
    annotation_items: list[Item] = []
    for line in report_lines:
        name, answer = line["sample_id"], answer_by_sample[line["sample_id"]]
        texts_by_kind = {FILTERED: line["turns"][0]["answer"]}
        if ORIGINAL in reference_kinds:
            texts_by_kind[ORIGINAL] = original[line["source"], line["study_id"]]
        if not answer.failure and not module.PAIRS:
            annotation_items.append((name, ANSWER, (answer.text,)))
        for kind in reference_kinds if not (answer.failure and module.PAIRS) else ():
            answer_text = (answer.text,) if module.PAIRS else ()
            annotation_items.append((name, kind, (*answer_text, texts_by_kind[kind])))
    unique_texts = sorted({item_texts for *_, item_texts in annotation_items})
    files = {"weights": weights, "prompt": prompt}
    resumable_execution = dict(execution) | {"answers": str(Path(notes_out).with_suffix("")), "code": code}
    annotate = module.load(engine_settings, files, resumable_execution) if unique_texts else list
    annotations = dict(zip(unique_texts, annotate(unique_texts), strict=True))
    reasons = [note["failure"] for *_, key in annotation_items if "failure" in (note := annotations[key])]
    if reasons:
        counts = dict(sorted(Counter(reasons).items()))
        log.warning("%d of %d annotations failed, by reason: %s", len(reasons), len(annotation_items), counts)
    common_fields = {"metric": module.METRIC, "engine": engine}
    notes = (common_fields | {"sample_id": name, "of": kind} | annotations[key] for name, kind, key in annotation_items)
    write_lines(notes_out, notes)
