"""Structuring sentences to tuples: mentions, clauses, scope, hedges, locations, inference, mapping, in this order."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise

from spacy.tokens import Doc

from cxr.base.vocabulary import LUNG_LESIONS
from cxr.language.reports import schema
from cxr.language.reports.rules import (
    carryover,
    clauses,
    context,
    ellipsis,
    inference,
    locations,
    mapping,
    mentions,
    resolution,
    scope,
)
from cxr.language.reports.rules.lexicon import Lexicon
from cxr.language.reports.rules.places import Place, is_on_other_side, level_place, resolve_places

_BATCH_WORDS = 150
"""Words that share one spaCy document; a longer sentence is read in windows: time stays linear in the text."""


@dataclass
class _Piece:
    sentence: int
    text: str
    tokens: list[tuple[str, int, int]]

    @cached_property
    def words(self) -> list[str]:
        return [word for word, _, _ in self.tokens]


def structure_sentences(sentences: Sequence[str], lexicon: Lexicon, unsided_effusion: bool) -> list[dict]:
    """Return a section's tuples as in :mod:`cxr.language.reports.schema`; ``span`` in characters of its sentence.

    Sentences with ties are read together. A sentence without ties is read alone, the same in every report.
    """
    tuples, start = [], 0
    for end in _group_ends(sentences, lexicon, unsided_effusion):
        if end - start == 1:
            findings, _ = _read_alone(sentences[start], lexicon, unsided_effusion)
        else:
            readings = _read_sentences(sentences[start:end], lexicon)
            findings = _find_tuples(readings, unsided_effusion, lexicon)
        tuples += [schema.as_dict(replace(item, sentence_index=item.sentence_index + start)) for item in findings]
        start = end
    return tuples


def _group_ends(sentences: Sequence[str], lexicon: Lexicon, unsided_effusion: bool) -> list[int]:
    """Return the end of each group of consecutive sentences that are tied to each other."""
    joined = [False] * len(sentences)  # with the previous sentence
    on = gives = False
    for at, sentence in enumerate(sentences):
        ties = _read_alone(sentence, lexicon, unsided_effusion)[1]
        if ties.back:
            joined[1 : at + 1] = [True] * at
        elif on or (ties.takes and gives):
            joined[at] = True
        on, gives = ties.on, ties.gives or joined[at]  # a linked sentence may take its place from another
    return [at for at in range(1, len(sentences)) if not joined[at]] + [len(sentences)] * bool(sentences)


@lru_cache(maxsize=1 << 15)
def _read_alone(sentence: str, lexicon: Lexicon, unsided_effusion: bool) -> tuple[list[schema.Finding], context.Ties]:
    """Return the findings of a sentence that is read alone, and its ties to its neighbours in a text."""
    readings = _read_sentences([sentence], lexicon)
    findings = _find_tuples(readings, unsided_effusion, lexicon)
    if len(readings) != 1:  # no word, or a sentence that is read in windows
        return findings, context.Ties(bool(readings), bool(readings))
    piece, hits, sentence_mentions = readings[0]
    return findings, context.find_ties(piece.words, hits, sentence_mentions, lexicon)


def undecided_lesions(sentences: list[str], lexicon: Lexicon) -> set[str]:
    """Return the lesion types that sentences name without stating or denying them ("rule out pneumonia")."""
    all_mentions = [mention for *_, mentions_ in _read_sentences(sentences, lexicon) for mention in mentions_]
    return {
        m.entity.lesion for m in all_mentions if m.entity is not None and m.entity.lesion and "elsewhere" in m.flags
    }


def _read_sentences(sentences: list[str], lexicon: Lexicon) -> list[tuple]:
    """Return (piece, phrases, mentions) of each sentence, read to the end."""
    last: list[mentions.Mention] = []
    readings: list[tuple] = []
    entity = None
    places_by_finding: dict[str, list[Place]] = {}
    for batch in _batches(sentences, lexicon):
        words = [word for piece in batch for word in piece.words]
        doc = Doc(lexicon.nlp.vocab, words=words)
        hits = lexicon.match(doc)
        starts, all_mentions, offset, cursor, pending = set(), [], 0, 0, []
        for piece in batch:
            end = offset + len(piece.tokens)
            sentence_hits = []
            while cursor < len(hits) and hits[cursor][2] < end:
                tag, value, s, e = hits[cursor]
                if e <= end:
                    sentence_hits.append((tag, value, s - offset, e - offset))
                cursor += 1
            sentence_mentions = mentions.find_mentions(piece.words, sentence_hits, lexicon)
            sentence_mentions = ellipsis.add_stand_ins(piece.words, sentence_hits, sentence_mentions, entity, lexicon)
            entity = next((m.entity for m in reversed(sentence_mentions) if _is_stated(m)), entity)
            # a first sentence without a finding ends no scope, and settles nothing
            cut = (
                clauses.find_clause_starts(piece.words, sentence_hits, sentence_mentions, lexicon)
                if sentence_mentions or offset or readings
                else set()
            )
            pending.append((piece, sentence_hits, sentence_mentions, cut, offset))
            starts |= {offset, *(offset + token for token in cut)}
            all_mentions += sentence_mentions
            offset = end
        _scope(doc, pending, starts, all_mentions, lexicon)
        for piece, sentence_hits, sentence_mentions, cut, _ in pending:
            if sentence_mentions or readings:
                scope.deny_adjacent(piece.words, sentence_hits, sentence_mentions, cut, lexicon)
                scope.leave_unassessed_open(piece.words, sentence_hits, sentence_mentions, lexicon)
                resolution.settle_denials(
                    piece.words, sentence_hits, sentence_mentions, cut, readings[-1][2] if readings else [], lexicon
                )
            last = _finish(piece, sentence_hits, sentence_mentions, cut, last, places_by_finding, lexicon)
            readings.append((piece, sentence_hits, sentence_mentions))
    _apply_answers(readings, lexicon)
    return readings


def _is_stated(mention: mentions.Mention) -> bool:
    return mention.entity is not None and not mention.entity.predicted


def _batches(sentences: list[str], lexicon: Lexicon) -> Iterator[list[_Piece]]:
    batch, size = [], 0
    for number, text in enumerate(sentences, start=1):
        tokens = lexicon.tokens(text)
        for start in range(0, len(tokens), _BATCH_WORDS):
            window = tokens[start : start + _BATCH_WORDS]
            if batch and size + len(window) > _BATCH_WORDS:
                yield batch
                batch, size = [], 0
            batch.append(_Piece(number, text, window))
            size += len(window)
    if batch:
        yield batch


def _scope(doc: Doc, pending: list, starts: set[int], all_mentions: list, lexicon: Lexicon) -> None:
    """Run the scope engine over the whole document: mentions are moved to its tokens and back."""
    for _, _, sentence_mentions, _, offset in pending:
        for mention in sentence_mentions:
            mention.scope = (mention.scope[0] + offset, mention.scope[1] + offset)
    if all_mentions:
        scope.apply_scope(doc, all_mentions, starts, lexicon)
    for _, _, sentence_mentions, _, offset in pending:
        for mention in sentence_mentions:
            mention.scope = (mention.scope[0] - offset, mention.scope[1] - offset)


def _finish(
    piece: _Piece, hits, sentence_mentions, cut, last, places_by_finding: dict, lexicon: Lexicon
) -> list[mentions.Mention]:
    """Places, hedges and inference of one sentence; returns its affirmed findings, for the next sentence's "this"."""
    if not sentence_mentions:
        carryover.place_after(piece.words, hits, last, lexicon)
        return []
    words = piece.words
    locations.attach_places(words, hits, sentence_mentions, cut, lexicon)
    scope.grade_hedges(sentence_mentions, words, hits, lexicon)
    inference.link_explanations(words, hits, sentence_mentions, lexicon)
    return carryover.carry_places(words, hits, sentence_mentions, last, places_by_finding, lexicon)


def _apply_answers(readings: list[tuple], lexicon: Lexicon) -> None:
    """ "Is there an effusion? Yes, small.", "Pneumonia? None seen.": the answer decides what the question names."""
    for (piece, _, question_mentions), (reply, hits, reply_mentions) in pairwise(readings):
        words, first = piece.words, reply.words[:1]
        answer = lexicon.answers.get(first[0]) if first else None
        is_question = words[-1:] == ["?"] and (words[0] in lexicon.asks or len(words) <= 5)
        if not is_question or answer is None or reply.sentence != piece.sentence + 1:
            continue
        if any(m.entity is not None for m in reply_mentions) and reply.words[1:2] != [","]:
            continue  # "Pneumonia? No effusion."
        places = [hit for hit in hits if hit[0] in ("side", "level", "fused")] if not reply_mentions else []
        for mention in question_mentions:
            mention.flags -= {"weak", "suspicion", "elsewhere"}
            mention.hedge = "definite"
            if answer == "no":
                mention.flags.add("negation")
            elif places and not mention.places:
                mention.places = resolve_places(reply.words, places, lexicon)


def _find_tuples(readings: Iterable[tuple], unsided_effusion: bool, lexicon: Lexicon) -> list[schema.Finding]:
    unique = {}
    for number, (piece, _, sentence_mentions) in enumerate(readings):
        for mention in sentence_mentions:
            if mention.entity is None or mention.consumed or mention.entity.predicted or "elsewhere" in mention.flags:
                continue
            for places in _parted(mention.places, lexicon):
                finding = _finding(piece, mention, places, unsided_effusion, lexicon)
                key = (number, finding.entity, finding.presence, tuple(finding.location or ()))
                unique.setdefault(key, finding)
    return list(unique.values())


def _neighbours(related_type: str | None, candidate_types: list[str]) -> str | list[str] | None:
    """Return the neighbouring lesion types as the schema has them: the one, a list of several, or None."""
    lesion_types = list(dict.fromkeys([*([related_type] if related_type else []), *candidate_types]))
    return lesion_types if len(lesion_types) > 1 else next(iter(lesion_types), None)


def _parted(places: list[Place], lexicon: Lexicon) -> list[list[Place]]:
    """Part places that have no zone label from those of the other side: a tuple with labels blocks nothing."""
    zones = [place for place in places if place.level is not None]
    apart = [place for place in places if zones and is_on_other_side(place, zones, lexicon)]
    return [[place for place in places if place not in apart], apart] if apart else [places]


def _finding(
    piece: _Piece, mention: mentions.Mention, places: list[Place], unsided_effusion: bool, lexicon: Lexicon
) -> schema.Finding:
    entity = mention.entity
    pulmonary = entity.category == "diaphragm" and not set(LUNG_LESIONS).isdisjoint(mention.candidates)
    if pulmonary:  # "hemidiaphragm obscured by an effusion": it stands in the base above
        places = [level_place(place.sides, "base", lexicon) for place in places if place.sides] or places
    negative = "negation" in mention.flags or "no_new" in mention.flags
    category = "lung" if pulmonary else mapping.find_category(entity, places)
    labels = mapping.find_labels(entity, places, category, unsided_effusion, lexicon, tuple(mention.candidates))
    texts = [place.text for place in places]
    certain = mention.hedge == "definite" and mention.predicted_hedge in (None, "definite")
    sure = "weak" not in mention.flags if negative else certain
    start, end = piece.tokens[mention.start][1], piece.tokens[mention.end - 1][2]
    return schema.Finding(
        entity=entity.name,
        sentence_index=piece.sentence,
        presence="negative" if negative else "positive",
        certainty="definitive" if sure else "tentative",
        location=texts or None,
        predicted_lesion_type=mention.candidates[0] if len(mention.candidates) == 1 else None,
        category=category,
        labels=labels,
        lesion_type=mapping.find_lesion(entity, category),
        hedge="definite" if negative and sure else mention.hedge,
        span=[start, end],
        candidates=list(mention.candidates),
        predicted_hedge=mention.predicted_hedge,
        related=_neighbours(entity.related, mention.related),
        block=[] if negative else mapping.find_blocked(entity, places, texts, category, labels, lexicon),
        denies="no_new" not in mention.flags,
    )
