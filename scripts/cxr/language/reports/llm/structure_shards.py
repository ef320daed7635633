"""Extraction of findings from report sections by a language model (Figure 9). Each distinct text is sent once.

The output of a shard has one JSON line per distinct text, sorted by ``text``: text (the text's key, see
:func:`cxr.llm.replies.texts_key`), findings (a list, or null without a usable answer), problem (null, or the reason why
there is no usable answer), raw (the last answer if it was unusable), attempts, model.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cxr.base.source_files import state_row, write_states
from cxr.base.tables import read_table, write_lines
from cxr.language.reports import read_reports, reading
from cxr.language.reports.llm import questions
from cxr.llm.answer_cache import answer_digest, cache_replies
from cxr.llm.asking import Answer, Generate, Question, ask_each
from cxr.llm.client import connect_lazily
from cxr.llm.options import ModelOptions
from cxr.llm.replies import texts_key

log = logging.getLogger("cxr")
ANSWERS, SEVERAL_SHARDS = "answers", "all"
"""Name of the folder with cached answers, and of its subfolder for jobs with several shards."""


@dataclass(frozen=True)
class StructuringOptions(ModelOptions):
    """Options of the language model, and of the reading of reports (``sections`` to ``max_characters``).

    ``asking`` is a digest of everything that affects an answer, except for the text and the model. With the engine
    ``both``, ``rules_first`` has all options of the reports stage, and the model reads only the reports that the rules
    engine hands over. With the engine ``vllm``, it is None.
    """

    sections: str
    section_overrides: bool
    scrub: bool
    max_characters: int
    asking: str = ""
    rules_first: Mapping[str, Any] | None = None


def run(
    *,
    cohort: str | Sequence[str],
    output: str | Sequence[str],
    options: StructuringOptions,
    execution: dict,
    compute: dict | None = None,
    files_read: str | None = None,
) -> None:
    """Extract the findings of every study of one or several cohort shards with the model.

    ``cohort`` and ``output`` are paths in the same order. The model is loaded once, and a text in several shards is
    sent once. Answers are cached in the folder ``answers`` next to the outputs (:mod:`cxr.llm.answer_cache`), so that a
    rerun sends only changed texts. The sizes, times and checksums of the report files are written to ``files_read``, if
    given. Raises UserError if the model cannot be reached, and Broken if none of its answers is usable.
    """
    cohorts, outputs = ([paths] if isinstance(paths, str) else list(paths) for paths in (cohort, output))
    states: list[tuple] = []
    texts_by_shard = [read_texts(path, options, states) for path in cohorts]
    texts = dict(sorted((key, text) for shard in texts_by_shard for key, text in shard.items()))
    log.info("structuring: %d distinct texts of %d shards", len(texts), len(cohorts))
    folder = Path(outputs[0]).parent / ANSWERS / (SEVERAL_SHARDS if len(outputs) > 1 else Path(outputs[0]).stem)
    model = connect_lazily(options, execution)
    generate = cache_replies(model, folder=folder, digest=answer_digest(options, options.asking))
    answers = structure_texts(texts, options, generate, compute)
    lines = {line["text"]: line for line in answers}
    for path, shard in zip(outputs, texts_by_shard, strict=True):
        write_lines(path, [lines[key] for key in sorted(shard)], checked=True)
    if files_read:
        write_states(files_read, states)


def structure_texts(
    texts: dict[str, list[str]], options: ModelOptions, generate: Generate, compute: dict | None = None
) -> list[dict]:
    """Return the output line of each text. ``texts`` is {key: sentences}, with keys of
    :func:`cxr.llm.replies.texts_key`."""
    question_by_key: dict[str, Question | Answer] = {
        key: questions.refuse_orders("\n".join(sentences), questions.structuring_question(sentences))
        if sentences
        else Answer(value={"findings": []})
        for key, sentences in texts.items()
    }
    lines = [
        {
            "text": key,
            "findings": answer.value["findings"] if answer.value else None,
            "problem": answer.problem,
            "raw": answer.raw,
            "attempts": answer.attempts,
            "model": options.name,
        }
        for key, answer in ask_each(question_by_key, generate, options, compute).items()
    ]
    log.info("structuring: %d answers, %d unusable", len(lines), sum(line["problem"] is not None for line in lines))
    return lines


def read_texts(cohort: str, options: StructuringOptions, states: list[tuple]) -> dict[str, list[str]]:
    """Return {key: sentences} of a shard's distinct texts. Append a row with the size, time and checksum of each report
    file to ``states``."""
    images = read_table(cohort).sort("study_id", "rank", "image_id")
    rows = [reading.report_row(study.to_dicts()) for _, study in images.group_by("study_id", maintain_order=True)]
    states += [state_row(row["study_id"], path) for row in rows if (path := reading.report_file(row))]
    sections = list(_find_sections(rows, options))
    if options.rules_first is not None:
        log.info("structuring: the rules hand over %d of %d reports", len(sections), len(rows))
    return {texts_key(section.sentences): section.sentences for section in sections}


def _find_sections(rows: Sequence[dict], options: StructuringOptions) -> Iterator[reading.Section]:
    """Yield the sections that the model reads, of all reports or only of those that the rules engine hands over."""
    if options.rules_first is None:
        readings = (reading.read_section(row, options) for row in rows)
        yield from (section for section in readings if isinstance(section, reading.Section))
        return
    rules_options = dict(options.rules_first) | {"engine": read_reports.RULES}
    reader = read_reports.make_reader(read_reports.ReportsOptions(**rules_options))
    for row in rows:
        if hand_over := read_reports.find_hand_over(row, reader):
            yield hand_over.section
