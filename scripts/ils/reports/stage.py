"""The reports stage: one line a study with the section used, its sentences and its tuples."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import polars as pl

from ils.core.ledger import Ledger
from ils.core.places import RESOURCES
from ils.core.run import UserError, progress
from ils.core.store import read_table, write_lines
from ils.reports import engine, reading, schema, sentences
from ils.reports.rules import lexicon as rules_lexicon
from ils.reports.rules import statements

RESOURCE_FILES = ("lexicon",)
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
class _Reader:
    """Everything that turns a study's row into its line."""

    options: Options
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
    **files: str,
) -> None:
    """Structure the reports of one cohort shard.

    Writes ``output`` (JSON Lines, one study a line, by study_id) and ``excluded`` (a row for each image of a study
    without a usable report). ``files``: what the engine's ``INPUTS`` name. ``threads`` is not used: one core reads
    hundreds of reports a second. Raises UserError for an unknown engine or value of an option.
    """
    del threads
    if options.effusion_without_side not in EFFUSION:
        raise UserError(
            f"reports.effusion_without_side: {options.effusion_without_side!r} is unknown, "
            f"choose one of {', '.join(EFFUSION)}"
        )
    folder = RESOURCES / RESOURCE_FILES[0]
    settings = engine.EngineOptions(str(folder), options.effusion_without_side, files)
    reader = _Reader(
        options=options,
        lexicon=rules_lexicon.load(str(folder)),
        structure=engine.load(options.engine, settings),
        plain=engine.load("rules", settings),
        digests={"code": str(attrs.get("code_digest", "")), "lexicon": rules_lexicon.digest(folder)},
    )
    rows = read_table(cohort).sort("study_id", "rank", "image_id")
    ledger = Ledger("reports")
    write_lines(output, _lines(rows, reader, ledger), checked=True)
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
    section = reading.read(row, reader.options.section_overrides)
    if not isinstance(section, reading.Section):
        return section
    texts = section.sentences
    try:
        tuples = _tuples(section.spans, texts, reader.structure)
    except schema.Quarantined as quarantined:
        return "quarantined", str(quarantined)
    if reader.options.engine != "rules":
        problems = schema.problems(tuples, len(texts))
        if problems:
            return "quarantined", "; ".join(problems[:3])
    others = _plainly(section.beside[1], reader) if section.beside else []
    neighbours = _one_neighbour([*tuples, *others])
    asked = statements.asked(texts, tuples, reader.lexicon)
    return {
        "study_id": row["study_id"],
        "subject_id": row["subject_id"],
        "section_name": section.name,
        "section_text": section.text,
        "sentences": texts,
        "tuples": tuples,
        "other_section": section.beside[0] if section.beside else None,
        "other_tuples": others,
        "related": statements.in_order([*neighbours, *asked]),
        "comparison_only": statements.comparison_only(texts, tuples, reader.lexicon),
        "mentions_lungs": statements.mentions_lungs(texts, tuples, reader.lexicon),
        "engine": reader.options.engine,
        "digests": {"text": hashlib.blake2b(section.text.encode(), digest_size=8).hexdigest(), **reader.digests},
    }


def _one_neighbour(tuples: list[dict]) -> list[str]:
    """Leave each tuple the first of its neighbouring lesion types; return the further ones, which stand in the line."""
    further: list[str] = []
    for item in tuples:
        if isinstance(item["related"], list):
            first, *rest = item["related"]
            item["related"] = first
            further += rest
    return further


def _plainly(text: str, reader: _Reader) -> list[dict]:
    """Return the rules engine's tuples of the section that is not used: it only blocks and vetoes (section 6)."""
    spans = sentences.split(text)
    return _tuples(spans, [text[start:end] for start, end in spans], reader.plain)


def _tuples(spans: list[tuple[int, int]], texts: list[str], structure: Callable[[list[str]], list[dict]]) -> list[dict]:
    """Return an engine's tuples, their spans in characters of the section."""
    tuples = structure(texts)
    for item in tuples:
        offset = spans[item["sentence_index"] - 1][0] if 0 < item["sentence_index"] <= len(spans) else 0
        item["span"] = [position + offset for position in item["span"]]
    return tuples
