"""The stage radvlm_filtered: edits the reports and phrases of each source so that they describe one image only.

It writes two files of JSON Lines. ``texts`` has one line per study, in the order of the source. Its fields are source,
study_id, subject_id, split, image_ids, section, sentences, text, engine and digests. Each of its sentences has text
(null if dropped), from (its number in the section, from 1), action and reasons. ``phrases`` has one line per phrase
with boxes. Its fields are image_id, group, phrase, text, action, reasons and engine.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl

from cxr.base.columns import Column, Columns
from cxr.base.jobs import log
from cxr.base.tables import read_lines, read_table, write_excluded, write_lines, write_rows
from cxr.radvlm.filtered.engine import ACTIONS, KEPT, Engine, FilteredText, FilterOptions, Sentence, load_engine
from cxr.radvlm.filtered.rules import SentenceFilter, load_sentence_filter
from cxr.radvlm.statements import read_digests, split_batches, split_sentences

RESOURCE_FILES = ("radvlm/filter.yaml", "lexicon")
STAGE = "radvlm_filtered"
BATCH_SIZE = 20000  # number of texts that an engine gets at once, which bounds the memory
PHRASE = "phrase"
COPIED_COLUMNS = ("source", "study_id", "subject_id", "split", "image_ids", "section")
MIN_WORDS = 3  # minimum number of words that an edited text needs if it names no finding
AGREEMENT: Columns = {
    "action": Column(pl.String, "Action of the engine on a sentence: kept, rewritten or dropped."),
    "rules": Column(pl.String, "Action of the engine rules on the same sentence."),
    "sentences": Column(pl.Int64, "Number of sentences with this pair of actions."),
    "same_text": Column(pl.Int64, "Number of these sentences for which both engines return the same text."),
}


def run(
    *, texts: Sequence[str], facts: Sequence[str], texts_out: Sequence[str], phrases_out: Sequence[str],
    excluded: Sequence[str], agreement: Sequence[str], options: FilterOptions, execution: Mapping, attrs: Mapping,
) -> None:  # fmt: skip
    """Edit the texts and phrases of all sources and write the results. Raises UserError if the model is missing.

    Each list has one file per source. Replies are cached for resuming. ``attrs``: {"code_digest": digest of the code}.
    """
    code, folder = str(attrs.get("code_digest", "")), Path(texts_out[0]).parent
    answers = folder.parent / "answers/all" if len(texts_out) > 1 else folder / "answers"
    engine = load_engine(options, dict(execution) | {"answers": str(answers), "code": code})
    rules, digests = load_sentence_filter(options), read_digests(code, patterns=RESOURCE_FILES[0])
    for texts_path, facts_path, *outputs in zip(texts, facts, texts_out, phrases_out, excluded, agreement, strict=True):
        work = _TextFilter(engine, rules, options, digests)
        write_lines(outputs[0], work.texts(read_lines(texts_path)), checked=True)
        phrases = read_table(facts_path).filter(kind=PHRASE).select("image_id", "group", "name")
        phrases = phrases.unique(["image_id", "group"], keep="first", maintain_order=True).sort("image_id", "group")
        write_lines(outputs[1], work.phrases(phrases.to_dicts()), checked=True)
        write_excluded(outputs[2], work.excluded)
        pairs = sorted({pair[:2] for pair in work.pairs}, key=lambda pair: tuple(map(ACTIONS.index, pair)))
        counts = ((pair, work.pairs[*pair, True], work.pairs[*pair, False]) for pair in pairs)
        write_rows(outputs[3], ((*pair, same + other, same) for pair, same, other in counts), AGREEMENT)
        log.info(
            "%s: excluded images of %s by reason: %s",
            STAGE,
            texts_path,
            dict(Counter(row["reason"] for row in work.excluded)),
        )


class _TextFilter:
    """Runs an engine on the texts of one source, records exclusions, and counts the agreement of two engines."""

    def __init__(self, engine: Engine, rules: SentenceFilter, options: FilterOptions, digests: dict):
        self.engine, self.rules, self.options, self.digests = engine, rules, options, digests
        self.excluded: list[dict] = []
        self.pairs: Counter[tuple[str, str, bool]] = Counter()

    def texts(self, lines: Iterator[dict]) -> Iterator[dict]:
        """Yield an output line for each study whose text can be used after editing."""
        for batch in split_batches(lines, BATCH_SIZE):
            sections = [split_sentences(line["text"]) for line in batch]
            for line, filtered_text in zip(batch, self._filtered(sections), strict=True):
                if not self._is_usable(filtered_text, line["image_ids"], line["study_id"]):
                    continue
                parts = [
                    {"text": part.text, "from": number, "action": part.action, "reasons": list(part.reasons)}
                    for number, part in enumerate(filtered_text.sentences, start=1)
                ]
                digest = hashlib.blake2b(line["text"].encode(), digest_size=8).hexdigest()
                yield {name: line[name] for name in COPIED_COLUMNS} | {
                    "sentences": parts, "text": filtered_text.text, "engine": self.engine.made_by,
                    "digests": {"text": digest} | self.digests,
                }  # fmt: skip

    def phrases(self, rows: Sequence[dict]) -> Iterator[dict]:
        """Yield an output line for each phrase that can be used after editing."""
        for batch in split_batches(rows, BATCH_SIZE):
            if self.options.phrases:
                filtered = self._filtered([[row["name"]] for row in batch])
            else:
                filtered = [FilteredText((Sentence(row["name"], KEPT),)) for row in batch]
            for row, filtered_text in zip(batch, filtered, strict=True):
                if self._is_usable(filtered_text, [row["image_id"]], "", PHRASE):
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

    def _is_usable(self, filtered_text: FilteredText, image_ids: list[str], study_id: str, kind: str = "") -> bool:
        """Return whether a text can be used after editing. If it cannot, record an exclusion for each of its images."""
        text, reason = filtered_text.text, "quarantined" if filtered_text.problem else "nothing_left"
        is_changed = any(sentence.action != KEPT for sentence in filtered_text.sentences)
        is_empty = not text or (is_changed and len(text.split()) < MIN_WORDS and not self.rules.names(text))
        if is_unusable := bool(filtered_text.problem) or is_empty:
            columns = {"study_id": study_id, "stage": STAGE, "reason": reason}
            columns["detail"] = ": ".join(filter(None, (kind, filtered_text.problem)))
            self.excluded += [{"image_id": image_id} | columns for image_id in image_ids]
        return not is_unusable
