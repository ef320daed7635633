"""Score the answers of one run or model, compared with blind answers and answers about exchanged images."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from cxr.base.columns import schema
from cxr.base.errors import refuse_empty
from cxr.base.jobs import log
from cxr.base.resources import load_resource
from cxr.base.tables import read_lines, write_table
from cxr.radvlm.evaluation.answers import SampleAnswer, find_commonest_answers, join_answers
from cxr.radvlm.evaluation.classification import load_label_reader
from cxr.radvlm.evaluation.columns import COUNTS, SAMPLES, SCORES
from cxr.radvlm.evaluation.conservation import count_not_asked, count_outcomes, count_scored
from cxr.radvlm.evaluation.conversations import BLIND, EXCHANGED, TEST
from cxr.radvlm.evaluation.grounding import compute_mean_boxes
from cxr.radvlm.evaluation.measures import ALL, Measure, Score, score_differences, score_measures
from cxr.radvlm.evaluation.reports import ANNOTATION_METRICS, FILTERED, ORIGINAL, read_notes
from cxr.radvlm.evaluation.settings import ScoreOptions
from cxr.radvlm.evaluation.tasks import ScoringTools, coco_scores, measure_task
from cxr.radvlm.samples import write_slots

RESOURCE_FILES = ("radvlm/names.yaml",)
NO_SCORE = Score(None, None, None)
BOTH = "both"
INTERVAL = 0.95
"""Coverage of the bootstrap intervals."""


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


def score_rows(group: Group, tools: ScoringTools, reference: str, seed: int) -> Iterator[dict]:
    """Yield a row of :data:`SCORES` for each measure of a group; ``seed``: of the bootstrap."""
    interval_options = {"replicates": tools.options.replicates, "level": INTERVAL, "seed": seed}

    def measure_answers(lines, answers, which) -> list[Measure]:
        return measure_task(group.task, lines, answers, tools, which=which, reference=reference)

    ours = measure_answers(group.lines, group.run_answers, TEST)
    blind = measure_answers(group.lines, group.blind, BLIND)
    test_scores = score_measures(ours, group.subjects, **interval_options)
    gain_by_measure = _score_against(ours, blind, group.subjects, interval_options)
    drop_by_measure = _score_exchanged(group, measure_answers, interval_options)
    common_fields = {
        "task": group.task, "source": group.source,
        "reference": reference if group.task == "report_generation" else "",
        "samples": len(group.lines), "subjects": len(set(group.subjects)),
        "failed": sum(bool(answer.failure) for answer in group.run_answers),
    }  # fmt: skip
    for measure, score in zip(ours, test_scores, strict=True):
        blind_value, gain = gain_by_measure.get(_key(measure), (None, NO_SCORE))
        exchanged, drop = drop_by_measure.get(_key(measure), (None, NO_SCORE))
        yield _row(common_fields, measure.name, measure.part, score, blind_value, gain, exchanged, drop)
    if reference != ORIGINAL:
        for name, value in coco_scores(group.task, group.lines, group.run_answers, tools).items():
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
    return _score_against(first, second, [line["subject_id"] for line in lines], interval_options)


def _score_against(
    first: Sequence[Measure], second: Sequence[Measure], subjects: Sequence[str], interval_options: Mapping
) -> dict[tuple[str, str], tuple[float, Score]]:
    """Return {measure: (its value in ``second``, difference first - second)} of the measures that both have."""
    pairs = _pair_measures(first, second)
    differences = score_differences(
        [measure for measure, _ in pairs], [other_measure for _, other_measure in pairs], subjects, **interval_options
    )
    return {
        _key(measure): (float(other_measure.value(other_measure.sums.sum(axis=0)) * other_measure.scale), difference)
        for (measure, other_measure), difference in zip(pairs, differences, strict=True)
    }


def _key(measure: Measure) -> tuple[str, str]:
    return measure.name, measure.part


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
    pairs = group.answers(EXCHANGED)
    lines, exchanged_answers = [line for line, _ in pairs], [answer for _, answer in pairs]
    exchanged = measure_task(group.task, lines, exchanged_answers, tools, which=EXCHANGED) if lines else []
    exchanged_values = [_sample_values(measure) for _, measure in _pair_measures(first, exchanged)]
    exchanged_by_sample = {
        line["sample_id"]: value for values in exchanged_values for line, value in zip(lines, values, strict=True)
    }
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
    *, lines: str, train: str, answers: str, judged: str, samples: str, scored: str, counts: str, options: ScoreOptions,
    seed: int, tasks: Sequence[str] = (), exchanged_lines: Sequence[str] = (), exchanged_answers: Sequence[str] = (),
    texts: Sequence[str] = (), annotations: Sequence[str] = (), draw: Sequence[str] = (),
    exchanged_draw: Sequence[str] = (),
) -> None:  # fmt: skip
    """Score the ``answers`` to the test ``lines``.

    ``tasks``: scored tasks, empty for all; others are not counted; ``exchanged_lines``, ``exchanged_answers``: the same
    samples about other patients' images; ``texts``: reports of the sources, for ``reference: original``;
    ``annotations``: of reports; ``draw``, ``exchanged_draw``: numbers of requested and available samples, if they
    differ. Raises UserError.
    """
    refuse_empty(lines, "to score")
    all_lines = list(read_lines(lines))
    scored_lines = [line for line in all_lines if not tasks or line["task"] in tasks]
    omitted_ids = {line["sample_id"] for line in all_lines} - {line["sample_id"] for line in scored_lines}
    judged_as = {(judgement["answers"], judgement["sample_id"]): judgement["score"] for judgement in read_lines(judged)}
    answer_by_sample, outcome = join_answers(
        scored_lines, (answer for answer in read_lines(answers) if answer["sample_id"] not in omitted_ids)
    )
    counting = [(TEST, scored_lines, answer_by_sample, outcome, draw)]
    exchanged_by_sample: dict[str, SampleAnswer] = {}
    scored_ids = {line["sample_id"] for line in scored_lines}
    for lines_path, answers_path in zip(exchanged_lines, exchanged_answers, strict=True):
        scored_exchanged_lines = [line for line in read_lines(lines_path) if line["sample_id"] in scored_ids]
        exchanged_by_sample, outcome = join_answers(
            scored_exchanged_lines,
            (answer for answer in read_lines(answers_path) if answer["sample_id"] not in omitted_ids),
        )
        counting.append((EXCHANGED, scored_exchanged_lines, exchanged_by_sample, outcome, exchanged_draw))
    trained = list(read_lines(train))
    tools = ScoringTools(
        options=options,
        labels=load_label_reader(),
        wording_by_class=_class_wordings([*scored_lines, *trained]),
        mean_boxes=compute_mean_boxes(trained),
        original={(line["source"], line["study_id"]): line["text"] for path in texts for line in read_lines(path)},
        judged=judged_as,
        notes={key: note for path in annotations for key, note in read_notes(path, read_lines(path)).items()},
    )
    blind_texts = {key: write_slots(text, {}) for key, text in find_commonest_answers(trained).items()}
    sample_groups = list(group_samples(scored_lines, answer_by_sample, exchanged_by_sample, blind_texts))
    rows = []
    for which, set_lines, answers_of, outcome, draw_paths in counting:
        scored_counts = (count_scored(which, group.answers(which), judged_as) for group in sample_groups)
        rows += count_outcomes(which, set_lines, answers_of, outcome, sum(scored_counts, Counter()), judged_as)
        rows += count_not_asked(which, draw_paths, tasks)
    references = {FILTERED: [FILTERED], ORIGINAL: [ORIGINAL], BOTH: [FILTERED, ORIGINAL]}[options.reference]
    table = [
        row
        for group in sample_groups
        for reference in (references if group.task == "report_generation" else [FILTERED])
        for row in score_rows(group, tools, reference, seed)
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


def _class_wordings(lines: Sequence[Mapping]) -> dict[str, str]:
    """Return {class: wording} of all classes with boxes in detection lines."""
    words = load_resource(RESOURCE_FILES[0])["said"]
    names = {name for line in lines if line["task"] == "abnormality_detection" for name in line["boxes"]}
    return {name: words.get(name, name).lower() for name in sorted(names)}
