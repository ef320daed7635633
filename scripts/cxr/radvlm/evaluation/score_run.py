"""Scores a model's answers, beside answers without an image (blind) and about another patient's image (exchanged)."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cxr.base.errors import refuse_empty
from cxr.base.jobs import log
from cxr.base.resources import load_resource
from cxr.base.tables import read_lines, write_rows
from cxr.radvlm.evaluation.answers import Pair, SampleAnswer, join_answers
from cxr.radvlm.evaluation.blind import BlindAnswers
from cxr.radvlm.evaluation.classification import load_label_reader
from cxr.radvlm.evaluation.columns import COUNTS, SAMPLES, SCORES
from cxr.radvlm.evaluation.conservation import count_not_asked, count_outcomes, count_scored
from cxr.radvlm.evaluation.conversations import BLIND, EXCHANGED, TEST
from cxr.radvlm.evaluation.grounding import compute_mean_boxes
from cxr.radvlm.evaluation.measures import ALL, Measure, Score, score_differences, score_measures
from cxr.radvlm.evaluation.reports import ANNOTATION_METRICS, FILTERED, ORIGINAL, read_notes
from cxr.radvlm.evaluation.tasks import ScoringTools, coco_scores, measure_task
from cxr.radvlm.settings import ScoreOptions

RESOURCE_FILES = ("radvlm/names.yaml",)
BOTH = "both"
INTERVAL = 0.95  # coverage of the bootstrap intervals
COMPARED = {BLIND: ("blind", "gain"), EXCHANGED: ("exchanged", "drop")}  # {answers: columns of score and difference}


@dataclass(frozen=True)
class Group:
    """The samples of one task and source."""

    task: str
    source: str
    pairs: Mapping[str, Sequence[Pair]]  # {test, blind or exchanged: (line, answer) of each sample}


def group_samples(
    lines: Sequence[Mapping], answer_by_sample: Mapping[str, SampleAnswer],
    exchanged_by_sample: Mapping[str, SampleAnswer], blind_answers: BlindAnswers,
) -> Iterator[Group]:  # fmt: skip
    """Yield the samples grouped by task and source, sorted."""
    pairs_by_group: dict[tuple[str, str], dict[str, list[Pair]]] = {}
    for line in lines:
        key, name = (line["task"], line["source"]), line["sample_id"]
        pairs = pairs_by_group.setdefault(key, {TEST: [], BLIND: [], EXCHANGED: []})
        pairs[TEST].append((line, answer_by_sample[name]))
        pairs[BLIND].append((line, blind_answers.answer(line)))
        if name in exchanged_by_sample:
            pairs[EXCHANGED].append((line, exchanged_by_sample[name]))
    for key, pairs in sorted(pairs_by_group.items()):
        yield Group(*key, pairs)


def score_rows(group: Group, tools: ScoringTools, reference: str, seed: int) -> Iterator[dict]:
    """Yield a row of :data:`SCORES` for each measure of a group. ``reference``: text to compare reports with."""
    interval_options = {"replicates": tools.options.replicates, "level": INTERVAL, "seed": seed}

    def measure(pairs: Sequence[Pair], which: str) -> list[Measure]:
        return measure_task(group.task, pairs, tools, which=which, reference=reference)

    test_pairs = group.pairs[TEST]
    subjects = [line["subject_id"] for line, _ in test_pairs]
    ours = measure(test_pairs, TEST)
    fields_by_key: dict[tuple[str, str], dict] = {own_measure[:2]: {} for own_measure in ours}  # by name and part
    for which, (value_name, difference_name) in COMPARED.items():
        if not (pairs := group.pairs[which]):
            continue
        sample_ids = {line["sample_id"] for line, _ in pairs}
        own_pairs = [pair for pair in test_pairs if pair[0]["sample_id"] in sample_ids]
        own_measures = ours if len(own_pairs) == len(test_pairs) else measure(own_pairs, TEST)
        first, second = _pair_measures(own_measures, measure(pairs, which))
        compared_subjects = [line["subject_id"] for line, _ in pairs]
        differences = score_differences(first, second, compared_subjects, **interval_options)
        for compared, difference in zip(second, differences, strict=True):
            value = float(compared.value(compared.sums.sum(axis=0)) * compared.scale)
            fields = {value_name: _none_if_nan(value)} | _interval_fields(difference_name, difference)
            fields_by_key[compared[:2]] |= fields
    common_fields = {
        "task": group.task, "source": group.source,
        "reference": reference if group.task == "report_generation" else "",
        "samples": len(test_pairs), "subjects": len(set(subjects)),
        "failed": sum(bool(answer.failure) for _, answer in test_pairs),
    }  # fmt: skip
    for own_measure, score in zip(ours, score_measures(ours, subjects, **interval_options), strict=True):
        fields = {"metric": own_measure.name, "part": own_measure.part} | _interval_fields("", score)
        yield common_fields | fields | fields_by_key[own_measure[:2]]
    if reference != ORIGINAL:
        for name, value in coco_scores(group.task, test_pairs, tools).items():
            yield common_fields | {"metric": name, "part": ALL, "value": value}


def _interval_fields(name: str, score: Score) -> dict[str, float | None]:
    names = (name, f"{name}_low", f"{name}_high") if name else ("value", "low", "high")
    return dict(zip(names, score, strict=True))


def _pair_measures(first: Sequence[Measure], second: Sequence[Measure]) -> tuple[list[Measure], list[Measure]]:
    """Return the measures of each list that the other list has too, in the order of ``first``."""
    second_by_key = {measure[:2]: measure for measure in second}
    shared = [measure for measure in first if measure[:2] in second_by_key]
    return shared, [second_by_key[measure[:2]] for measure in shared]


def _none_if_nan(value: float) -> float | None:
    return None if np.isnan(value) else value


def sample_rows(group: Group, tools: ScoringTools) -> Iterator[dict]:
    """Yield a row of :data:`SAMPLES` for each sample of a group, if its task has a measure."""
    first = measure_task(group.task, group.pairs[TEST], tools)[:1]
    values: dict[str, dict[str, float | None]] = {TEST: {}, BLIND: {}, EXCHANGED: {}}
    for which, pairs in group.pairs.items():
        measures = first if which == TEST else measure_task(group.task, pairs, tools, which=which) if pairs else []
        for measure in _pair_measures(first, measures)[1]:  # blind answers are not annotated
            sample_values = measure.value(measure.sums) * measure.scale
            for (line, _), value in zip(pairs, sample_values, strict=True):
                values[which][line["sample_id"]] = _none_if_nan(float(value))
    for measure in first:
        for line, answer in group.pairs[TEST]:
            yield {
                **{key: line[key] for key in ("sample_id", "task", "source", "subject_id", "image_id")},
                "asked": line.get("asked") or "", "failure": answer.failure, "metric": measure.name,
                "value": values[TEST][line["sample_id"]],
                **{which: values[which].get(line["sample_id"]) for which in COMPARED},
            }  # fmt: skip


def run_scores(
    *, lines: str, train: str, answers: str, judged: str, samples: str, scored: str, counts: str, options: ScoreOptions,
    seed: int, tasks: Sequence[str] = (), exchanged_lines: Sequence[str] = (), exchanged_answers: Sequence[str] = (),
    texts: Sequence[str] = (), annotations: Sequence[str] = (), draw: Sequence[str] = (),
    exchanged_draw: Sequence[str] = (),
) -> None:  # fmt: skip
    """Score the ``answers`` to the test ``lines`` of ``tasks`` (empty: all). Raises UserError for an invalid file.

    ``texts``: reports of the sources, for ``reference: original``; ``draw``, ``exchanged_draw``: tables of the numbers
    of asked and available samples, if not all were asked.
    """
    refuse_empty(lines, "to score")
    all_lines = list(read_lines(lines))
    scored_lines = [line for line in all_lines if not tasks or line["task"] in tasks]
    scored_ids = {line["sample_id"] for line in scored_lines}
    omitted_ids = {line["sample_id"] for line in all_lines} - scored_ids
    judged_as = {(judgement["answers"], judgement["sample_id"]): judgement["score"] for judgement in read_lines(judged)}
    answer_sets: dict[str, dict[str, SampleAnswer]] = {TEST: {}, EXCHANGED: {}}
    counting = []
    for which, lines_paths, answers_paths, draw_paths in (
        (TEST, [lines], [answers], draw), (EXCHANGED, exchanged_lines, exchanged_answers, exchanged_draw),
    ):  # fmt: skip
        for lines_path, answers_path in zip(lines_paths, answers_paths, strict=True):
            set_lines = [line for line in read_lines(lines_path) if line["sample_id"] in scored_ids]
            set_answers = (answer for answer in read_lines(answers_path) if answer["sample_id"] not in omitted_ids)
            answer_sets[which], outcome = join_answers(set_lines, set_answers)
            counting.append((which, set_lines, answer_sets[which], outcome, draw_paths))
    trained = list(read_lines(train))
    detections = (line for line in [*scored_lines, *trained] if line["task"] == "abnormality_detection")
    class_names = sorted({name for line in detections for name in line["boxes"]})
    spoken_names = load_resource(RESOURCE_FILES[0])["said"]
    tools = ScoringTools(
        options=options,
        labels=load_label_reader(),
        wording_by_class={name: spoken_names.get(name, name).lower() for name in class_names},
        mean_boxes=compute_mean_boxes(trained),
        original={(line["source"], line["study_id"]): line["text"] for path in texts for line in read_lines(path)},
        judged=judged_as,
        notes={key: note for path in annotations for key, note in read_notes(path, read_lines(path)).items()},
    )
    sample_groups = list(group_samples(scored_lines, answer_sets[TEST], answer_sets[EXCHANGED], BlindAnswers(trained)))
    rows = []
    for which, set_lines, answer_by_sample, outcome, draw_paths in counting:
        scored_counts = (count_scored(which, group.pairs[which], judged_as) for group in sample_groups)
        rows += count_outcomes(which, set_lines, answer_by_sample, outcome, sum(scored_counts, Counter()), judged_as)
        rows += count_not_asked(which, draw_paths, tasks)
    references = {FILTERED: [FILTERED], ORIGINAL: [ORIGINAL], BOTH: [FILTERED, ORIGINAL]}[options.reference]
    score_table = [
        row
        for group in sample_groups
        for reference in (references if group.task == "report_generation" else [FILTERED])
        for row in score_rows(group, tools, reference, seed)
    ]
    write_rows(scored, score_table, SCORES)
    write_rows(samples, (row for group in sample_groups for row in sample_rows(group, tools)), SAMPLES)
    write_rows(counts, rows, COUNTS)
    log.info("%d samples are scored in %d groups of task and source", len(scored_lines), len(sample_groups))
    if without := sorted({*options.report_metrics} & {*ANNOTATION_METRICS} - {metric for metric, *_ in tools.notes}):
        problem = "no score, because there are no annotations: set `radvlm.evaluation.annotators` or `annotations`"
        log.warning("%s: %s", ", ".join(without), problem)
