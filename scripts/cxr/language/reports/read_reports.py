"""The reports stage: writes one line per study with the chosen section, its sentences and its tuples."""

import hashlib
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import polars as pl

from cxr.base.jobs import log, progress
from cxr.base.ledger import Ledger
from cxr.base.paths import RESOURCES
from cxr.base.settings import key
from cxr.base.source_files import state_row, write_states
from cxr.base.tables import read_table, write_lines
from cxr.language.reports import corrections, engine, hand_over, language, reading, schema, self_test, witnesses
from cxr.language.reports.rules import lexicon as rules_lexicon
from cxr.language.reports.rules import statements
from cxr.language.reports.sentences import split_sentences
from cxr.language.reports.settings import NOTHING_SHARE, ReadingSettings
from cxr.language.reports.vocabulary import Substance, Vocabulary, load_substance, load_vocabulary

RESOURCE_FILES = ("lexicon", "reading")
RULES, MODEL, BOTH = "rules", "vllm", "both"
"""Engines. ``rules`` reads only English, with the words of the lexicon."""
NOTHING = "no_report", "the text says nothing of the chest"


class ReportsOptions(ReadingSettings):
    """Settings of the stage, with what the plan adds; ``sections`` is ``mimic`` or ``tolerant``."""

    scrub: bool = key(
        True,
        "Whether identifiers in the text are replaced by surrogates, and signatures and markup removed "
        "(cxr.language.reports.privacy).",
    )


@dataclass(frozen=True)
class _Reader:
    """Converts a study's row to its line."""

    options: ReportsOptions
    lexicon: rules_lexicon.Lexicon
    structure: engine.Structure
    plain: engine.Structure
    model: engine.Structure | None  # Reads what the rules hand over (engine both)
    digests: dict[str, str]
    second_reader: witnesses.SecondReader
    vocabulary: Vocabulary
    languages: tuple[language.Language, ...]
    substance: Substance

    @property
    def english_only(self) -> bool:
        return self.options.engine == RULES


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
    """Structure the reports of one cohort shard.

    Writes ``output`` (JSON Lines, one line per study, sorted by study_id) and ``excluded`` (one row for each image of a
    study without a usable report). ``files_read``: table for the states of the report files. ``files``: those in the
    engine's ``INPUTS``. ``threads`` is not used: one core reads hundreds of reports per second. Raises UserError for an
    unknown engine.
    """
    del threads
    reader = make_reader(options, str(attrs.get("code_digest", "")), **files)
    self_test.check_engine(reader.plain, RESOURCES / RESOURCE_FILES[1] / "self_test.yaml")
    rows = read_table(cohort).sort("study_id", "rank", "image_id")
    ledger = Ledger("reports")
    states: list[tuple] = []
    write_lines(output, _lines(rows, reader, ledger, states), checked=True)
    ledger.finish(excluded, rows["image_id"])
    if files_read:
        write_states(files_read, states)


def make_reader(options: ReportsOptions, code_digest: str = "", **files: str) -> _Reader:
    """Return the reader for :func:`study_line`. Raises UserError for an unknown engine."""
    folder, words = (RESOURCES / name for name in RESOURCE_FILES)
    report_vocabulary = load_vocabulary(str(words), str(folder))
    settings = engine.EngineOptions(str(folder), options.effusion_without_side, files)
    model = engine.load_engine(BOTH, settings) if options.engine == BOTH else None
    options = replace(options, engine=RULES) if model else options
    return _Reader(
        options=options,
        lexicon=rules_lexicon.load_lexicon(str(folder)),
        structure=engine.load_engine(options.engine, settings),
        plain=engine.load_engine(RULES, settings),
        model=model,
        digests={
            "code": code_digest,
            "lexicon": rules_lexicon.digest_lexicon(folder),
            "witnesses": witnesses.digest_words(),
        },
        second_reader=witnesses.load_second_reader(),
        vocabulary=report_vocabulary,
        languages=language.load_languages(
            str(words / "languages.yaml"), load_vocabulary(str(words), str(folder), misspellings=False)
        ),
        substance=load_substance(str(words / "no_report.yaml")),
    )


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
    _log_outcomes(outcomes)
    if num_corrected:
        log.info("reports: in %d studies %s (reports.section_overrides)", num_corrected, reading.CORRECTED)


def _log_outcomes(outcomes: Counter) -> None:
    """Log the number of studies per outcome; warn if too many have no usable report."""
    used = outcomes.pop("findings", 0), outcomes.pop("no findings", 0)
    lost = outcomes.total()
    reason_counts = ", ".join(f"{reason} {number}" for reason, number in sorted(outcomes.items()))
    log.log(
        logging.WARNING if lost > NOTHING_SHARE * (sum(used) + lost) else logging.INFO,
        "reports: %d studies with findings, %d read without a finding, %d without a usable report%s",
        *used,
        lost,
        f" ({reason_counts})" if reason_counts else "",
    )


def study_line(row: dict, reader: _Reader) -> dict | tuple[str, str]:
    """Return the line of one study, or (reason, detail) if its report cannot be used."""
    return read_study(row, reading.read_section(row, reader.options), reader)


def read_study(row: dict, section: reading.Section | tuple[str, str], reader: _Reader) -> dict | tuple[str, str]:
    """Return the line of one study, by the language model if the rules hand it over; or (reason, detail)."""
    outcome = section_line(row, section, reader)
    if reader.model is None:
        return outcome
    handed_over = hand_over.find_hand_over(row, section, outcome, reader.options)
    if handed_over is None:
        return outcome
    model_reader = replace(reader, options=replace(reader.options, engine=MODEL), structure=reader.model)
    line = _line(row, handed_over.section, model_reader)
    if not isinstance(line, dict):
        return "quarantined", f"handed over ({handed_over.reason}): {line[1]}"
    return hand_over.limit_denials(line, handed_over)


def find_hand_over(row: dict, reader: _Reader) -> hand_over.HandOver | None:
    """Return what a study hands over to a language model, None if nothing. ``reader``: of the engine rules."""
    section = reading.read_section(row, reader.options)
    return hand_over.find_hand_over(row, section, section_line(row, section, reader), reader.options)


def section_line(row: dict, section: reading.Section | tuple[str, str], reader: _Reader) -> dict | tuple[str, str]:
    """Return the line of one study from its section, or (reason, detail) if that cannot be used."""
    if not isinstance(section, reading.Section):
        return section
    line = _line(row, section, reader)
    second_section = section.second_section
    if line == NOTHING and second_section and section.name == "findings":
        # "FINDINGS: PA and lateral views." holds no finding, so the impression is used
        return _line(row, second_section, reader)
    return line


def _line(row: dict, section: reading.Section, reader: _Reader) -> dict | tuple[str, str]:
    texts, second_section = section.sentences, section.second_section
    if reader.english_only and (detail := _foreign_section(section, reader)):
        return "not_english", detail
    try:
        tuples = _tuples(section, reader.structure)
    except schema.Quarantined as quarantined:
        return "quarantined", str(quarantined)
    unknown = reader.vocabulary.unknown(texts) if reader.english_only else []
    if problem := _problem(tuples, texts, unknown, reader):
        return problem
    addendum = [section.addendum[start:end] for start, end in split_sentences(section.addendum)]
    if addendum and (lesion := corrections.find_contradiction(tuples, reader.plain(addendum))):
        return "corrected_report", f"its addendum contradicts it about {lesion}"
    # the second section only blocks and vetoes
    other_tuples = _tuples(second_section, reader.plain) if second_section else []
    neighbours = _pop_further_neighbours([*tuples, *other_tuples])
    other_texts = second_section.sentences if second_section else []
    other_sentences = (
        [section.further_text[start:end] for start, end in split_sentences(section.further_text)]
        if section.further_text
        else []
    )
    report_witnesses = reader.second_reader.read([texts, other_texts, other_sentences], [tuples, other_tuples, []])
    asked_lesions = statements.find_asked_lesions(texts, tuples, reader.lexicon)
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
        "comparison_only": statements.comparison_only(texts, tuples, reader.lexicon),
        "mentions_lungs": statements.mentions_lungs(texts, tuples, reader.lexicon),
        "unknown_words": unknown,
        "unknown_share": reader.vocabulary.share(texts, unknown),
        "written": list(section.written),
        "witnesses": {lesion: vars(witness) for lesion, witness in report_witnesses.items()},
        "removed": dict(section.removed),
        "engine": reader.options.engine,
        "handed_over": None,
        "digests": {"text": hashlib.blake2b(section.text.encode(), digest_size=8).hexdigest(), **reader.digests},
    }


def _foreign_section(section: reading.Section, reader: _Reader) -> str | None:
    """Return which section is not English, and its language. The other section counts too, because it can veto."""
    for part in filter(None, (section, section.second_section)):
        if foreign_language := language.detect_foreign(part.sentences, reader.languages, reader.vocabulary):
            return f"{part.name}: {foreign_language}"
    return None


def _problem(tuples: list[dict], texts: list[str], unknown: list[dict], reader: _Reader) -> tuple[str, str] | None:
    """Return (reason, detail) if an engine's result for a text cannot be used."""
    most = reader.options.max_findings
    if len(tuples) > most:
        return "too_long", f"{len(tuples)} findings; reports.max_findings is {most}"
    if not reader.english_only:
        problems = schema.problems(tuples, len(texts))
        return ("quarantined", "; ".join(problems[:3])) if problems else None
    hides = any(row["finding"] for row in unknown)
    if not tuples and not hides and reader.substance.lacks(texts):
        return NOTHING
    return None


def _pop_further_neighbours(tuples: list[dict]) -> list[str]:
    """Keep the first neighbouring lesion type of each tuple; return the others, which go into the line."""
    further: list[str] = []
    for item in tuples:
        if isinstance(item["related"], list):
            first, *further_types = item["related"]
            item["related"] = first
            further += further_types
    return further


def _tuples(section: reading.Section, structure: engine.Structure) -> list[dict]:
    """Return an engine's tuples, with spans in characters of the section."""
    tuples, spans = structure(section.sentences), section.spans
    for item in tuples:
        offset = spans[item["sentence_index"] - 1][0] if 0 < item["sentence_index"] <= len(spans) else 0
        item["span"] = [position + offset for position in item["span"]]
    return tuples
