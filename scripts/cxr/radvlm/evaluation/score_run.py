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
        blind = [SampleAnswer((commonest_answers.get(key, ""),) * len(line["turns"])) for line in group_lines]
        names = [line["sample_id"] for line in group_lines]
        group_exchanged = {name: exchanged_by_sample[name] for name in names if name in exchanged_by_sample}
        yield Group(*key, group_lines, [answer_by_sample[name] for name in names], blind, group_exchanged)


def score_rows(group: Group, tools: ScoringTools, reference: str, seed: int) -> Iterator[dict]:
    """Yield a row of :data:`SCORES` for each measure of a group; ``seed``: of the bootstrap."""
    interval_options = {"replicates": tools.options.replicates, "level": INTERVAL, "seed": seed}

    def measure(lines, answers, which: str) -> list[Measure]:
        return measure_task(group.task, lines, answers, tools, which=which, reference=reference)

    def compare(first: Sequence[Measure], second: Sequence[Measure], subjects: Sequence[str], *names: str) -> dict:
        """Return {measure: {name of the second score: its value, name of the difference: …, its interval}}."""
        pairs = _pair_measures(first, second)
        first_measures, second_measures = ([pair[side] for pair in pairs] for side in (0, 1))
        differences = score_differences(first_measures, second_measures, subjects, **interval_options)
        values = (float(measure.value(measure.sums.sum(axis=0)) * measure.scale) for _, measure in pairs)
        return {
            _key(pair[0]): {names[0]: _none_if_nan(value)} | _interval_fields(names[1], difference)
            for pair, value, difference in zip(pairs, values, differences, strict=True)
        }

    subjects = [line["subject_id"] for line in group.lines]
    ours = measure(group.lines, group.run_answers, TEST)
    by_measure = [compare(ours, measure(group.lines, group.blind, BLIND), subjects, "blind", "gain")]
    if group.exchanged:
        lines, exchanged_answers = zip(*group.answers(EXCHANGED), strict=True)
        run_answers = [answer for line, answer in group.answers(TEST) if line["sample_id"] in group.exchanged]
        own_measures, exchanged_measures = (
            measure(lines, run_answers, TEST),
            measure(lines, exchanged_answers, EXCHANGED),
        )
        by_measure.append(
            compare(own_measures, exchanged_measures, [line["subject_id"] for line in lines], "exchanged", "drop")
        )
    common_fields = {
        "task": group.task, "source": group.source,
        "reference": reference if group.task == "report_generation" else "",
        "samples": len(group.lines), "subjects": len(set(subjects)),
        "failed": sum(bool(answer.failure) for answer in group.run_answers),
    }  # fmt: skip
    for one_measure, score in zip(ours, score_measures(ours, subjects, **interval_options), strict=True):
        fields = {"metric": one_measure.name, "part": one_measure.part} | _interval_fields("", score)
        for fields_by_measure in by_measure:
            fields |= fields_by_measure.get(_key(one_measure), {})
        yield common_fields | fields
    if reference != ORIGINAL:
        for name, value in coco_scores(group.task, group.lines, group.run_answers, tools).items():
            yield common_fields | {"metric": name, "part": ALL, "value": value}


def _interval_fields(name: str, score: Score) -> dict[str, float | None]:
    """Return the columns of a score with its interval."""
    names = (name, f"{name}_low", f"{name}_high") if name else ("value", "low", "high")
    return dict(zip(names, score, strict=True))


def _key(measure: Measure) -> tuple[str, str]:
    return measure.name, measure.part


def _pair_measures(first: Sequence[Measure], second: Sequence[Measure]) -> list[tuple[Measure, Measure]]:
    second_by_key = {_key(measure): measure for measure in second}
    return [(measure, second_by_key[_key(measure)]) for measure in first if _key(measure) in second_by_key]


def _none_if_nan(value: float) -> float | None:
    return None if np.isnan(value) else value


def sample_rows(group: Group, tools: ScoringTools) -> Iterator[dict]:
    """Yield a row of :data:`SAMPLES` for each sample of a group that has a measure."""
    first = measure_task(group.task, group.lines, group.run_answers, tools)[:1]
    blind_pairs = list(zip(group.lines, group.blind, strict=True))
    values: dict[str, dict[str, float | None]] = {BLIND: {}, EXCHANGED: {}}
    for which, pairs in ((BLIND, blind_pairs), (EXCHANGED, group.answers(EXCHANGED))):
        lines, answers = [line for line, _ in pairs], [answer for _, answer in pairs]
        measures = measure_task(group.task, lines, answers, tools, which=which) if pairs else []
        for _, measure in _pair_measures(first, measures):  # blind answers are not annotated
            values[which] = _sample_values(lines, measure)
    for measure in first:
        run_values = _sample_values(group.lines, measure)
        for line, answer in group.answers(TEST):
            name = line["sample_id"]
            yield {
                **{key: line[key] for key in ("sample_id", "task", "source", "subject_id", "image_id")},
                "asked": line.get("asked") or "", "failure": answer.failure, "metric": measure.name,
                "value": run_values[name], "blind": values[BLIND].get(name),
                "exchanged": values[EXCHANGED].get(name),
            }  # fmt: skip


def _sample_values(lines: Sequence[Mapping], measure: Measure) -> dict[str, float | None]:
    values = measure.value(measure.sums) * measure.scale
    return {line["sample_id"]: _none_if_nan(float(value)) for line, value in zip(lines, values, strict=True)}


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
