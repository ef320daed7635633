"""Conversion of the sentences of a section to tuples of :class:`cxr.language.reports.schema.Finding`.

The steps find mentions, clauses, denials, locations, hedges, diseases, and categories with labels, in this order.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import pairwise

from spacy.tokens import Doc

from cxr.base.vocabulary import LUNG_LESIONS
from cxr.language.reports import schema
from cxr.language.reports.rules import carryover, clauses, ellipsis, inference, locations, mapping, resolution, scope
from cxr.language.reports.rules.context import Ties, find_ties
from cxr.language.reports.rules.lexicon import Lexicon, load_lexicon
from cxr.language.reports.rules.mentions import Hit, Mention, find_mentions
from cxr.language.reports.rules.places import Place, is_on_other_side, level_place, resolve_places

_BATCH_WORDS = 150
"""Maximum number of words in a spaCy document. A longer sentence is read in windows, so that time stays linear."""


@dataclass
class _Piece:
    """A sentence, or a window of at most ``_BATCH_WORDS`` words of a long sentence. ``sentence`` is the number of the
    sentence, from 1. ``hits`` are the phrases of the lexicon in it. ``cut`` has the tokens that start a clause.
    ``offset`` is the index of its first token in the spaCy document."""

    sentence: int
    tokens: list[tuple[str, int, int]]
    hits: list[Hit] = field(default_factory=list)
    mentions: list[Mention] = field(default_factory=list)
    cut: set[int] = field(default_factory=set)
    offset: int = 0

    @cached_property
    def words(self) -> list[str]:
        return [word for word, _, _ in self.tokens]


def structure_sentences(sentences: Sequence[str], unsided_effusion: bool) -> list[dict]:
    """Return a section's finding tuples (``schema.Finding``) as dicts. ``span`` counts characters within the sentence.
    Sentences that refer to each other (:class:`Ties`) are read together. Any other sentence is read alone, so its
    tuples are the same in every report. ``unsided_effusion``: whether an effusion without a side is in both bases."""
    tuples, start, lexicon = [], 0, load_lexicon()
    for end in _group_ends(sentences, unsided_effusion):
        if end - start == 1:
            findings, _ = _read_alone(sentences[start], unsided_effusion)
        else:
            findings = _find_tuples(_read_sentences(sentences[start:end], lexicon), unsided_effusion, lexicon)
        tuples += [vars(item) | {"sentence_index": item.sentence_index + start} for item in findings]
        start = end
    return tuples


def _group_ends(sentences: Sequence[str], unsided_effusion: bool) -> list[int]:
    """Return the end index of each group of consecutive sentences that are tied to each other."""
    joined = [False] * len(sentences)  # with the previous sentence
    on = gives = False
    for at, sentence in enumerate(sentences):
        ties = _read_alone(sentence, unsided_effusion)[1]
        if ties.back:
            joined[1 : at + 1] = [True] * at
        elif on or (ties.takes and gives):
            joined[at] = True
        on, gives = ties.on, ties.gives or joined[at]  # a linked sentence may take its location from another
    return [at for at in range(1, len(sentences)) if not joined[at]] + [len(sentences)] * bool(sentences)


@lru_cache(maxsize=1 << 15)
def _read_alone(sentence: str, unsided_effusion: bool) -> tuple[list[schema.Finding], Ties]:
    """Return (findings, ties to the neighbouring sentences) of a sentence that is read alone."""
    lexicon = load_lexicon()
    pieces = _read_sentences([sentence], lexicon)
    findings = _find_tuples(pieces, unsided_effusion, lexicon)
    if len(pieces) != 1:  # no word, or a sentence that is read in windows
        return findings, Ties(bool(pieces), bool(pieces))
    return findings, find_ties(pieces[0].words, pieces[0].hits, pieces[0].mentions, lexicon)


def undecided_lesions(sentences: list[str]) -> set[str]:
    """Return the lesion types that sentences mention without affirming or denying them ("rule out pneumonia")."""
    all_mentions = [mention for piece in _read_sentences(sentences, load_lexicon()) for mention in piece.mentions]
    return {m.entity.lesion for m in all_mentions if m.entity and m.entity.lesion and "elsewhere" in m.flags}


def _read_sentences(sentences: list[str], lexicon: Lexicon) -> list[_Piece]:
    """Return the sentences as pieces whose mentions have their denials, locations, certainty grades and diseases."""
    last: list[Mention] = []
    pieces: list[_Piece] = []
    entity = None
    places_by_finding: dict[str, list[Place]] = {}
    for batch in _batches(sentences, lexicon):
        doc = Doc(lexicon.nlp.vocab, words=[word for piece in batch for word in piece.words])
        hits = lexicon.match(doc)
        offset = cursor = 0
        for piece in batch:
            words, end, piece.offset = piece.words, offset + len(piece.tokens), offset
            while cursor < len(hits) and hits[cursor][2] < end:
                tag, value, s, e = hits[cursor]
                if e <= end:
                    piece.hits.append((tag, value, s - offset, e - offset))
                cursor += 1
            named_mentions = find_mentions(words, piece.hits, lexicon)
            piece.mentions = ellipsis.add_stand_ins(words, piece.hits, named_mentions, entity, lexicon)
            stated_entities = (m.entity for m in reversed(piece.mentions) if m.entity and not m.entity.predicted)
            entity = next(stated_entities, entity)
            # a first sentence without a finding needs no clauses
            if piece.mentions or offset or pieces:
                piece.cut = clauses.find_clause_starts(words, piece.hits, piece.mentions, lexicon)
            offset = end
        starts = {piece.offset + token for piece in batch for token in (0, *piece.cut)}
        scope.apply_scope(doc, [(m, piece.offset) for piece in batch for m in piece.mentions], starts, lexicon)
        for piece in batch:
            words, sentence_mentions = piece.words, piece.mentions
            if sentence_mentions or pieces:
                before = pieces[-1].mentions if pieces else []
                scope.deny_adjacent(words, piece.hits, sentence_mentions, piece.cut, lexicon)
                scope.leave_unassessed_open(words, piece.hits, sentence_mentions, lexicon)
                resolution.settle_denials(words, piece.hits, sentence_mentions, piece.cut, before, lexicon)
            if sentence_mentions:  # "this" in the next sentence refers to the affirmed findings
                locations.attach_places(words, piece.hits, sentence_mentions, piece.cut, lexicon)
                scope.grade_hedges(sentence_mentions, words, piece.hits, lexicon)
                inference.link_explanations(words, piece.hits, sentence_mentions, lexicon)
                last = carryover.carry_places(words, piece.hits, sentence_mentions, last, places_by_finding, lexicon)
            else:
                carryover.place_after(words, piece.hits, last, lexicon)
                last = []
            pieces.append(piece)
    _apply_answers(pieces, lexicon)
    return pieces


def _batches(sentences: list[str], lexicon: Lexicon) -> Iterator[list[_Piece]]:
    batch: list[_Piece] = []
    size = 0
    for number, text in enumerate(sentences, start=1):
        tokens = lexicon.tokens(text)
        for start in range(0, len(tokens), _BATCH_WORDS):
            window = tokens[start : start + _BATCH_WORDS]
            if batch and size + len(window) > _BATCH_WORDS:
                yield batch
                batch, size = [], 0
            batch.append(_Piece(number, window))
            size += len(window)
    if batch:
        yield batch


def _apply_answers(pieces: list[_Piece], lexicon: Lexicon) -> None:
    """Apply each answer to the findings of its question ("Is there an effusion? Yes, small.")."""
    for question, reply in pairwise(pieces):
        words, answer = question.words, lexicon.answers.get(reply.words[0])
        is_question = words[-1:] == ["?"] and (words[0] in lexicon.asks or len(words) <= 5)
        if not is_question or answer is None or reply.sentence != question.sentence + 1:
            continue
        if any(m.entity is not None for m in reply.mentions) and reply.words[1:2] != [","]:
            continue  # "Pneumonia? No effusion."
        places = [hit for hit in reply.hits if hit[0] in ("side", "level", "fused")] if not reply.mentions else []
        for mention in question.mentions:
            mention.flags -= {"weak", "suspicion", "elsewhere"}
            mention.hedge = "definite"
            if answer == "no":
                mention.flags.add("negation")
            elif places and not mention.places:
                mention.places = resolve_places(reply.words, places, lexicon)


def _find_tuples(pieces: Iterable[_Piece], unsided_effusion: bool, lexicon: Lexicon) -> list[schema.Finding]:
    unique: dict[tuple, schema.Finding] = {}
    for number, piece in enumerate(pieces):
        for mention in piece.mentions:
            if mention.entity is None or mention.consumed or mention.entity.predicted or "elsewhere" in mention.flags:
                continue
            for places in _parted(mention.places, lexicon):
                finding = _finding(piece, mention, places, unsided_effusion, lexicon)
                key = (number, finding.entity, finding.presence, tuple(finding.location or ()))
                unique.setdefault(key, finding)
    return list(unique.values())


def _parted(places: list[Place], lexicon: Lexicon) -> list[list[Place]]:
    """Return the locations of a finding as lists, one for each finding tuple that it gets. Locations on the other side
    that have no zone label ("retrocardiac") get a tuple of their own, because a tuple with zone labels does not forbid
    denials at other locations."""
    zones = [place for place in places if place.level is not None]
    apart = [place for place in places if zones and is_on_other_side(place, zones, lexicon)]
    return [[place for place in places if place not in apart], apart] if apart else [places]


def _finding(
    piece: _Piece, mention: Mention, places: list[Place], unsided_effusion: bool, lexicon: Lexicon
) -> schema.Finding:
    entity = mention.entity
    pulmonary = entity.category == "diaphragm" and not set(LUNG_LESIONS).isdisjoint(mention.candidates)
    if pulmonary:  # "hemidiaphragm obscured by an effusion" is in the lung base above
        places = [level_place(place.sides, "base", lexicon) for place in places if place.sides] or places
    negative = "negation" in mention.flags or "no_new" in mention.flags
    category = "lung" if pulmonary else mapping.find_category(entity, places)
    labels = mapping.find_labels(entity, places, category, unsided_effusion, lexicon, tuple(mention.candidates))
    certain = mention.hedge == "definite" and mention.predicted_hedge in (None, "definite")
    sure = "weak" not in mention.flags if negative else certain
    start, end = piece.tokens[mention.start][1], piece.tokens[mention.end - 1][2]
    return schema.Finding(
        entity=entity.name,
        sentence_index=piece.sentence,
        presence="negative" if negative else "positive",
        certainty="definitive" if sure else "tentative",
        location=[place.text for place in places] or None,
        predicted_lesion_type=mention.candidates[0] if len(mention.candidates) == 1 else None,
        category=category,
        labels=labels,
        lesion_type=mapping.find_lesion(entity, category),
        hedge="definite" if negative and sure else mention.hedge,
        span=[start, end],
        candidates=list(mention.candidates),
        predicted_hedge=mention.predicted_hedge,
        related=mapping.join_neighbours([entity.related, *mention.related]),
        block=[] if negative else mapping.find_blocked(entity, places, category, labels, lexicon),
        denies="no_new" not in mention.flags,
    )
