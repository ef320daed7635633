"""Counting the outcomes of all shards' reports, and their unknown words."""

import logging
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import polars as pl

from cxr.base.columns import Column, schema
from cxr.base.errors import count_phrase
from cxr.base.jobs import log
from cxr.base.tables import read_lines, read_table, write_table
from cxr.language.reports import outcome_summary
from cxr.language.reports.forms import PROSE
from cxr.language.reports.settings import NOTHING_SHARE

WORDS = {
    "word": Column(pl.String, "Word that was not understood."),
    "studies": Column(pl.Int64, "Studies that have it."),
    "hiding": Column(pl.Int64, "Of these, studies where a sentence with it could hold a finding."),
    "example": Column(
        pl.String,
        "First such sentence in order of `study_id`; `withheld` where `release.withhold` names `report_text`. Then "
        "words of fewer than `privacy.least_subjects` subjects, and words that may be names, are left out too.",
    ),
}
READING = {
    "outcome": Column(
        pl.String,
        "`findings`, `no_findings`, or the code of the reason why a report was not used ([reasons.md](reasons.md)).",
    ),
    "form": Column(pl.String, "Kinds of form in their reports; empty: prose, or not used."),
    "studies": Column(pl.Int64, "Studies with that outcome and form."),
    "handed_over": Column(pl.Int64, "Of these, studies that the rules handed over to a language model (engine both)."),
    "example_study": Column(pl.String, "One of them."),
    "meaning": Column(pl.String, "The outcome in words."),
}
WITHHELD = "withheld"


@dataclass(frozen=True)
class SummaryOptions:
    """engine: of the reports; withheld: no text of a report may be shown (``release.withhold``), nor a word of fewer
    than ``least_subjects`` subjects, nor a word that is always capitalised inside its sentences (it may be a name).
    """

    engine: str
    withheld: bool
    least_subjects: int


@dataclass
class _Use:
    """Where an unknown word was read: numbers of studies, subjects, and the example (order, study_id, sentence)."""

    studies: int = 0
    hiding: int = 0
    subjects: set[str] = field(default_factory=set)
    example: tuple | None = None
    only_as_name: bool = True


def run(*, reports: list[str], excluded: list[str], words: str, reading: str, options: SummaryOptions) -> None:
    """Write ``words`` (unknown words by number of studies) and ``reading`` (outcomes), and log a summary."""
    outcomes: dict[tuple[str, str], list[str]] = defaultdict(list)
    num_handed_over: Counter[tuple[str, str]] = Counter()
    uses: dict[str, _Use] = defaultdict(_Use)
    for line in (line for path in reports for line in read_lines(path)):
        outcome = outcome_summary.FINDINGS if line["tuples"] else outcome_summary.NO_FINDINGS
        kinds = [kind for kind in line["written"] if kind != PROSE]
        form = outcome_summary.KIND_SEPARATOR.join(kinds)
        outcomes[outcome, form].append(line["study_id"])
        num_handed_over[outcome, form] += line["handed_over"] is not None
        for row in line["unknown_words"]:
            use, sentence = uses[row["word"]], " ".join(line["sentences"][row["sentence_index"] - 1].split())
            example = (not row["finding"], line["study_id"], sentence)
            use.studies += 1
            use.hiding += row["finding"]
            use.subjects.add(line["subject_id"])
            use.example = min(use.example or example, example)
            use.only_as_name &= _is_like_a_name(row["word"], sentence)
    studies = pl.concat([read_table(path).select("study_id", "reason").unique() for path in excluded]).sort("study_id")
    for study_id, reason in studies.iter_rows():
        outcomes[reason, ""].append(study_id)
        # only the answers of a model are quarantined
        num_handed_over[reason, ""] += options.engine == "both" and reason == "quarantined"
    table = [
        {
            "word": word,
            "studies": use.studies,
            "hiding": use.hiding,
            "example": WITHHELD if options.withheld else use.example[2],
        }
        for word, use in uses.items()
        if not options.withheld or (len(use.subjects) >= options.least_subjects and not use.only_as_name)
    ]
    order = pl.DataFrame(table, schema=schema(WORDS)).sort(["studies", "word"], descending=[True, False])
    write_table(words, order, WORDS)
    rows = outcome_summary.outcome_rows(outcomes)
    rows = [row | {"handed_over": num_handed_over[row["outcome"], row["form"]]} for row in rows]
    write_table(reading, pl.DataFrame(rows, schema=schema(READING)), READING)
    _log_summary(rows, len(uses), reading, options)


def _is_like_a_name(word: str, sentence: str) -> bool:
    """True if a word stands inside its sentence with a capital, as names do; False in a sentence in capitals."""
    match = re.search(rf"(?<!\w){re.escape(word)}", sentence, re.IGNORECASE)
    return match is not None and match.start() > 0 and sentence[match.start()].isupper() and not sentence.isupper()


def _log_summary(rows: list[dict], words: int, reading: str, options: SummaryOptions) -> None:
    total = sum(row["studies"] for row in rows)
    lost = sum(row["studies"] for row in rows if row["outcome"] not in outcome_summary.MEANINGS)
    every = f"all of {total} studies have a usable report" if total else "no study has come this far"
    sentence = outcome_summary.summarize_outcomes(rows) or f"reports: {every}"
    level = logging.WARNING if lost > NOTHING_SHARE * total else logging.INFO
    log.log(level, "%s (%s)", sentence, reading)
    if forms := outcome_summary.summarize_forms(rows):
        log.info("reports: %s", forms)
    if options.engine == "both":
        num_handed_over = sum(row["handed_over"] for row in rows)
        log.info(
            "reports: the rules handed over %d of %d reports to the language model, %.0f per 1,000",
            num_handed_over,
            total,
            1000 * num_handed_over / max(1, total),
        )
    if options.engine != "vllm":
        log.info(
            "reports: %s not understood (unknown_words.tsv beside it)", count_phrase(words, "word was", "words were")
        )
