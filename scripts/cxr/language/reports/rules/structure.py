"""Structuring sentences to tuples: mentions, clauses, scope, hedges, locations, inference, mapping, in this order."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from spacy.tokens import Doc

from cxr.base.vocabulary import LESIONS
from cxr.language.reports import schema
from cxr.language.reports.rules import (
    carried,
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
from cxr.language.reports.rules.places import Place, beyond, of_level, resolve

LUNG_LESIONS = frozenset(LESIONS) - {"cardiomegaly"}
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


def structure(sentences: list[str], lexicon: Lexicon, unsided_effusion: bool) -> list[dict]:
    """Return a section's tuples as in :mod:`cxr.language.reports.schema`; ``span`` in characters of its sentence."""
    tuples: list[schema.Finding] = []
    for piece, own, found in _read(sentences, lexicon):
        tuples += _tuples(piece, own, found, unsided_effusion, lexicon)
    return [schema.as_dict(finding) for finding in tuples]


def by_itself(sentence: str, lexicon: Lexicon, unsided_effusion: bool) -> tuple[list[dict], context.Ties]:
    """Return the tuples of a sentence that is read by itself, and its ties to those around it in a text."""
    read = _read([sentence], lexicon)
    made = [finding for one in read for finding in _tuples(*one, unsided_effusion, lexicon)]
    if len(read) != 1:  # no word, or a sentence that is read in windows
        return [schema.as_dict(finding) for finding in made], context.Ties(bool(read), bool(read))
    piece, hits, found = read[0]
    return [schema.as_dict(finding) for finding in made], context.ties(piece.words, hits, found, lexicon)


def set_aside(sentences: list[str], lexicon: Lexicon) -> set[str]:
    """Return the lesion types that sentences name without telling whether they are there ("rule out pneumonia")."""
    found = [mention for *_, mentions_ in _read(sentences, lexicon) for mention in mentions_]
    return {m.entity.lesion for m in found if m.entity is not None and m.entity.lesion and "elsewhere" in m.flags}


def _read(sentences: list[str], lexicon: Lexicon) -> list[tuple]:
    """Return (piece, phrases, mentions) of each sentence, read to the end."""
    last: list[mentions.Mention] = []
    read: list[tuple] = []
    entity = None
    told: dict[str, list[Place]] = {}
    for batch in _batches(sentences, lexicon):
        words = [word for piece in batch for word in piece.words]
        doc = Doc(lexicon.nlp.vocab, words=words)
        hits = lexicon.match(doc)
        starts, everything, offset, cursor, later = set(), [], 0, 0, []
        for piece in batch:
            end = offset + len(piece.tokens)
            own = []
            while cursor < len(hits) and hits[cursor][2] < end:
                tag, value, s, e = hits[cursor]
                if e <= end:
                    own.append((tag, value, s - offset, e - offset))
                cursor += 1
            found = mentions.find(piece.words, own, lexicon)
            found = ellipsis.stand_ins(piece.words, own, found, entity, lexicon)
            entity = next((m.entity for m in reversed(found) if _told(m)), entity)
            # a first sentence without a finding ends no scope, and settles nothing
            cut = clauses.starts(piece.words, own, found, lexicon) if found or offset or read else set()
            later.append((piece, own, found, cut, offset))
            starts |= {offset, *(offset + token for token in cut)}
            everything += found
            offset = end
        _scope(doc, later, starts, everything, lexicon)
        for piece, own, found, cut, _ in later:
            if found or read:
                scope.adjacent(piece.words, own, found, cut, lexicon)
                resolution.settle(piece.words, own, found, cut, read[-1][2] if read else [], lexicon)
            last = _finish(piece, own, found, cut, last, told, lexicon)
            read.append((piece, own, found))
    _answered(read, lexicon)
    return read


def _told(mention: mentions.Mention) -> bool:
    return mention.entity is not None and not mention.entity.predicted


def _batches(sentences: list[str], lexicon: Lexicon) -> Iterator[list[_Piece]]:
    batch, size = [], 0
    for number, text in enumerate(sentences, start=1):
        tokens = lexicon.shorthand.tokens(text)
        for start in range(0, len(tokens), _BATCH_WORDS):
            window = tokens[start : start + _BATCH_WORDS]
            if batch and size + len(window) > _BATCH_WORDS:
                yield batch
                batch, size = [], 0
            batch.append(_Piece(number, text, window))
            size += len(window)
    if batch:
        yield batch


def _scope(doc: Doc, later: list, starts: set[int], everything: list, lexicon: Lexicon) -> None:
    """Run the scope engine over the whole document: mentions are moved to its tokens and back."""
    for _, _, found, _, offset in later:
        for mention in found:
            mention.scope = (mention.scope[0] + offset, mention.scope[1] + offset)
    if everything:
        scope.apply(doc, everything, starts, lexicon)
    for _, _, found, _, offset in later:
        for mention in found:
            mention.scope = (mention.scope[0] - offset, mention.scope[1] - offset)


def _finish(piece: _Piece, own, found, cut, last, told: dict, lexicon: Lexicon) -> list[mentions.Mention]:
    """Places, hedges and inference of one sentence; returns its affirmed findings, for the next sentence's "this"."""
    if not found:
        carried.place_after(piece.words, own, last, lexicon)
        return []
    words = piece.words
    locations.attach(words, own, found, cut, lexicon)
    scope.grade(found, words, own, lexicon)
    inference.explain(words, own, found, lexicon)
    return carried.carry(words, own, found, last, told, lexicon)


def _answered(read: list[tuple], lexicon: Lexicon) -> None:
    """ "Is there an effusion? Yes, small.", "Pneumonia? None seen.": the answer decides what the question names."""
    for (piece, _, found), (reply, hits, others) in pairwise(read):
        words, first = piece.words, reply.words[:1]
        answer = lexicon.answers.get(first[0]) if first else None
        asked = words[-1:] == ["?"] and (words[0] in lexicon.asks or len(words) <= 5)
        if not asked or answer is None or reply.sentence != piece.sentence + 1:
            continue
        if any(m.entity is not None for m in others) and reply.words[1:2] != [","]:
            continue  # "Pneumonia? No effusion."
        places = [hit for hit in hits if hit[0] in ("side", "level", "fused")] if not others else []
        for mention in found:
            mention.flags -= {"weak", "suspicion", "elsewhere"}
            mention.hedge = "definite"
            if answer == "no":
                mention.flags.add("negation")
            elif places and not mention.places:
                mention.places = resolve(reply.words, places, lexicon)


def _tuples(piece: _Piece, own, found, unsided_effusion: bool, lexicon: Lexicon) -> list[schema.Finding]:
    made = []
    for mention in found:
        if mention.entity is None or mention.consumed or mention.entity.predicted or "elsewhere" in mention.flags:
            continue
        for places in _parted(mention.places, lexicon):
            made.append(_finding(piece, mention, places, unsided_effusion, lexicon))
    unique = {}
    for finding in made:
        key = (finding.entity, finding.presence, tuple(finding.location or ()))
        unique.setdefault(key, finding)
    return list(unique.values())


def _neighbours(own: str | None, of_candidates: list[str]) -> str | list[str] | None:
    """Return the neighbouring lesion types as the schema has them: the one, a list of several, or None."""
    found = list(dict.fromkeys([*([own] if own else []), *of_candidates]))
    return found if len(found) > 1 else next(iter(found), None)


def _parted(places: list[Place], lexicon: Lexicon) -> list[list[Place]]:
    """Part places that have no zone label from those of the other side: a tuple with labels blocks nothing."""
    zones = [place for place in places if place.level is not None]
    apart = [place for place in places if zones and beyond(place, zones, lexicon)]
    return [[place for place in places if place not in apart], apart] if apart else [places]


def _finding(
    piece: _Piece,
    mention: mentions.Mention,
    places: list[Place],
    unsided_effusion: bool,
    lexicon: Lexicon,
) -> schema.Finding:
    entity = mention.entity
    pulmonary = entity.category == "diaphragm" and not LUNG_LESIONS.isdisjoint(mention.candidates)
    if pulmonary:  # "hemidiaphragm obscured by an effusion": it stands in the base above
        places = [of_level(place.sides, "base", lexicon) for place in places if place.sides] or places
    negative = "negation" in mention.flags or "no_new" in mention.flags
    where = "lung" if pulmonary else mapping.category(entity, places)
    labels = mapping.labels(entity, places, where, unsided_effusion, lexicon, tuple(mention.candidates))
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
        category=where,
        labels=labels,
        lesion_type=mapping.lesion(entity, where),
        hedge="definite" if negative and sure else mention.hedge,
        span=[start, end],
        candidates=list(mention.candidates),
        predicted_hedge=mention.predicted_hedge,
        related=_neighbours(entity.related, mention.related),
        block=[] if negative else mapping.block(entity, places, texts, where, labels, lexicon),
        denies="no_new" not in mention.flags,
    )
