"""Score the answers of one run or model, beside answers that look at nothing and answers about exchanged pictures."""

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
from cxr.radvlm.evaluation.answered import Answered, joined
from cxr.radvlm.evaluation.blind import commonest, shown
from cxr.radvlm.evaluation.columns import COUNTS, SAMPLES, SCORES
from cxr.radvlm.evaluation.conversations import BLIND, EXCHANGED, TEST
from cxr.radvlm.evaluation.counted import Judged, counted, not_asked
from cxr.radvlm.evaluation.counted import scored as scored_of
from cxr.radvlm.evaluation.grounding import Ious, mean_boxes
from cxr.radvlm.evaluation.label_names import label_reader
from cxr.radvlm.evaluation.measures import ALL, Measure, Score, gains, scores
from cxr.radvlm.evaluation.reports import ANNOTATED, FILTERED, ORIGINAL, read_notes
from cxr.radvlm.evaluation.tasks import Tools, measures_of

RESOURCE_FILES = ("radvlm/names.yaml",)
NOTHING = Score(None, None, None)
BOTH = "both"


@dataclass(frozen=True)
class EvaluationOptions:
    """The settings ``radvlm.evaluation`` that scores depend on. tasks: those that are scored, empty for all; answers to
    the others are not counted.
    """

    iou: float
    strict_iou: float
    coco_ious: list
    label_match: str
    synonyms: bool
    report_metrics: list
    reference: str
    failed: str
    replicates: int
    interval: float
    seed: int
    tasks: list


@dataclass(frozen=True)
class Group:
    """The samples of one task and source, with the answers of each kind; others: of those with an exchanged picture."""

    task: str
    source: str
    lines: Sequence[Mapping]
    said: Sequence[Answered]
    blind: Sequence[Answered]
    others: Mapping[str, Answered]

    def answers(self, which: str) -> list[tuple[Mapping, Answered]]:
        """Return the lines with the answers to them: the run's, or those about exchanged pictures."""
        if which == TEST:
            return list(zip(self.lines, self.said, strict=True))
        return [(line, self.others[line["sample_id"]]) for line in self.lines if line["sample_id"] in self.others]

    @property
    def subjects(self) -> list[str]:
        return [line["subject_id"] for line in self.lines]


def groups(
    lines: Sequence[Mapping], said: Mapping[str, Answered], others: Mapping[str, Answered],
    one_for_all: Mapping[tuple[str, str], str],
) -> Iterator[Group]:  # fmt: skip
    """Yield the samples by task, in the order of the tasks in the lines, and source."""
    of: dict[tuple[str, str], list[Mapping]] = {}
    for line in lines:
        of.setdefault((line["task"], line["source"]), []).append(line)
    for key, held in sorted(of.items()):
        text = one_for_all.get(key, "")
        blind = [Answered((text,) * len(line["turns"])) for line in held]
        names = [line["sample_id"] for line in held]
        own = {name: others[name] for name in names if name in others}
        yield Group(*key, held, [said[name] for name in names], blind, own)


def score_rows(group: Group, tools: Tools, options: EvaluationOptions, reference: str) -> Iterator[dict]:
    """Yield a row of :data:`SCORES` for each measure of a group."""
    how = {"replicates": options.replicates, "level": options.interval, "seed": options.seed}

    def made(lines, said, which) -> list[Measure]:
        return measures_of(group.task, lines, said, tools, which=which, reference=reference)

    ours, blind = made(group.lines, group.said, TEST), made(group.lines, group.blind, BLIND)
    found = scores(ours, group.subjects, **how)
    beside = _matched(ours, blind)
    gained = gains([one for one, _ in beside], [other for _, other in beside], group.subjects, **how)
    lost = _lost(group, made, how)
    known = {_key(one): (float(_value(other)), score) for (one, other), score in zip(beside, gained, strict=True)}
    same = {
        "task": group.task, "source": group.source,
        "reference": reference if group.task == "report_generation" else "",
        "samples": len(group.lines), "subjects": len(set(group.subjects)),
        "failed": sum(bool(one.failure) for one in group.said),
    }  # fmt: skip
    for one, score in zip(ours, found, strict=True):
        value, gain = known.get(_key(one), (None, NOTHING))
        yield _row(same, one.name, one.part, score, value, gain, *lost.get(_key(one), (None, NOTHING)))
    if reference != ORIGINAL:
        for name, value in tasks.coco_of(group.task, group.lines, group.said, tools).items():
            yield _row(same, name, ALL, Score(value, None, None), None, NOTHING, None, NOTHING)


def _lost(group: Group, made, how: Mapping) -> dict[tuple[str, str], tuple[float, Score]]:
    """Return {measure: (score with exchanged pictures, the difference)} of the samples that have such a picture."""
    places = [place for place, line in enumerate(group.lines) if line["sample_id"] in group.others]
    if not places:
        return {}
    lines = [group.lines[place] for place in places]
    first = made(lines, [group.said[place] for place in places], TEST)
    second = made(lines, [group.others[line["sample_id"]] for line in lines], EXCHANGED)
    pairs = _matched(first, second)
    found = gains(
        [one for one, _ in pairs], [other for _, other in pairs], [line["subject_id"] for line in lines], **how
    )
    return {_key(one): (float(_value(other)), score) for (one, other), score in zip(pairs, found, strict=True)}


def _key(one: Measure) -> tuple[str, str]:
    return one.name, one.part


def _value(one: Measure) -> np.ndarray:
    return one.value(one.sums.sum(axis=0)) * one.scale


def _matched(first: Sequence[Measure], second: Sequence[Measure]) -> list[tuple[Measure, Measure]]:
    other = {_key(one): one for one in second}
    return [(one, other[_key(one)]) for one in first if _key(one) in other]


def _row(
    same: Mapping, metric: str, part: str, score: Score, blind: float | None, gain: Score, exchanged: float | None,
    drop: Score,
) -> dict:  # fmt: skip
    values = {
        "metric": metric, "part": part, "value": score.value, "low": score.low, "high": score.high,
        "blind": _known(blind), "gain": gain.value, "gain_low": gain.low, "gain_high": gain.high,
        "exchanged": _known(exchanged), "drop": drop.value, "drop_low": drop.low, "drop_high": drop.high,
    }  # fmt: skip
    return {name: (dict(same) | values)[name] for name in SCORES}


def _known(value: float | None) -> float | None:
    return None if value is None or np.isnan(value) else value


def sample_rows(group: Group, tools: Tools) -> Iterator[dict]:
    """Yield a row of :data:`SAMPLES` for each sample of a group that has a measure."""
    ours = measures_of(group.task, group.lines, group.said, tools)
    if not ours:
        return
    first = ours[:1]
    blind = _matched(first, measures_of(group.task, group.lines, group.blind, tools, which=BLIND))
    plains = _each(blind[0][1]) if blind else [None] * len(group.lines)  # only answers are annotated
    lines = [line for line in group.lines if line["sample_id"] in group.others]
    said = [group.others[line["sample_id"]] for line in lines]
    others = _matched(first, measures_of(group.task, lines, said, tools, which=EXCHANGED) if lines else [])
    other = dict(zip((line["sample_id"] for line in lines), _each(others[0][1]), strict=True)) if others else {}
    for line, one, value, plain in zip(group.lines, group.said, _each(ours[0]), plains, strict=True):
        yield {
            **{name: line[name] for name in ("sample_id", "task", "source", "subject_id", "image_id")},
            "asked": line.get("asked") or "", "failure": one.failure, "metric": ours[0].name, "value": value,
            "blind": plain, "exchanged": other.get(line["sample_id"]),
        }  # fmt: skip


def _each(one: Measure) -> list[float | None]:
    return [_known(float(value)) for value in one.value(one.sums) * one.scale]


def run_scores(
    *, lines: str, train: str, answers: str, judged: str, samples: str, scored: str, counts: str,
    options: EvaluationOptions, exchanged_lines: str | list[str] = "", exchanged_answers: str | list[str] = "",
    texts: list[str] | None = None, annotations: list[str] | None = None, draw: str | list[str] = "",
    exchanged_draw: str | list[str] = "",
) -> None:  # fmt: skip
    """Score the ``answers`` to the test ``lines``.

    ``exchanged_lines``, ``exchanged_answers``: the same samples about pictures of other patients; ``texts``: reports of
    the sources, for ``reference: original``; ``annotations``: of reports, made elsewhere; ``draw``,
    ``exchanged_draw``: tables of how many of how many samples both lines are, where they are not all. Raises UserError.
    """
    refuse_empty(lines, "to score")
    every = list(read_lines(lines))
    asked = [line for line in every if not options.tasks or line["task"] in options.tasks]
    left = {line["sample_id"] for line in every} - {line["sample_id"] for line in asked}
    judged_as = {(one["answers"], one["sample_id"]): one["score"] for one in read_lines(judged)}
    said, outcome = joined(asked, (one for one in read_lines(answers) if one["sample_id"] not in left))
    counting = [(TEST, asked, said, outcome, draw)]
    others: dict[str, Answered] = {}
    if exchanged_lines and exchanged_answers:
        path, given = (one if isinstance(one, str) else one[0] for one in (exchanged_lines, exchanged_answers))
        right = {line["sample_id"] for line in asked}
        with_other = [line for line in read_lines(path) if line["sample_id"] in right]
        others, outcome = joined(with_other, (one for one in read_lines(given) if one["sample_id"] not in left))
        counting.append((EXCHANGED, with_other, others, outcome, exchanged_draw))
    trained = list(read_lines(train))
    tools = Tools(
        ious=Ious(options.iou, options.strict_iou, tuple(options.coco_ious)),
        labels=label_reader(synonyms=options.synonyms), match=options.label_match,
        said=_said([*asked, *trained]), mean_boxes=mean_boxes(trained), metrics=options.report_metrics,
        failed=options.failed,
        original={(one["source"], one["study_id"]): one["text"] for path in texts or () for one in read_lines(path)},
        judged=judged_as,
        notes={key: note for path in annotations or () for key, note in read_notes(path, read_lines(path)).items()},
    )  # fmt: skip
    held = list(groups(asked, said, others, _texts_of(trained)))
    rows = [
        row
        for which, lines, answers_of, outcome, some in counting
        for row in (
            *counted(which, lines, answers_of, outcome, _scored(held, which, judged_as), judged_as),
            *not_asked(which, some, options.tasks),
        )
    ]
    wanted = {FILTERED: [FILTERED], ORIGINAL: [ORIGINAL], BOTH: [FILTERED, ORIGINAL]}[options.reference]
    table = [
        row
        for group in held
        for reference in (wanted if group.task == "report_generation" else [FILTERED])
        for row in score_rows(group, tools, options, reference)
    ]
    write_table(scored, pl.DataFrame(table, schema=schema(SCORES)), SCORES)
    each = [row for group in held for row in sample_rows(group, tools)]
    write_table(samples, pl.DataFrame(each, schema=schema(SAMPLES)), SAMPLES)
    write_table(counts, pl.DataFrame(rows, schema=schema(COUNTS), orient="row"), COUNTS)
    log.info("%d samples are scored in %d groups of task and source", len(asked), len(held))
    if without := sorted(set(options.report_metrics) & set(ANNOTATED) - {metric for metric, *_ in tools.notes}):
        log.warning(
            "%s: no annotations, so no score: name an annotator or a file of them (docs/systems/radvlm.md)",
            ", ".join(without),
        )


def _texts_of(trained: Sequence[Mapping]) -> dict[tuple[str, str], str]:
    return {key: shown(text, {}) for key, text in commonest(trained).items()}


def _scored(groups: Sequence[Group], which: str, judged: Judged) -> Counter[str]:
    """Return {task: how many} of the samples of all groups whose answers of a kind are scored."""
    return sum((scored_of(which, group.answers(which), judged) for group in groups), Counter())


def _said(lines: Sequence[Mapping]) -> dict[str, str]:
    """Return {class: its words} of all classes that lines of detection have boxes of."""
    words = yaml.safe_load((Path(RESOURCES) / RESOURCE_FILES[0]).read_text(encoding="utf-8"))["said"]
    names = {name for line in lines if line["task"] == "abnormality_detection" for name in line["boxes"]}
    return {name: words.get(name, name).lower() for name in sorted(names)}
