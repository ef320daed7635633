"""Report scores: ROUGE-L, BLEU-4, F1 of the findings that the rules engine reads, and metrics from annotations."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from cxr.base.errors import UserError
from cxr.base.resources import load_resource
from cxr.metrics import labels as label_scores
from cxr.metrics.reports import bleu, bleu_counts, green_score, rouge_l, set_f1
from cxr.radvlm.evaluation.answers import ANSWER, FILTERED, ORIGINAL
from cxr.radvlm.evaluation.claims import read_report
from cxr.radvlm.evaluation.classification import count_labels, macro_f1
from cxr.radvlm.evaluation.measures import ALL, Measure, mean_measure

RESOURCE_FILES = ("radvlm/evaluation.yaml",)
ANNOTATION_METRICS = ("bertscore", "radgraph_f1", "green", "chexbert_f1")  # scored if all samples are annotated
ANNOTATION_FIELDS = {
    "bertscore": ("f1",), "radgraph_f1": ("entities",), "green": ("matched", "errors"), "chexbert_f1": ("labels",),
}  # fmt: skip
"""{metric: fields of an annotation that is not a failure}."""
Notes = Mapping[tuple[str, str, str], Mapping]
"""{(metric, sample_id, kind of text): annotation}. An annotation of answer and reference has the reference's kind."""


def text_measures(texts: Sequence[str | None], references: Sequence[str], metrics: Sequence[str]) -> list[Measure]:
    """Return the measures of N reports for those ``metrics`` that need no annotations. A text of None is excluded."""
    measures = []
    pairs = list(zip(texts, references, strict=True))
    if "rouge_l" in metrics:
        values = [None if text is None else rouge_l(text, true) for text, true in pairs]
        measures.append(mean_measure("rouge_l", values))
    if "bleu" in metrics:
        none = np.zeros_like(bleu_counts("", ""))
        counts = np.array([none if text is None else bleu_counts(text, true) for text, true in pairs])
        measures.append(Measure("bleu", ALL, counts.reshape(len(pairs), -1), bleu))
    if "findings_f1" in metrics:
        finding_pairs = [None if text is None else (read_report(text), read_report(true)) for text, true in pairs]
        for place, name in enumerate(("findings_f1", "findings_f1_without_zone")):
            values = [pair and set_f1(pair[0][place], pair[1][place], empty=1.0) for pair in finding_pairs]
            measures.append(mean_measure(name, values))
    return measures


def read_notes(path: str, lines: Iterable[Mapping]) -> dict:
    """Return the annotations in the lines of a file. Raises UserError for an invalid line.

    A line has metric, engine, sample_id, ``of`` (kind of text), and the fields of the metric or ``failure``. Metrics of
    a single text: radgraph_f1 has entities, a list of [tokens, label, has a relation]; chexbert_f1 has labels. Metrics
    of answer and reference: green has matched and errors; bertscore has f1; ``of`` is the kind of the reference.
    """
    notes: dict[tuple[str, str, str], Mapping] = {}
    for number, line in enumerate(lines, 1):
        where = f"radvlm.evaluation.annotations: {path}, line {number}"
        metric, engine, name, text_kind = (line.get(key) for key in ("metric", "engine", "sample_id", "of"))
        if metric not in ANNOTATION_METRICS or not engine or not name or text_kind not in (ANSWER, FILTERED, ORIGINAL):
            raise UserError(
                f"{where}: give 'metric' (one of {', '.join(ANNOTATION_METRICS)}), 'engine', 'sample_id' and 'of' "
                f"({ANSWER}, {FILTERED} or {ORIGINAL})"
            )
        if lacking := [key for key in ANNOTATION_FIELDS[metric] if key not in line and "failure" not in line]:
            raise UserError(
                f"{where} lacks {lacking[0]}, which {metric} needs: add {lacking[0]}, or 'failure' with a reason"
            )
        if (metric, name, text_kind) in notes:
            raise UserError(f"{where}: an earlier line has {metric} of this sample's text {text_kind}: keep one line")
        notes[metric, name, text_kind] = line
    return notes


def annotation_measures(
    names: Sequence[str], failed: Sequence[bool | None], reference: str, notes: Notes, metrics: Sequence[str],
    labels: Sequence[str], leave_out: bool = False,
) -> list[Measure]:  # fmt: skip
    """Return the measures of N samples from annotations. A metric is omitted if a sample lacks its annotation.

    ``failed``: whether an answer failed and counts as wrong, None if its sample is excluded; ``reference``: the kind
    ``filtered`` or ``original``; ``leave_out``: exclude failed annotations instead of counting them as 0.
    """
    measures = []
    for metric in (metric for metric in ANNOTATION_METRICS if metric in metrics):
        values = [
            _annotation_value(metric, name, bad, reference, notes, leave_out)
            for name, bad in zip(names, failed, strict=True)
        ]
        if not names or any(value is _MISSING for value in values):
            continue
        if metric != "chexbert_f1":
            measures.append(mean_measure(metric, values))
            continue
        five = load_resource(RESOURCE_FILES[0])["chexbert_five"]
        measures += [*_chexbert_measures("", values, labels), *_chexbert_measures("_5", values, five)]
    return measures


_MISSING = object()


def _chexbert_measures(ending: str, values: Sequence[tuple | None], labels: Sequence[str]) -> list[Measure]:
    counts = count_labels(values, labels)
    sums, macro = counts.reshape(len(counts), -1), macro_f1(np.ones(len(labels), bool))
    return [
        Measure(f"chexbert_f1_macro{ending}", ALL, sums, macro),
        Measure(f"chexbert_f1_micro{ending}", ALL, counts.sum(axis=1), label_scores.f1),
    ]


def _annotation_value(metric: str, name: str, failed: bool | None, reference: str, notes: Notes, leave_out: bool):
    """Return a report's value (chexbert_f1: labels of both texts), None if excluded, _MISSING if not annotated."""
    if failed is None:
        return None
    is_pair = metric in ("green", "bertscore")
    if is_pair and failed:
        return 0.0
    reference_note = notes.get((metric, name, reference))
    answer_note = {} if is_pair or failed else notes.get((metric, name, ANSWER))
    if reference_note is None or answer_note is None:
        return _MISSING
    has_failure = "failure" in reference_note or "failure" in answer_note
    if has_failure and leave_out:
        return None
    if metric == "chexbert_f1":
        return answer_note.get("labels", []), reference_note.get("labels", [])
    if has_failure:
        return 0.0
    if metric == "bertscore":
        return float(reference_note["f1"])
    if metric == "green":
        return green_score(reference_note["matched"], reference_note["errors"])
    entities = (
        {(token, label, bool(is_related)) for token, label, is_related, *_ in note.get("entities", ())}
        for note in (answer_note, reference_note)
    )
    return set_f1(*entities)
