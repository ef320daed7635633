"""The evaluation stage: score the predictions of each run, and compare the runs."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np
import polars as pl

from cxr.base.columns import read_columns, schema
from cxr.base.errors import UserError, count_phrase
from cxr.base.hdf5 import Shards, pack
from cxr.base.ids import clean_id
from cxr.base.jobs import progress
from cxr.base.tables import read_lines, write_table
from cxr.base.user_tables import read_text
from cxr.geometry.masks import resize_mask
from cxr.ils.evaluation import answer_rules, charts, summary
from cxr.ils.evaluation.answer_rules import SHOWN_RULES
from cxr.ils.evaluation.predictions import NOT_ASKED, Prediction, Predictions
from cxr.ils.evaluation.settings import ScoringOptions
from cxr.ils.evaluation.summary import TOTAL
from cxr.metrics.masks import lisa_iou, overlap_packed
from cxr.plotting.plots import save_png

RESOURCE_FILES = ("columns/evaluation.toml",)
log = logging.getLogger("cxr")
EXCLUDED = read_columns("evaluation", "excluded")
COUNTS = read_columns("evaluation", "counts")
COMPARISON = {
    **read_columns("evaluation", "comparison"),
    **summary.COUNT_COLUMNS,
    **{name: column for name, column in summary.MASK_COLUMNS.items() if not name.endswith("_paper")},
    **read_columns("evaluation", "text_accuracies"),
}
PAIRS = read_columns("evaluation", "pairs")
SCHEMA = schema(PAIRS)  # ``iou`` is null if the mask is not scored, and the rules if the answer is not
REQUIRED = ("pair_id", "subject_id", "target", "type", "instruction", "answer", "seg", "mask_id")


class References(Shards):
    """The reference masks of the dataset, resized to ``size`` x ``size`` pixels. A context manager."""

    def __init__(self, masks: Sequence[str], size: int):
        super().__init__(masks, "mask_id")
        self.size = size
        # consecutive pairs belong to one study and share masks
        self._packed = lru_cache(maxsize=64)(lambda name: pack(resize_mask(self.get("mask", name), size)))

    def packed(self, line: Mapping) -> np.ndarray:
        """Return the reference mask of a pair, uint8 packed (size, size / 8); empty for a negative pair."""
        return self._packed(line["mask_id"]) if line["seg"] else np.zeros((self.size, self.size // 8), np.uint8)


def score_pairs(
    lines: Sequence[Mapping], references: References, predictions: Predictions, reviewed: set[str]
) -> pl.DataFrame:
    """Return the table ``PAIRS``, one row per pair in the order of the lines.

    An unusable prediction counts as wrong in every score. A missing answer counts as wrong unless the run has no
    answers. ``reviewed``: ids of pairs that reviewers rejected, which are not scored.
    """
    has_answers = any(isinstance(entry.get("answer"), str) for entry in predictions.entry_by_pair.values())
    rows = _score_rows(lines, references, predictions, reviewed, has_answers)
    return pl.DataFrame(progress(rows, len(lines), "evaluation"), schema=SCHEMA, orient="row")


def _score_rows(
    lines: Sequence[Mapping], references: References, predictions: Predictions, reviewed: set[str], has_answers: bool
) -> Iterator[tuple]:
    for line in lines:
        polarity = "positive" if line["seg"] else "negative"
        pair_columns = (line["pair_id"], line["subject_id"], line["target"], line["type"], polarity)
        is_rejected = line["pair_id"] in reviewed
        prediction = Prediction(None, None, "reviewed") if is_rejected else predictions.get(line["pair_id"])
        if prediction.reason in ("reviewed", NOT_ASKED):
            yield (*pair_columns, None, None, None, *[None] * len(answer_rules.RULES), prediction.reason, "")
            continue
        reference = references.packed(line)
        if prediction.mask is None:  # IoU 0 even for a negative, because a failure must not count as "no lesion"
            areas = 0, overlap_packed(reference, reference).union, 0.0
        else:
            intersection, union = overlap_packed(prediction.mask, reference)
            areas = intersection, union, float(lisa_iou(intersection, union))
        if not has_answers:
            judged = dict.fromkeys(answer_rules.RULES)
        elif prediction.answer is None or prediction.reason == "duplicate":
            judged = dict.fromkeys(answer_rules.RULES, False)
        else:
            judged = answer_rules.judge_answer(line["type"], line["answer"], prediction.answer)
        judgements = (judged[rule] for rule in answer_rules.RULES)
        yield (*pair_columns, *areas, *judgements, prediction.reason, prediction.detail)


def run_scores(
    *,
    lines: str,
    masks: list[str],
    predictions: str,
    pairs: str,
    scores_table: str,
    text_table: str,
    excluded: str,
    counts_table: str,
    options: ScoringOptions,
    seed: int,
    model: str,
    reworded: bool = False,
    prediction_masks: str | None = None,
    reviewed: str | None = None,
) -> None:
    """Score the predictions of one run on one split of the dataset.

    ``reviewed``: text file of pair ids that reviewers rejected, one per line, with comments after #; ``model``: model
    of the paper whose printed scores stand beside the run's; ``reworded``: whether the run's model received a persona's
    wordings. The outputs are ``pairs`` (one row per pair), ``scores_table`` and ``text_table`` (with intervals and the
    paper's values), ``excluded`` (one row per unusable pair or line) and ``counts_table``.
    """
    # only the required fields, because the text of reports takes memory
    dataset = [{name: line[name] for name in REQUIRED} for line in read_lines(lines)]
    pair_ids = {line["pair_id"] for line in dataset}
    if len(pair_ids) < len(dataset):
        twice = count_phrase(len(dataset) - len(pair_ids), "pair_id comes", "pair_ids come")
        raise UserError(f"{lines}: {twice} twice: regenerate the dataset")
    reviewed_lines = read_text(reviewed, "evaluation.reviewed").splitlines() if reviewed else []
    rejected = {clean_id(line.partition("#")[0]) for line in reviewed_lines} - {""}
    if strange := rejected - pair_ids:
        total = f"of {len(rejected)} pairs in {reviewed}"
        log.warning("%s not in this split", count_phrase(len(strange), f"{total} is", f"{total} are"))
    with (
        References(masks, options.size) as references,
        Predictions(predictions, prediction_masks, pair_ids, options.size, reworded) as prediction_reader,
    ):
        rows = score_pairs(dataset, references, prediction_reader, rejected)
    printed = summary.read_paper_scores().select_for_model(model)
    resampling = {"replicates": options.replicates, "seed": seed}
    write_table(pairs, rows, PAIRS)
    write_table(scores_table, summary.make_score_table(rows, printed, **resampling), summary.SCORES)
    write_table(text_table, summary.make_text_table(rows, printed, **resampling), summary.TEXTS)
    unscored = rows.filter(pl.col("reason") != "").select("pair_id", "reason", "detail")
    stray = [("", reason, f"line {number}") for reason, number in prediction_reader.stray]
    unscored = pl.concat([unscored, pl.DataFrame(stray, schema=unscored.schema, orient="row")])
    write_table(excluded, unscored, EXCLUDED)
    write_table(counts_table, count_pairs_and_lines(rows, prediction_reader), COUNTS)


def run_comparison(
    *,
    scores: list[str],
    texts: list[str],
    comparison_table: str,
    masks_figure: str,
    text_figure: str,
    runs: Sequence[str],
    dpi: int,
    reworded: Sequence[Sequence[str]] = (),
    reworded_scores: Sequence[str] = (),
    reworded_texts: Sequence[str] = (),
) -> None:
    """Write a table of the scores of all runs and of the paper's models, and two figures of the runs.

    ``scores`` and ``texts``: tables in the order of ``runs``; ``reworded``: (run, persona) for every run with a
    persona's wordings, whose tables are ``reworded_scores`` and ``reworded_texts``. In the table, such a run has a name
    like "default, layperson". The figures do not show it.
    """
    names = [*runs, *(f"{run}, {persona}" for run, persona in reworded)]
    score_tables, text_tables = (
        dict(zip(names, map(summary.read_scores, paths), strict=True))
        for paths in ([*scores, *reworded_scores], [*texts, *reworded_texts])
    )
    printed = summary.read_paper_scores()
    write_table(comparison_table, make_comparison(score_tables, text_tables, printed), COMPARISON)
    save_png(charts.draw_mask_scores({run: score_tables[run] for run in runs}), masks_figure, dpi)
    save_png(charts.draw_text_scores({run: text_tables[run] for run in runs}), text_figure, dpi)


def count_pairs_and_lines(rows: pl.DataFrame, predictions: Predictions) -> pl.DataFrame:
    """Return the table ``COUNTS`` of pairs and lines by reason. Raises AssertionError if a sum is not its total."""
    reasons = Counter(rows["reason"])
    stray = Counter(reason for reason, _ in predictions.stray)
    table = [("pairs", "in the split", len(rows)), ("pairs", "with a mask", reasons.pop("", 0))]
    table += [("pairs", reason, number) for reason, number in sorted(reasons.items())]
    table += [("lines", "in the file", predictions.num_lines)]
    table += [("lines", "first of their pair", len(predictions.entry_by_pair))]
    table += [("lines", reason, number) for reason, number in sorted(stray.items())]
    for kind in ("pairs", "lines"):
        total, *parts = (number for row_kind, _, number in table if row_kind == kind)
        if total != sum(parts):
            raise AssertionError(f"evaluation: {total} {kind} in, {sum(parts)} accounted for")
    return pl.DataFrame(table, schema=schema(COUNTS), orient="row")


def make_comparison(
    scores: dict[str, pl.DataFrame], texts: dict[str, pl.DataFrame], printed: summary.PaperScores
) -> pl.DataFrame:
    """Return the table ``COMPARISON``: a row per run and lesion type, and a row of totals per model of the paper."""
    columns = [name for name in summary.MASK_COLUMNS if not name.endswith("_paper")]
    tables = []
    for run, table in scores.items():
        counts = ("lesion", *summary.COUNT_COLUMNS)
        ours = table.select(*counts, pl.col(columns).cast(pl.Float64), source=pl.lit("ours"), run=pl.lit(run))
        overall = texts[run].filter(pl.col("type") == summary.OVERALL).cast({"accuracy": pl.Float64})
        for rule in reversed(SHOWN_RULES):
            answers = overall.filter(pl.col("rule") == rule).select(lesion="group", **{f"text_{rule}": "accuracy"})
            ours = ours.join(answers, on="lesion", how="left", maintain_order="left")
        tables.append(ours.select(*COMPARISON))
    rows = [{"source": "paper", "run": model, "lesion": TOTAL} | values for model, values in printed.models.items()]
    for row in rows:
        row["text_authors"] = printed.text[TOTAL][summary.OVERALL] if row["run"] == summary.ROSALIA else None
    tables.append(pl.DataFrame(rows))
    return pl.concat(tables, how="diagonal")
