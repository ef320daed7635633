"""Detection of the words that name a finding. If phrases of the lexicon overlap, the longest counts.

A look-alike such as "chest tube" names no finding. A subject and its state ("heart is enlarged") name a single finding,
a composite.
"""

from dataclasses import dataclass, field

from cxr.language.reports.rules.lexicon import Composite, Entity, Lexicon

Hit = tuple[str, object, int, int]
"""A phrase of the lexicon in a sentence, as (tag, value, start, end) in tokens [start, end). The tag is its kind."""
SIDED = ("side", "level", "fused", "half")
"""Tags of the phrases that name a side or a part of a lung."""
PLACED = (*SIDED, "place")
"""Tags of all phrases that name a location."""


def spans_of(hits: list[Hit], *tags: str) -> list[tuple[int, int]]:
    """Return the tokens [start, end) of each phrase that has one of these tags."""
    return [(start, end) for tag, _, start, end in hits if tag in tags]


def tokens_of(hits: list[Hit], *tags: str) -> set[int]:
    """Return the indices of all tokens in the phrases that have one of these tags."""
    return {token for start, end in spans_of(hits, *tags) for token in range(start, end)}


@dataclass
class Mention:
    """A phrase that names a finding, in tokens [start, end) of its sentence. ``entity`` is None for a look-alike such
    as "chest tube". ``scope`` is the range of tokens to which a denial must apply so that it denies the finding ("heart
    is not *enlarged*")."""

    entity: Entity | None
    start: int
    end: int
    scope: tuple[int, int]
    flags: set[str] = field(default_factory=set)
    hedge: str = "definite"
    places: list = field(default_factory=list)
    candidates: list = field(default_factory=list)
    predicted_hedge: str | None = None
    related: list = field(default_factory=list)
    consumed: bool = False
    denied: bool | None = None
    """Whether the phrase itself denies the finding ("none on the left"). If None, the words around it decide."""
    told: list | None = None
    """Location phrases that certainly belong to the mention ("small *left* and no right effusion"). None if unknown."""
    stand_in: bool = False


def find_mentions(words: list[str], hits: list[Hit], lexicon: Lexicon) -> list[Mention]:
    """Return the mentions in one sentence, in text order. ``hits``: the lexicon's phrases in this sentence."""
    spans = sorted(
        ((s, e, value) for tag, value, s, e in hits if tag in ("entity", "cancel")),
        key=lambda span: (span[0] - span[1], span[0], span[2] is not None),
    )
    taken: set[int] = set()
    mentions: list[Mention] = []
    for start, end, entity in spans:
        if taken.isdisjoint(range(start, end)):
            taken.update(range(start, end))
            mentions.append(Mention(entity, start, end, (start, end)))
    mentions = _joined_twins(sorted(mentions, key=lambda mention: mention.start))
    return _with_composites(words, hits, mentions, lexicon)


def _joined_twins(mentions: list[Mention]) -> list[Mention]:
    """Merge adjacent mentions of the same finding ("atelectatic collapse")."""
    merged: list[Mention] = []
    for mention in mentions:
        if merged and merged[-1].end == mention.start and merged[-1].entity is mention.entity is not None:
            mention = Mention(mention.entity, merged[-1].start, mention.end, (merged.pop().start, mention.end))
        merged.append(mention)
    return merged


def _with_composites(words: list[str], hits: list[Hit], mentions: list[Mention], lexicon: Lexicon) -> list[Mention]:
    subjects = [(v, s, e) for tag, v, s, e in hits if tag == "subject"]
    states = [(v, s, e) for tag, v, s, e in hits if tag == "state"]
    if not subjects or not states:
        return mentions
    nouns = {s for tag, _, s, _ in hits if tag in ("entity", "subject", "cancel", "place")}
    pairs = []
    for state, start, end in states:
        for subject, s, e in subjects:
            if subject.rank == state.rank and _joined(words, (s, e), (start, end), subject, nouns, lexicon):
                if _nearer_subject(words, subjects, (s, e), start):
                    continue
                pairs.append((subject.rank, abs(start - s), -(end - start), -(e - s), (s, e), (start, end), subject))
    for *_, (s, e), state, composite in sorted(pairs, key=lambda pair: pair[:4]):
        first, last = min(s, state[0]), max(e, state[1])
        crossing = [m for m in mentions if m.start < last and first < m.end]
        if all(_same(m, composite) or _part_itself(m, (s, e), state) for m in crossing):
            mentions = [m for m in mentions if m not in crossing]
            mentions.append(Mention(composite.entity, first, last, state, {"composite"}))
    return sorted(mentions, key=lambda mention: mention.start)


def _same(mention: Mention, composite: Composite) -> bool:
    """Return whether a mention without a state of its own names the finding of ``composite`` ("cardiomegaly")."""
    entity = mention.entity
    if entity is None or "composite" in mention.flags:
        return False
    return entity.name == composite.entity.name or (entity.lesion == "cardiomegaly" == composite.entity.related)


def _part_itself(mention: Mention, *parts: tuple[int, int]) -> bool:
    """Return whether a mention is only a part (subject or state, ``parts``) of a finding that two parts name together.
    For example, the "collapse" of a vertebra is not a collapse of the lung."""
    plain = mention.entity is not None and "composite" not in mention.flags
    return plain and any(s <= mention.start and mention.end <= e for s, e in parts)


def _joined(words, subject, state, composite: Composite, nouns: set[int], lexicon: Lexicon) -> bool:
    """Return whether a subject and a state, in tokens (start, end), form one finding. They must be close enough, and no
    word between them may separate them."""
    if subject[1] <= state[0]:
        gap = words[subject[1] : state[0]]
        if gap[:1] == [":"] and len(gap) <= 3:
            gap = gap[1:]  # "Heart: mildly enlarged."
        gap = _continued(gap, words[state[1] : state[1] + 1], lexicon)
        return len(gap) <= composite.gap and lexicon.composite_breaks.isdisjoint(gap) and state[1] not in nouns
    if state[1] <= subject[0]:
        gap = words[state[1] : subject[0]]
        return len(gap) <= composite.gap and lexicon.composite_joins.issuperset(gap)
    return state[0] >= subject[0] and state[1] > subject[1]


def _continued(gap: list[str], after: list[str], lexicon: Lexicon) -> list[str]:
    """Return the words between a subject and its state (``gap``), without words that only connect the two, as in "The
    heart is *not small but rather* enlarged" and "*stable in size,* enlarged". ``after``: word after the state."""
    if "but" in gap and "not" in gap[: gap.index("but")]:
        return []
    closed = not after or after[0] in (".", ",", ";", "but", "with", "without")
    if closed and gap and lexicon.composite_steady.issuperset(word for word in gap if not word[:1].isdigit()):
        return [word for word in gap if word not in (",", ":", "-")][:1]
    return gap


def _nearer_subject(words, subjects, subject_span: tuple[int, int], state: int) -> bool:
    """Return whether another subject is between this subject and the state, unless "and" or "or" joins the two."""
    if subject_span[0] > state:
        return False
    return any(
        subject_span[1] <= s < state and not {"and", "or", "/"} & set(words[subject_span[1] : s])
        for _, s, e in subjects
        if e > subject_span[1]
    )
