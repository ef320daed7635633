"""Summary of the reports of all shards. It counts the studies with each outcome and with each unknown word."""

import logging
import re
from dataclasses import dataclass

import polars as pl

from cxr.base.columns import Column, schema
from cxr.base.errors import count_phrase
from cxr.base.exclusions import REASONS
from cxr.base.jobs import log
from cxr.base.tables import read_lines, read_table, write_table
from cxr.language.reports import outcome_summary
from cxr.language.reports.forms import PROSE
from cxr.language.reports.settings import NOTHING_SHARE

WORDS = {
    "word": Column(pl.String, "Word that was not understood."),
    "studies": Column(pl.Int64, "Number of studies with the word."),
    "hiding": Column(pl.Int64, "Number of these studies in which a sentence with the word could state a finding."),
    "example": Column(
        pl.String,
        "First sentence with the word, if possible one that could state a finding. If `release.withhold` names "
        "`report_text`, it is `withheld`, and rare words (`privacy.least_subjects`) and possible names are left out.",
    ),
}
READING = {
    "outcome": Column(
        pl.String,
        "`findings`, `no_findings`, or the code of the reason why a report was not used ([reasons.md](reasons.md)).",
    ),
    "form": Column(pl.String, "Kinds of form in the reports; empty for prose and for unused reports."),
    "studies": Column(pl.Int64, "Number of studies with this outcome and form."),
    "handed_over": Column(pl.Int64, "Number of studies that the rules handed over to a language model (engine both)."),
    "example_study": Column(pl.String, "One of these studies."),
    "meaning": Column(pl.String, "Description of the outcome."),
}
OUTCOMES = {"outcome": pl.String, "form": pl.String, "example_study": pl.String, "handed_over": pl.Boolean}
USES = {"word": pl.String, "hiding": pl.Boolean, "study_id": pl.String, "subject_id": pl.String, "sentence": pl.String,
        "is_like_a_name": pl.Boolean}  # fmt: skip
WITHHELD = "withheld"


@dataclass(frozen=True)
class SummaryOptions:
    """Options of the summary. ``engine`` is the engine that read the reports. If ``withheld``, the tables contain no
    sentences, no words that may be names, and no words that occur in fewer than ``least_subjects`` subjects."""

    engine: str
    withheld: bool
    least_subjects: int


def run(*, reports: list[str], excluded: list[str], words: str, reading: str, options: SummaryOptions) -> None:
    """Write the tables ``words`` (unknown words) and ``reading`` (outcomes) of all shards, and log a summary."""
    outcomes, unknown = [], []
    for line in (line for path in reports for line in read_lines(path)):
        outcome = outcome_summary.FINDINGS if line["tuples"] else outcome_summary.NO_FINDINGS
        form = outcome_summary.KIND_SEPARATOR.join(kind for kind in line["written"] if kind != PROSE)
        outcomes.append((outcome, form, line["study_id"], line["handed_over"] is not None))
        for row in line["unknown_words"]:
            word, sentence = row["word"], " ".join(line["sentences"][row["sentence_index"] - 1].split())
            is_like_a_name = _is_like_a_name(word, sentence)
            unknown.append((word, row["finding"], line["study_id"], line["subject_id"], sentence, is_like_a_name))
    for study_id, reason in pl.concat([_lost_studies(path) for path in excluded]).iter_rows():
        # only a model's answers are quarantined
        outcomes.append((reason, "", study_id, options.engine == "both" and reason == "quarantined"))
    word_uses = (
        pl.DataFrame(unknown, USES, orient="row")
        .group_by("word")
        .agg(
            pl.len().alias("studies"),
            pl.col("hiding").sum(),
            pl.col("sentence").sort_by(~pl.col("hiding"), "study_id", "sentence").first().alias("example"),
            (pl.col("subject_id").n_unique() >= options.least_subjects).alias("is_common"),
            pl.col("is_like_a_name").all().alias("is_name"),
        )
        .sort("studies", "word", descending=[True, False])
    )
    table = word_uses
    if options.withheld:
        table = word_uses.filter(pl.col("is_common") & ~pl.col("is_name")).with_columns(example=pl.lit(WITHHELD))
    write_table(words, table.select(*WORDS).cast(schema(WORDS)), WORDS)
    meanings = outcome_summary.MEANINGS
    rows = (
        pl.DataFrame(outcomes, OUTCOMES, orient="row")
        .group_by("outcome", "form")
        .agg(pl.len().cast(pl.Int64).alias("studies"), pl.col("handed_over").sum(), pl.col("example_study").min())
        .with_columns(meaning=pl.col("outcome").replace_strict(REASONS | meanings, return_dtype=pl.String))
        .sort(~pl.col("outcome").is_in(list(meanings)), -pl.col("studies"), "outcome", "form")
        .select(*READING)
        .cast(schema(READING))
    )
    write_table(reading, rows, READING)
    _log_summary(rows.to_dicts(), word_uses.height, reading, options)


def _lost_studies(excluded: str) -> pl.DataFrame:
    return read_table(excluded).select("study_id", "reason").unique()


def _is_like_a_name(word: str, sentence: str) -> bool:
    """Return whether a word is capitalised inside its sentence, unless the whole sentence is in capitals."""
    match = re.search(rf"(?<!\w){re.escape(word)}", sentence, re.IGNORECASE)
    return match is not None and match.start() > 0 and sentence[match.start()].isupper() and not sentence.isupper()


def _log_summary(rows: list[dict], words: int, reading: str, options: SummaryOptions) -> None:
    total = sum(row["studies"] for row in rows)
    lost = sum(row["studies"] for row in rows if row["outcome"] not in outcome_summary.MEANINGS)
    every = f"all of {total} studies have a usable report" if total else "no study has reached this stage"
    sentence = outcome_summary.summarize_outcomes(rows) or f"reports: {every}"
    level = logging.WARNING if lost > NOTHING_SHARE * total else logging.INFO
    log.log(level, "%s (%s)", sentence, reading)
    if forms := outcome_summary.summarize_forms(rows):
        log.info("reports: %s", forms)
    if options.engine == "both":
        num_handed_over = sum(row["handed_over"] for row in rows)
        message = "reports: the rules handed over %d of %d reports to the language model, %.0f per 1,000"
        log.info(message, num_handed_over, total, 1000 * num_handed_over / max(1, total))
    if options.engine != "vllm":
        understood = count_phrase(words, "word was", "words were")
        log.info("reports: %s not understood (see unknown_words.tsv in the same folder)", understood)
