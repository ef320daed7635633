"""The reports stage: one line a study with the section used, its sentences and its tuples."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from ils.core.ledger import Ledger
from ils.core.provenance import RESOURCES
from ils.core.run import UserError, progress
from ils.core.store import read_table, write_lines
from ils.reports import engine, schema, sections
from ils.reports.rules import lexicon as rules_lexicon
from ils.reports.rules import sentences, statements

RESOURCE_FILES = ("lexicon", "sections.yaml")
EFFUSION = ("both_bases", "none")


@dataclass(frozen=True)
class Options:
    """Settings of the stage.

    engine: which engine structures the section (a package of ``ils.reports`` with ``load``).
    section_overrides: use the official code's hand-made sections of its 54 odd MIMIC-CXR studies.
    effusion_without_side: zone labels of an effusion whose side the text leaves out: ``both_bases`` or ``none``.
    """

    engine: str
    section_overrides: bool
    effusion_without_side: str


@dataclass(frozen=True)
class _EngineOptions:
    lexicon: str
    effusion_without_side: str


@dataclass(frozen=True)
class _Reader:
    """Everything that turns a study's row into its line."""

    options: Options
    rules: sections.Rules
    lexicon: rules_lexicon.Lexicon
    structure: Callable[[list[str]], list[dict]]
    plain: Callable[[list[str]], list[dict]]
    digests: dict[str, str]


def run_shard(
    *,
    cohort: str,
    output: str,
    excluded: str,
    options: Options,
    attrs: dict,
    threads: int = 1,
) -> None:
    """Structure the reports of one cohort shard.

    Writes ``output`` (JSON Lines, one study a line, by study_id) and ``excluded`` (a row for each image of a study
    without a usable report). ``threads`` is not used: one core reads hundreds of reports a second. Raises UserError for
    an unknown engine or value of an option.
    """
    del threads
    if options.effusion_without_side not in EFFUSION:
        raise UserError(
            f"reports.effusion_without_side: {options.effusion_without_side!r} is unknown, "
            f"choose one of {', '.join(EFFUSION)}"
        )
    folder, section_rules = (RESOURCES / name for name in RESOURCE_FILES)
    settings = _EngineOptions(str(folder), options.effusion_without_side)
    reader = _Reader(
        options=options,
        rules=sections.load_rules(str(section_rules)),
        lexicon=rules_lexicon.load(str(folder)),
        structure=engine.load(options.engine, settings),
        plain=engine.load("rules", settings),
        digests={"code": str(attrs.get("code_digest", "")), "lexicon": rules_lexicon.digest(folder)},
    )
    rows = read_table(cohort).sort("study_id", "rank", "image_id")
    ledger = Ledger("reports")
    write_lines(output, _lines(rows, reader, ledger))
    ledger.finish(excluded, rows["image_id"])


def _lines(rows: pl.DataFrame, reader: _Reader, ledger: Ledger) -> Iterator[dict]:
    studies = rows.group_by("study_id", maintain_order=True)
    for (study_id,), images in progress(studies, rows["study_id"].n_unique(), "reports"):
        line = study_line(images.row(0, named=True), reader)
        for image_id in images["image_id"]:
            if isinstance(line, dict):
                ledger.accept(image_id)
            else:
                ledger.exclude(image_id, study_id, *line)
        if isinstance(line, dict):
            yield line


def study_line(row: dict, reader: _Reader) -> dict | tuple[str, str]:
    """Return the line of one study, or (reason, detail) if its report cannot be used."""
    found = _sections_of(row, reader)
    if found is None:
        return "no_report", ""
    chosen = sections.choose(found)
    if chosen is None:
        return "empty_report", "no text in " + ", ".join(sections.SECTION_NAMES)
    name, text = chosen
    texts, tuples = _read(text, reader.structure)
    if reader.options.engine != "rules":
        problems = schema.problems(tuples, len(texts))
        if problems:
            return "quarantined", "; ".join(problems[:3])
    beside = sections.other(found, name)
    return {
        "study_id": row["study_id"],
        "subject_id": row["subject_id"],
        "section_name": name,
        "section_text": text,
        "sentences": texts,
        "tuples": tuples,
        "other_section": beside[0] if beside else None,
        "other_tuples": _read(beside[1], reader.plain)[1] if beside else [],
        "comparison_only": statements.comparison_only(texts, tuples, reader.lexicon),
        "mentions_lungs": statements.mentions_lungs(texts, tuples, reader.lexicon),
        "engine": reader.options.engine,
        "digests": {"text": hashlib.blake2b(text.encode(), digest_size=8).hexdigest(), **reader.digests},
    }


def _read(text: str, structure: Callable[[list[str]], list[dict]]) -> tuple[list[str], list[dict]]:
    """Return the sentences of a section and its tuples, their spans in characters of the section."""
    spans = sentences.split(text)
    texts = [text[start:end] for start, end in spans]
    tuples = structure(texts)
    for item in tuples:
        offset = spans[item["sentence_index"] - 1][0] if 0 < item["sentence_index"] <= len(spans) else 0
        item["span"] = [position + offset for position in item["span"]]
    return texts, tuples


def _sections_of(row: dict, reader: _Reader) -> dict[str, str] | None:
    """Return the sections of a study from its columns or its file, None if it has neither."""
    columns = {name: row.get(name) for name in ("findings", "impression")}
    if any((text or "").strip() for text in columns.values()):
        return {name: text.strip() for name, text in columns.items() if text}
    path = row.get("report_path")
    if path:
        text = _decode(Path(path))
        if text is None:
            return None
        by_hand = sections.override(text, row["study_id"], reader.rules) if reader.options.section_overrides else None
        return by_hand if by_hand is not None else sections.named(sections.split(text, reader.rules))
    return {} if any(text is not None for text in columns.values()) else None


def _decode(path: Path) -> str | None:
    """Read a report in UTF-8, else Latin-1; None if the file cannot be read."""
    try:
        data = path.read_bytes()
    except (OSError, ValueError):
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")
