"""The reports stage. It writes one JSON line per study with the section read, its sentences and its findings."""

import hashlib
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import polars as pl

from cxr.base.jobs import log, progress
from cxr.base.ledger import Ledger
from cxr.base.settings import key
from cxr.base.source_files import state_row, write_states
from cxr.base.tables import read_table, write_lines
from cxr.language.reports import corrections, engine, hand_over, language, reading, schema, self_test, witnesses
from cxr.language.reports.rules import statements
from cxr.language.reports.rules.lexicon import digest_lexicon
from cxr.language.reports.sentences import split_sentences
from cxr.language.reports.settings import NOTHING_SHARE, ReadingSettings
from cxr.language.reports.vocabulary import load_substance, load_vocabulary

RULES, MODEL, BOTH = "rules", "vllm", "both"
"""Names of the engines. The engine ``rules`` reads only English, with the words of the lexicon."""
NOTHING = "no_report", "the text does not describe the chest"


class ReportsOptions(ReadingSettings):
    """Settings of the stage and the options that the workflow adds. ``sections`` is ``mimic`` or ``tolerant``."""

    scrub: bool = key(
        True,
        "Whether to replace names, numbers and dates that identify people with invented ones, and to remove signatures "
        "and markup (cxr.language.reports.privacy).",
    )


@dataclass(frozen=True)
class _Reader:
    """The engines and options with which a study is read. ``structures`` is {engine: function that extracts findings}.
    The engine ``options.engine`` reads every report. For the engine ``both``, this is ``rules``, and ``structures``
    also has the language model (``vllm``), which reads the reports that the rules engine hands over."""

    options: ReportsOptions
    structures: dict[str, engine.Structure]
    digests: dict[str, str]


def run_shard(
    *,
    cohort: str,
    output: str,
    excluded: str,
    options: ReportsOptions,
    attrs: dict,
    threads: int = 1,
    files_read: str | None = None,
    **files: str,
) -> None:
    """Extract the findings from the reports of one cohort shard.

    Write ``output`` (JSON Lines, one line per study, sorted by study_id) and ``excluded`` (one row for each image of a
    study without a usable report). Write the sizes, times and checksums of the report files to the table
    ``files_read``, if given. ``files`` is {key of the engine's ``INPUTS``: path}. ``attrs`` has the ``code_digest``.
    ``threads`` is ignored, because one core is fast enough. Raises UserError for an unknown engine.
    """
    del threads
    reader = make_reader(options, str(attrs.get("code_digest", "")), **files)
    self_test.check_engine(reader.structures[RULES])
    rows = read_table(cohort).sort("study_id", "rank", "image_id")
    ledger = Ledger("reports")
    states: list[tuple] = []
    write_lines(output, _lines(rows, reader, ledger, states), checked=True)
    ledger.finish(excluded, rows["image_id"])
    if files_read:
        write_states(files_read, states)


def make_reader(options: ReportsOptions, code_digest: str = "", **files: str) -> _Reader:
    """Load the engines and return the reader for :func:`study_line`. ``files``: {key of the engine's ``INPUTS``: path}.
    ``code_digest`` (of the stage's code) is written into each output line. Raises UserError for an unknown engine."""
    settings = engine.EngineOptions(options.effusion_without_side, files)
    structures = {name: engine.load_engine(name, settings) for name in (options.engine, RULES)}
    if BOTH in structures:
        structures[MODEL], options = structures.pop(BOTH), replace(options, engine=RULES)
    digests = {"code": code_digest, "lexicon": digest_lexicon(), "witnesses": witnesses.digest_words()}
    return _Reader(options, structures, digests)


def _lines(rows: pl.DataFrame, reader: _Reader, ledger: Ledger, states: list[tuple]) -> Iterator[dict]:
    studies = rows.group_by("study_id", maintain_order=True)
    outcomes: Counter[str] = Counter()
    num_corrected = 0
    for (study_id,), images in progress(studies, rows["study_id"].n_unique(), "reports"):
        row = reading.report_row(images.to_dicts())
        if path := reading.report_file(row):
            states.append(state_row(study_id, path))
        section = reading.read_section(row, reader.options)
        is_used = isinstance(section, reading.Section)
        num_corrected += section.corrected if is_used else reading.CORRECTED in section[1]
        line = read_study(row, section, reader)
        for image_id in images["image_id"]:
            if isinstance(line, dict):
                ledger.accept(image_id)
            else:
                ledger.exclude(image_id, study_id, *line)
        if isinstance(line, dict):
            outcomes["findings" if line["tuples"] else "no findings"] += 1
            yield line
        else:
            outcomes[line[0]] += 1
    used = outcomes.pop("findings", 0), outcomes.pop("no findings", 0)
    lost = outcomes.total()
    reason_counts = ", ".join(f"{reason} {number}" for reason, number in sorted(outcomes.items()))
    level = logging.WARNING if lost > NOTHING_SHARE * (sum(used) + lost) else logging.INFO
    message = "reports: %d studies with findings, %d read without a finding, %d without a usable report%s"
    log.log(level, message, *used, lost, f" ({reason_counts})" if reason_counts else "")
    if num_corrected:
        log.info("reports: in %d studies %s (reports.section_overrides)", num_corrected, reading.CORRECTED)


def study_line(row: dict, reader: _Reader) -> dict | tuple[str, str]:
    """Return the output line of the study ``row`` of the cohort, or (reason, detail) if its report cannot be used."""
    return read_study(row, reading.read_section(row, reader.options), reader)


def read_study(row: dict, section: reading.Section | tuple[str, str], reader: _Reader) -> dict | tuple[str, str]:
    """Return the output line of the study ``row``, or (reason, detail) if its report cannot be used. With the engine
    ``both``, the language model reads the report if the rules engine hands it over. ``section``: section to read."""
    outcome = section_line(row, section, reader)
    if reader.options.engine != RULES or MODEL not in reader.structures:
        return outcome
    handed_over = hand_over.find_hand_over(row, section, outcome, reader.options)
    if handed_over is None:
        return outcome
    line = _line(row, handed_over.section, replace(reader, options=replace(reader.options, engine=MODEL)))
    if not isinstance(line, dict):
        return "quarantined", f"handed over to the language model ({handed_over.reason}): {line[1]}"
    return hand_over.limit_denials(line, handed_over)


def find_hand_over(row: dict, reader: _Reader) -> hand_over.HandOver | None:
    """Return the part of a study's report that a language model must read, or None if it need not read the report.
    ``reader`` must be that of the engine ``rules`` or ``both``, with which the rules engine reads every report."""
    section = reading.read_section(row, reader.options)
    return hand_over.find_hand_over(row, section, section_line(row, section, reader), reader.options)


def section_line(row: dict, section: reading.Section | tuple[str, str], reader: _Reader) -> dict | tuple[str, str]:
    """Return the output line of one study from ``section``, or (reason, detail) if the section cannot be used."""
    if not isinstance(section, reading.Section):
        return section
    line = _line(row, section, reader)
    second_section = section.second_section
    if line == NOTHING and second_section and section.name == "findings":
        # "FINDINGS: PA and lateral views." does not describe the chest, so the impression is used
        return _line(row, second_section, reader)
    return line


def _line(row: dict, section: reading.Section, reader: _Reader) -> dict | tuple[str, str]:
    texts, second_section, rules = section.sentences, section.second_section, reader.structures[RULES]
    english_only, vocabulary = reader.options.engine == RULES, load_vocabulary()
    if english_only:
        languages = language.load_languages(load_vocabulary(misspellings=False))
        # the other section counts, too, because its findings can prevent denials
        for part in filter(None, (section, second_section)):
            if foreign_language := language.detect_foreign(part.sentences, languages, vocabulary):
                return "not_english", f"{part.name}: {foreign_language}"
    try:
        tuples = _tuples(section, reader.structures[reader.options.engine])
    except schema.Quarantined as quarantined:
        return "quarantined", str(quarantined)
    unknown = vocabulary.unknown(texts) if english_only else []
    if len(tuples) > reader.options.max_findings:
        return "too_long", f"{len(tuples)} findings; reports.max_findings is {reader.options.max_findings}"
    if not english_only and (problems := schema.problems(tuples, len(texts))):
        return "quarantined", "; ".join(problems[:3])
    hides_finding = any(row["finding"] for row in unknown)
    if english_only and not tuples and not hides_finding and load_substance().lacks(texts):
        return NOTHING
    addendum = _sentences(section.addendum)
    if addendum and (lesion := corrections.find_contradiction(tuples, rules(addendum))):
        return "corrected_report", f"the addendum contradicts the report about {lesion}"
    # tuples of the second section can only prevent that the dataset denies a lesion
    other_tuples = _tuples(second_section, rules) if second_section else []
    other_texts = second_section.sentences if second_section else []
    neighbours = []
    for item in (*tuples, *other_tuples):  # a tuple keeps its first related type, and the line gets all others
        if isinstance(item["related"], list):
            neighbours += item["related"][1:]
            item["related"] = item["related"][0]
    all_texts, all_tuples = [texts, other_texts, _sentences(section.further_text)], [tuples, other_tuples, []]
    report_witnesses = witnesses.load_second_reader().read(all_texts, all_tuples)
    asked_lesions = statements.find_asked_lesions(texts, tuples)
    return {
        "study_id": row["study_id"],
        "subject_id": row["subject_id"],
        "section_name": section.name,
        "section_text": section.text,
        "sentences": texts,
        "tuples": tuples,
        "other_section": second_section.name if second_section else None,
        "other_tuples": other_tuples,
        "related": statements.sort_lesions([*neighbours, *asked_lesions]),
        "comparison_only": statements.comparison_only(texts, tuples),
        "mentions_lungs": statements.mentions_lungs(texts, tuples),
        "unknown_words": unknown,
        "unknown_share": vocabulary.share(texts, unknown),
        "written": list(section.written),
        "witnesses": {lesion: vars(witness) for lesion, witness in report_witnesses.items()},
        "removed": dict(section.removed),
        "engine": reader.options.engine,
        "handed_over": None,
        "digests": {"text": hashlib.blake2b(section.text.encode(), digest_size=8).hexdigest(), **reader.digests},
    }


def _sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in split_sentences(text)]


def _tuples(section: reading.Section, structure: engine.Structure) -> list[dict]:
    """Return an engine's finding tuples of a section. ``span`` is in characters of the section, not of the sentence."""
    tuples, spans = structure(section.sentences), section.spans
    for item in tuples:
        offset = spans[item["sentence_index"] - 1][0] if 0 < item["sentence_index"] <= len(spans) else 0
        item["span"] = [position + offset for position in item["span"]]
    return tuples
