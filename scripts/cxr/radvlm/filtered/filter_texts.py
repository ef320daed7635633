"""The stage radvlm_filtered: rewrite the reports and phrases of a source as single-image text.

Writes JSON Lines. ``texts``, one per study in the source's order: source, study_id, subject_id, split, image_ids,
section, sentences (text, null if dropped; from: its number in the section, from 1; action; reasons), text, engine,
digests. ``phrases``, one per phrase with boxes: image_id, group, phrase, text, action, reasons, engine.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path

import polars as pl

from cxr.base.columns import Column, Columns, schema
from cxr.base.jobs import log
from cxr.base.tables import read_lines, read_table, write_excluded, write_lines, write_table
from cxr.radvlm.filtered.engine import ACTIONS, KEPT, Engine, FilteredText, FilterOptions, Sentence, load_engine
from cxr.radvlm.filtered.rules import SentenceFilter, load_sentence_filter
from cxr.radvlm.statements import read_digests, split_batches, split_sentences

RESOURCE_FILES = ("radvlm/filter.yaml", "lexicon")
STAGE = "radvlm_filtered"
BATCH_SIZE = 20000
"""Texts passed to an engine at once: one batch of a language model; bounds memory."""
PHRASE = "phrase"
MIN_WORDS = 3
"""Shorter remainders of a changed text that name no finding are excluded, in words."""
AGREEMENT: Columns = {
    "action": Column(pl.String, "What the engine did with a sentence: kept, rewritten or dropped."),
    "rules": Column(pl.String, "What the engine rules did with it."),
    "sentences": Column(pl.Int64, "Sentences with this pair."),
    "same_text": Column(pl.Int64, "Of these, sentences of which both made the same text."),
}


def run(
    *, texts: Sequence[str], facts: Sequence[str], texts_out: Sequence[str], phrases_out: Sequence[str],
    excluded: Sequence[str], agreement: Sequence[str], options: FilterOptions, execution: Mapping, attrs: Mapping,
) -> None:  # fmt: skip
    """Filter the texts and phrases of sources, one path per source; a language model is loaded once.

    Its replies are cached, so an interrupted job can resume. Raises UserError if the model cannot be reached.
    """
    code, folder = str(attrs.get("code_digest", "")), Path(texts_out[0]).parent
    answers = folder.parent / "answers/all" if len(texts_out) > 1 else folder / "answers"
    engine = load_engine(options, dict(execution) | {"answers": str(answers), "code": code})
    rules, digests = load_sentence_filter(options), read_digests(code, patterns=RESOURCE_FILES[0])
    for texts_path, facts_path, *outputs in zip(texts, facts, texts_out, phrases_out, excluded, agreement, strict=True):
        work = _TextFilter(engine, rules, options, digests)
        write_lines(outputs[0], work.texts(read_lines(texts_path)), checked=True)
        write_lines(outputs[1], work.phrases(_phrase_rows(read_table(facts_path))), checked=True)
        write_excluded(outputs[2], sorted(work.excluded, key=lambda row: (row["image_id"] or "", row["detail"])))
        write_table(outputs[3], agreement_table(work.pairs), AGREEMENT)
        reasons = sorted(Counter(row["reason"] for row in work.excluded).items())
        reasons_text = ", ".join(f"{name} {number}" for name, number in reasons)
        log.info("radvlm_filtered: excluded of %s: %s", texts_path, reasons_text or 0)


def agreement_table(pairs: Mapping[tuple[str, str, bool], int]) -> pl.DataFrame:
    """Return the agreement table of {(action, action of the rules, same text): number}; empty for one engine."""
    rows = []
    for ours, theirs in product(ACTIONS, ACTIONS):
        same, different = (pairs.get((ours, theirs, is_same), 0) for is_same in (True, False))
        rows += [(ours, theirs, same + different, same)] if same + different else []
    return pl.DataFrame(rows, schema=schema(AGREEMENT), orient="row")


class _TextFilter:
    """Runs an engine on lines, and records exclusions and the agreement of engines."""

    def __init__(self, engine: Engine, rules: SentenceFilter, options: FilterOptions, digests: dict):
        self.engine, self.rules, self.options, self.digests = engine, rules, options, digests
        self.excluded: list[dict] = []
        self.pairs: Counter[tuple[str, str, bool]] = Counter()

    def texts(self, lines: Iterator[dict]) -> Iterator[dict]:
        """Yield one line per study with remaining text."""
        for batch in split_batches(lines, BATCH_SIZE):
            sections = [split_sentences(line["text"]) for line in batch]
            for line, filtered_text in zip(batch, self._filtered(sections), strict=True):
                problem = self._problem(filtered_text)
                if problem is None:
                    yield self._line(line, filtered_text)
                for image_id in line["image_ids"] if problem else ():
                    self._exclude(image_id, line["study_id"], *problem)

    def phrases(self, rows: Sequence[dict]) -> Iterator[dict]:
        """Yield one line per phrase with remaining text."""
        for batch in split_batches(rows, BATCH_SIZE):
            if self.options.phrases:
                filtered = self._filtered([[row["name"]] for row in batch])
            else:
                filtered = [FilteredText((Sentence(row["name"], KEPT),)) for row in batch]
            for row, filtered_text in zip(batch, filtered, strict=True):
                if problem := self._problem(filtered_text):
                    reason, detail = problem
                    self._exclude(row["image_id"], "", reason, ": ".join(filter(None, (PHRASE, detail))))
                    continue
                (sentence,) = filtered_text.sentences
                yield {
                    "image_id": row["image_id"], "group": row["group"], "phrase": row["name"],
                    "text": sentence.text, "action": sentence.action, "reasons": list(sentence.reasons),
                    "engine": self.engine.made_by,
                }  # fmt: skip

    def _filtered(self, sections: list[list[str]]) -> list[FilteredText]:
        filtered_texts = self.engine.filter(sections)
        if self.engine.second_filter is not None:
            for ours, theirs in zip(filtered_texts, self.engine.second_filter(sections), strict=True):
                for sentence, second in zip(ours.sentences, theirs.sentences, strict=not ours.problem):
                    self.pairs[sentence.action, second.action, sentence.text == second.text] += 1
        return filtered_texts

    def _problem(self, filtered_text: FilteredText) -> tuple[str, str] | None:
        """Return (reason, detail) of an unusable text, else None; unchanged texts are always usable."""
        if filtered_text.problem:
            return "quarantined", filtered_text.problem
        changed = any(sentence.action != KEPT for sentence in filtered_text.sentences)
        short = len(filtered_text.text.split()) < MIN_WORDS
        if not filtered_text.text or (changed and short and not self.rules.names(filtered_text.text)):
            return "nothing_left", ""
        return None

    def _exclude(self, image_id: str, study_id: str, reason: str, detail: str) -> None:
        row = {"image_id": image_id, "study_id": study_id, "stage": STAGE, "reason": reason, "detail": detail}
        self.excluded.append(row)

    def _line(self, line: Mapping, filtered_text: FilteredText) -> dict:
        column_names = ("source", "study_id", "subject_id", "split", "image_ids", "section")
        parts = [
            {"text": sentence.text, "from": number, "action": sentence.action, "reasons": list(sentence.reasons)}
            for number, sentence in enumerate(filtered_text.sentences, start=1)
        ]
        text_digest = hashlib.blake2b(line["text"].encode(), digest_size=8).hexdigest()
        content = {"sentences": parts, "text": filtered_text.text, "engine": self.engine.made_by}
        return {name: line[name] for name in column_names} | content | {"digests": {"text": text_digest} | self.digests}


def _phrase_rows(facts: pl.DataFrame) -> list[dict]:
    """Return one row per phrase, that is, per image and group."""
    phrase_facts = facts.filter(kind=PHRASE).unique(["image_id", "group"], keep="first", maintain_order=True)
    return phrase_facts.select("image_id", "group", "name").sort("image_id", "group").to_dicts()
