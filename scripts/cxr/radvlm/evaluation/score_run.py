"""Score the answers of one run or model, compared with blind answers and answers about exchanged images."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import yaml

from cxr.base.columns import schema
from cxr.base.errors import refuse_empty
from cxr.base.jobs import log
from cxr.base.paths import RESOURCES
from cxr.base.tables import read_lines, write_table
from cxr.radvlm.evaluation import tasks
from cxr.radvlm.evaluation.answers import SampleAnswer, find_commonest_answers, join_answers, write_slots
from cxr.radvlm.evaluation.columns import COUNTS, SAMPLES, SCORES
from cxr.radvlm.evaluation.conversations import BLIND, EXCHANGED, TEST
from cxr.radvlm.evaluation.grounding import IouThresholds, compute_mean_boxes
from cxr.radvlm.evaluation.judge import HIT_IOU
from cxr.radvlm.evaluation.label_names import load_label_reader
from cxr.radvlm.evaluation.measures import ALL, Measure, Score, score_differences, score_measures
from cxr.radvlm.evaluation.outcomes import Judged, count_not_asked, count_outcomes
from cxr.radvlm.evaluation.outcomes import count_scored as scored_of
from cxr.radvlm.evaluation.reports import ANNOTATION_METRICS, FILTERED, ORIGINAL, read_notes
from cxr.radvlm.evaluation.tasks import ScoringTools, measure_task

RESOURCE_FILES = ("radvlm/names.yaml",)
NO_SCORE = Score(None, None, None)
BOTH = "both"
STRICT_IOU = 0.75
"""IoU of a strict hit."""
COCO_IOUS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
"""IoUs that COCO's AP averages."""
INTERVAL = 0.95
"""Coverage of the bootstrap intervals."""


@dataclass(frozen=True)
class EvaluationOptions:
    """Settings of ``radvlm.evaluation`` for scores. tasks: scored tasks, empty for all; others are not counted."""

    label_match: str
    report_metrics: list
    reference: str
    failed: str
    replicates: int
    seed: int
    tasks: list
    iou: float = HIT_IOU
    strict_iou: float = STRICT_IOU
    coco_ious: Sequence[float] = COCO_IOUS
    synonyms: bool = False
    interval: float = INTERVAL


@dataclass(frozen=True)
class Group:
    """Samples of one task and source with their answers; exchanged: {sample: answer about an exchanged image}."""

    task: str
    source: str
    lines: Sequence[Mapping]
    run_answers: Sequence[SampleAnswer]
    blind: Sequence[SampleAnswer]
    exchanged: Mapping[str, SampleAnswer]

    def answers(self, which: str) -> list[tuple[Mapping, SampleAnswer]]:
        """Return (line, answer) pairs: of the run, or about exchanged images."""
        if which == TEST:
            return list(zip(self.lines, self.run_answers, strict=True))
        return [(line, self.exchanged[line["sample_id"]]) for line in self.lines if line["sample_id"] in self.exchanged]

    @property
    def subjects(self) -> list[str]:
        return [line["subject_id"] for line in self.lines]


def group_samples(
    lines: Sequence[Mapping], answer_by_sample: Mapping[str, SampleAnswer],
    exchanged_by_sample: Mapping[str, SampleAnswer],
    commonest_answers: Mapping[tuple[str, str], str],
) -> Iterator[Group]:  # fmt: skip
    """Yield the samples grouped by task and source, sorted."""
    lines_by_group: dict[tuple[str, str], list[Mapping]] = {}
    for line in lines:
        lines_by_group.setdefault((line["task"], line["source"]), []).append(line)
    for key, group_lines in sorted(lines_by_group.items()):
        text = commonest_answers.get(key, "")
        blind = [SampleAnswer((text,) * len(line["turns"])) for line in group_lines]
        names = [line["sample_id"] for line in group_lines]
        group_exchanged = {name: exchanged_by_sample[name] for name in names if name in exchanged_by_sample}
        yield Group(*key, group_lines, [answer_by_sample[name] for name in names], blind, group_exchanged)


def score_rows(group: Group, tools: ScoringTools, options: EvaluationOptions, reference: str) -> Iterator[dict]:
    """Yield a row of :data:`SCORES` for each measure of a group."""
    interval_options = {"replicates": options.replicates, "level": options.interval, "seed": options.seed}

    def measure_answers(lines, answers, which) -> list[Measure]:
        return measure_task(group.task, lines, answers, tools, which=which, reference=reference)

    ours, blind = (
        measure_answers(group.lines, group.run_answers, TEST),
        measure_answers(group.lines, group.blind, BLIND),
    )
    test_scores = score_measures(ours, group.subjects, **interval_options)
    blind_pairs = _pair_measures(ours, blind)
    gained = score_differences(
        [measure for measure, _ in blind_pairs],
        [blind_measure for _, blind_measure in blind_pairs],
        group.subjects,
        **interval_options,
    )
    drop_by_measure = _score_exchanged(group, measure_answers, interval_options)
    gain_by_measure = {
        _key(measure): (float(_value(blind_measure)), score)
        for (measure, blind_measure), score in zip(blind_pairs, gained, strict=True)
    }
    common_fields = {
        "task": group.task, "source": group.source,
        "reference": reference if group.task == "report_generation" else "",
        "samples": len(group.lines), "subjects": len(set(group.subjects)),
        "failed": sum(bool(answer.failure) for answer in group.run_answers),
    }  # fmt: skip
    for measure, score in zip(ours, test_scores, strict=True):
        value, gain = gain_by_measure.get(_key(measure), (None, NO_SCORE))
        yield _row(
            common_fields,
            measure.name,
            measure.part,
            score,
            value,
            gain,
            *drop_by_measure.get(_key(measure), (None, NO_SCORE)),
        )
    if reference != ORIGINAL:
        for name, value in tasks.coco_scores(group.task, group.lines, group.run_answers, tools).items():
            yield _row(common_fields, name, ALL, Score(value, None, None), None, NO_SCORE, None, NO_SCORE)


def _score_exchanged(
    group: Group, measure_answers, interval_options: Mapping
) -> dict[tuple[str, str], tuple[float, Score]]:
    """Return {measure: (score with exchanged images, difference)} of the samples that have one."""
    places = [place for place, line in enumerate(group.lines) if line["sample_id"] in group.exchanged]
    if not places:
        return {}
    lines = [group.lines[place] for place in places]
    first = measure_answers(lines, [group.run_answers[place] for place in places], TEST)
    second = measure_answers(lines, [group.exchanged[line["sample_id"]] for line in lines], EXCHANGED)
    pairs = _pair_measures(first, second)
    differences = score_differences(
        [measure for measure, _ in pairs],
        [exchanged for _, exchanged in pairs],
        [line["subject_id"] for line in lines],
        **interval_options,
    )
    return {
        _key(measure): (float(_value(exchanged)), score)
        for (measure, exchanged), score in zip(pairs, differences, strict=True)
    }


def _key(measure: Measure) -> tuple[str, str]:
    return measure.name, measure.part


def _value(measure: Measure) -> np.ndarray:
    return measure.value(measure.sums.sum(axis=0)) * measure.scale


def _pair_measures(first: Sequence[Measure], second: Sequence[Measure]) -> list[tuple[Measure, Measure]]:
    second_by_key = {_key(measure): measure for measure in second}
    return [(measure, second_by_key[_key(measure)]) for measure in first if _key(measure) in second_by_key]


def _row(
    common_fields: Mapping, metric: str, part: str, score: Score, blind: float | None, gain: Score,
    exchanged: float | None, drop: Score,
) -> dict:  # fmt: skip
    values = {
        "metric": metric, "part": part, "value": score.value, "low": score.low, "high": score.high,
        "blind": _none_if_nan(blind), "gain": gain.value, "gain_low": gain.low, "gain_high": gain.high,
        "exchanged": _none_if_nan(exchanged), "drop": drop.value, "drop_low": drop.low, "drop_high": drop.high,
    }  # fmt: skip
    return {name: (dict(common_fields) | values)[name] for name in SCORES}


def _none_if_nan(value: float | None) -> float | None:
    return None if value is None or np.isnan(value) else value


def sample_rows(group: Group, tools: ScoringTools) -> Iterator[dict]:
    """Yield a row of :data:`SAMPLES` for each sample of a group that has a measure."""
    ours = measure_task(group.task, group.lines, group.run_answers, tools)
    if not ours:
        return
    first = ours[:1]
    blind = _pair_measures(first, measure_task(group.task, group.lines, group.blind, tools, which=BLIND))
    # blind answers are not annotated
    blind_values = _sample_values(blind[0][1]) if blind else [None] * len(group.lines)
    lines = [line for line in group.lines if line["sample_id"] in group.exchanged]
    exchanged_answers = [group.exchanged[line["sample_id"]] for line in lines]
    exchanged_pairs = _pair_measures(
        first, measure_task(group.task, lines, exchanged_answers, tools, which=EXCHANGED) if lines else []
    )
    exchanged_by_sample = (
        dict(zip((line["sample_id"] for line in lines), _sample_values(exchanged_pairs[0][1]), strict=True))
        if exchanged_pairs
        else {}
    )
    run_values = _sample_values(ours[0])
    samples = zip(group.lines, group.run_answers, run_values, blind_values, strict=True)
    for line, answer, value, blind_value in samples:
        yield {
            **{name: line[name] for name in ("sample_id", "task", "source", "subject_id", "image_id")},
            "asked": line.get("asked") or "", "failure": answer.failure, "metric": ours[0].name, "value": value,
            "blind": blind_value, "exchanged": exchanged_by_sample.get(line["sample_id"]),
        }  # fmt: skip


def _sample_values(measure: Measure) -> list[float | None]:
    return [_none_if_nan(float(value)) for value in measure.value(measure.sums) * measure.scale]


def run_scores(
    *, lines: str, train: str, answers: str, judged: str, samples: str, scored: str, counts: str,
    options: EvaluationOptions, exchanged_lines: str | list[str] = "", exchanged_answers: str | list[str] = "",
    texts: list[str] | None = None, annotations: list[str] | None = None, draw: str | list[str] = "",
    exchanged_draw: str | list[str] = "",
) -> None:  # fmt: skip
    """Score the ``answers`` to the test ``lines``.

    ``exchanged_lines``, ``exchanged_answers``: the same samples about other patients' images; ``texts``: reports of the
    sources, for ``reference: original``; ``annotations``: of reports; ``draw``, ``exchanged_draw``: numbers of
    requested and available samples, if they differ. Raises UserError.
    """
    refuse_empty(lines, "to score")
    all_lines = list(read_lines(lines))
    scored_lines = [line for line in all_lines if not options.tasks or line["task"] in options.tasks]
    omitted_ids = {line["sample_id"] for line in all_lines} - {line["sample_id"] for line in scored_lines}
    judged_as = {(judgement["answers"], judgement["sample_id"]): judgement["score"] for judgement in read_lines(judged)}
    answer_by_sample, outcome = join_answers(
        scored_lines, (answer for answer in read_lines(answers) if answer["sample_id"] not in omitted_ids)
    )
    counting = [(TEST, scored_lines, answer_by_sample, outcome, draw)]
    exchanged_by_sample: dict[str, SampleAnswer] = {}
    if exchanged_lines and exchanged_answers:
        lines_path, answers_path = (
            paths if isinstance(paths, str) else paths[0] for paths in (exchanged_lines, exchanged_answers)
        )
        scored_ids = {line["sample_id"] for line in scored_lines}
        scored_exchanged_lines = [line for line in read_lines(lines_path) if line["sample_id"] in scored_ids]
        exchanged_by_sample, outcome = join_answers(
            scored_exchanged_lines,
            (answer for answer in read_lines(answers_path) if answer["sample_id"] not in omitted_ids),
        )
        counting.append((EXCHANGED, scored_exchanged_lines, exchanged_by_sample, outcome, exchanged_draw))
    trained = list(read_lines(train))
    tools = ScoringTools(
        ious=IouThresholds(options.iou, options.strict_iou, tuple(options.coco_ious)),
        labels=load_label_reader(synonyms=options.synonyms), match=options.label_match,
        wording_by_class=_class_wordings([*scored_lines, *trained]), mean_boxes=compute_mean_boxes(trained),
        metrics=options.report_metrics,
        failed=options.failed,
        original={
            (report["source"], report["study_id"]): report["text"]
            for path in texts or () for report in read_lines(path)
        },
        judged=judged_as,
        notes={key: note for path in annotations or () for key, note in read_notes(path, read_lines(path)).items()},
    )  # fmt: skip
    sample_groups = list(group_samples(scored_lines, answer_by_sample, exchanged_by_sample, _blind_texts(trained)))
    rows = [
        row
        for which, lines, answers_of, outcome, some in counting
        for row in (
            *count_outcomes(
                which, lines, answers_of, outcome, _count_scored(sample_groups, which, judged_as), judged_as
            ),
            *count_not_asked(which, some, options.tasks),
        )
    ]
    references = {FILTERED: [FILTERED], ORIGINAL: [ORIGINAL], BOTH: [FILTERED, ORIGINAL]}[options.reference]
    table = [
        row
        for group in sample_groups
        for reference in (references if group.task == "report_generation" else [FILTERED])
        for row in score_rows(group, tools, options, reference)
    ]
    write_table(scored, pl.DataFrame(table, schema=schema(SCORES)), SCORES)
    sample_table = [row for group in sample_groups for row in sample_rows(group, tools)]
    write_table(samples, pl.DataFrame(sample_table, schema=schema(SAMPLES)), SAMPLES)
    write_table(counts, pl.DataFrame(rows, schema=schema(COUNTS), orient="row"), COUNTS)
    log.info("%d samples are scored in %d groups of task and source", len(scored_lines), len(sample_groups))
    if without := sorted(
        set(options.report_metrics) & set(ANNOTATION_METRICS) - {metric for metric, *_ in tools.notes}
    ):
        log.warning(
            "%s: no annotations, so no score: name an annotator or a file of them (docs/systems/radvlm.md)",
            ", ".join(without),
        )


def _blind_texts(trained: Sequence[Mapping]) -> dict[tuple[str, str], str]:
    return {key: write_slots(text, {}) for key, text in find_commonest_answers(trained).items()}


def _count_scored(groups: Sequence[Group], which: str, judged: Judged) -> Counter[str]:
    """Return {task: number of scored samples} of all groups, for one kind of answers."""
    return sum((scored_of(which, group.answers(which), judged) for group in groups), Counter())


def _class_wordings(lines: Sequence[Mapping]) -> dict[str, str]:
    """Return {class: wording} of all classes with boxes in detection lines."""
    words = yaml.safe_load((Path(RESOURCES) / RESOURCE_FILES[0]).read_text(encoding="utf-8"))["said"]
    names = {name for line in lines if line["task"] == "abnormality_detection" for name in line["boxes"]}
    return {name: words.get(name, name).lower() for name in sorted(names)}
