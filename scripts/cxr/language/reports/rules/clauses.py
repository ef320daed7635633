"""Splitting of sentences into clauses. A denial or hedge applies only within its clause."""

from itertools import pairwise, takewhile

from cxr.language.reports.rules.lexicon import Lexicon
from cxr.language.reports.rules.mentions import Hit, Mention, tokens_of

_COMMA = {",", "(", ")"}
_REVERSED_GAP = 6  # maximum number of tokens between a reversed link and its disease or finding
_DENIAL_JOINTS = frozenset(("and", ",", "with", "plus", "/", ":"))
_SENTENCE_ENDS = frozenset((";", ".", "but", "however"))
_LISTED = {"or", "and", "nor", "/", "versus", "vs"}


def find_clause_starts(words: list[str], hits: list[Hit], mentions: list[Mention], lexicon: Lexicon) -> set[int]:
    """Return the tokens at which a new clause begins, except for the sentence's first token."""
    phrases = longest_phrases(hits, ("end", "not_end", "link", "deny_not", "bound"))
    clause_starts = {s for tag, s, _ in phrases if tag == "end"}
    affirming = {s for tag, _, s, _ in hits if tag == "affirming"}
    inside = {i for m in mentions for i in range(m.start + 1, m.end)}
    cued = {e for tag, _, _, e in hits if tag == "cue_with"}  # "consistent with mild edema" is one clause
    aside = {i for tag, s, e in phrases if tag == "not_end" for i in range(s, e)}
    for token in affirming:
        before = words[token - 1] if token and token - 1 not in aside else ""
        opens = before == "with" and token not in cued and words[token] in lexicon.affirming_after_with_only
        if before in _COMMA or opens:
            clause_starts.add(token)
        elif token > 1 and before in ("and", "with") and words[token - 2] == ",":
            clause_starts.add(token - 1)
    clause_starts |= {e for _, e in longest_spans(hits, "deny_after", "deny_not") if words[e : e + 1] == [","]}
    clause_starts |= _verb_halves(words, hits, mentions, clause_starts)
    clause_starts |= _after_denial(words, hits, mentions, lexicon)
    clause_starts |= {start for start, _ in find_refutations(words, hits, mentions, lexicon)}
    clause_starts |= _own_statement(words, hits, mentions, lexicon)
    clause_starts |= {m.start for m in mentions if m.stand_in and m.denied and words[m.start] in lexicon.stand_ins}
    clause_starts |= _told_in_full(words, hits, mentions)
    clause_starts |= _hedged_after_comma(words, hits, mentions)
    clause_starts |= _past_history(words, hits, mentions)
    clause_starts |= {s for _, s, _ in find_links(words, hits, mentions, lexicon)}
    clause_starts |= {mention.start for *_, mention in find_reversed_links(hits, mentions)}
    return {token for token in clause_starts if token > 0 and token not in inside}


def find_links(
    words: list[str], hits: list[Hit], mentions: list[Mention], lexicon: Lexicon
) -> list[tuple[str, int, int]]:
    """Return the phrases that link a non-specific finding to the disease named next ("opacity *suggesting* pneumonia").
    Each phrase is (certainty grade, start, end) in tokens. A link after a denial ("no opacity suggesting pneumonia") is
    ignored, because the denial applies to both findings."""
    link_spans = []
    denials = [start for start, _ in longest_spans(hits, "deny", "deny_not", "no_new")]
    refuted_starts = [start for start, _ in longest_spans(hits, "refuted", "deny_not")]
    for grade, start, end in longest_phrases(hits, ("link", "bound")):
        before = [m for m in mentions if m.end <= start]
        after = [m for m in mentions if m.start >= end]
        if words[start:end] == ["by"] and before and start != before[-1].end:
            continue  # "blunted by", not "seen by"
        if grade is None or not before or not after or before[-1].entity is None or not before[-1].entity.explained:
            continue
        if words[start - 1] in lexicon.not_linked and lexicon.link_adjectives.issuperset(words[start:end]):
            continue
        gap = words[end : after[0].start]
        if len(gap) > lexicon.links["gap"] or not lexicon.link_breaks.isdisjoint(gap):
            continue  # the words do not lead directly to the disease
        if any(before[-1].end <= s < after[0].start for s in refuted_starts + denials):
            continue
        if any(s < before[-1].start and not _ended(words, s, before[-1].start) for s in denials):
            continue
        link_spans.append((grade, start, end))
    return link_spans


def find_reversed_links(hits: list[Hit], mentions: list[Mention]) -> list[tuple[str, Mention, Mention]]:
    """Return (certainty grade, disease, finding) of each link after its disease ("edema *explains* the opacity")."""
    disease_links = []
    for grade, start, end in longest_phrases(hits, ("reversed",)):
        before = [m for m in mentions if m.end <= start]
        after = [m for m in mentions if m.start >= end]
        if before and after and before[-1].entity is not None and after[0].entity is not None:
            near = start - before[-1].end <= _REVERSED_GAP and after[0].start - end <= _REVERSED_GAP
            if near and after[0].entity.explained and not before[-1].entity.explained:
                disease_links.append((grade, before[-1], after[0]))
    return disease_links


def _ended(words: list[str], start: int, end: int) -> bool:
    inside = words[start:end]
    has_new_subject = any(first == "," and second in ("the", "there") for first, second in pairwise(inside))
    return has_new_subject or not {";", "but", "however", "although", "though", "there", "except"}.isdisjoint(inside)


def longest_phrases(hits: list[Hit], tags: tuple[str, ...]) -> list[tuple]:
    """Return (tag, start, end), in tokens, of the phrases with one of ``tags``. Of overlapping phrases, only the
    longest counts. Instead of the tags ``link`` and ``reversed``, the first member is the phrase's certainty grade.
    Instead of ``bound``, it is None."""
    tagged_hits = [hit for hit in hits if hit[0] in tags]
    if not tagged_hits:
        return []
    taken: set[int] = set()
    phrases = []
    for tag, value, s, e in sorted(tagged_hits, key=lambda h: (h[2] - h[3], h[2], h[0])):
        if taken.isdisjoint(range(s, e)):
            taken.update(range(s, e))
            phrases.append((value if tag in ("link", "reversed") else None if tag == "bound" else tag, s, e))
    return sorted(phrases, key=lambda item: item[1])


def longest_spans(hits: list[Hit], tag: str, *longer_tags: str) -> list[tuple[int, int]]:
    """Return the tokens [start, end) of each phrase of ``tag``, unless a longer one of ``longer_tags`` overlaps it."""
    phrases = longest_phrases(hits, (tag, *longer_tags))
    return [(start, end) for phrase_tag, start, end in phrases if phrase_tag == tag]


def find_refutations(
    words: list[str], hits: list[Hit], mentions: list[Mention], lexicon: Lexicon
) -> list[tuple[int, list[Mention]]]:
    """Return (first token, denied diseases) of each phrase that denies an explanation ("*unlikely to be* edema")."""
    refutations = []
    sided, inside = tokens_of(hits, "side", "level", "fused"), lexicon.refuted_inside | lexicon.quantities
    for start, end in longest_spans(hits, "refuted", "deny_not"):
        before = [m for m in mentions if m.end <= start and m.entity is not None]
        after = [m for m in mentions if m.start >= end]
        if not before or not after or after[0].entity is None or before[-1].entity is after[0].entity:
            continue
        if not all(words[i] in inside or i in sided for i in range(end, after[0].start)):
            continue
        if words[start] in ("is", "are", "was", "were") and not before[-1].entity.explained:
            continue
        while start - 1 >= before[-1].end and words[start - 1] in lexicon.refuted_before:
            start -= 1
        diseases = after[:1]
        for last, following in pairwise(after):
            between = words[last.end : following.start]
            tied = {"or", "nor", "/"} & set(between) or ("," in between and {"or", "nor"} & set(words[end:]))
            if following.entity is None or not tied or not inside.issuperset({*between} - _LISTED - {","}):
                break
            diseases.append(following)
        refutations.append((start, diseases))
    return refutations


def _after_denial(words: list[str], hits: list[Hit], mentions: list[Mention], lexicon: Lexicon) -> set[int]:
    """Return the tokens that end a denial before an affirmed finding ("no pneumothorax *and* stable left effusion"). A
    denial continues in a list that ends with "or" ("no pneumothorax, new opacity or effusion"). It also continues if
    the article is repeated ("resolution of the edema and the effusion")."""
    denials = longest_spans(hits, "deny", "deny_not")
    states = {s for tag, _, s, _ in hits if tag == "states"}
    fused = {s for tag, _, s, _ in hits if tag == "fused"}  # "no consolidation, *LLL* collapse"
    joints = set()
    for joint in (i for i, word in enumerate(words) if word in _DENIAL_JOINTS and denials):
        token = joint + 1
        before = [e for _, e in denials if e <= joint]
        if token >= len(words) or not before or words[joint - 1] in (",", "and"):
            continue
        token += words[joint] == "," and words[token] in ("and", "with", "plus")
        following = next((m for m in mentions if m.start >= token), None)
        if following is None or following.entity is None or not any(before[-1] <= m.start < joint for m in mentions):
            continue
        following_words = list(takewhile(lambda word: word not in _SENTENCE_ENDS, words[token:]))
        first_word = next(iter(following_words), "")
        repeats_article = first_word in lexicon.articles and first_word in words[before[-1] : joint]
        if not {"or", "nor"}.isdisjoint(following_words) or repeats_article:
            continue
        opens = (
            words[token - 1] == "plus"
            or (words[joint] == ":" and first_word != "no")
            or first_word in lexicon.affirming_after_denial
            or (words[joint] == "," and token in fused)
        )
        if opens or any(following.end <= s <= following.end + 1 for s in states):
            joints.add(joint)
    return joints


def _own_statement(words: list[str], hits: list[Hit], mentions: list[Mention], lexicon: Lexicon) -> set[int]:
    """Return the commas that end a denial because a new statement follows ("without effusion, *the* lungs show ...").
    In "effusion without edema, and atelectasis", the comma ends the denial. A list of two items would have none."""
    verbs = {s for tag, _, s, _ in hits if tag in ("verb", "link")}
    denials = [start for start, _ in longest_spans(hits, "deny", "deny_not")]
    joints = set()
    for comma in (i for i, word in enumerate(words) if word == ","):
        after = comma + 1 + (words[comma + 1 : comma + 2] == ["and"])
        end = next((i for i in range(after, len(words)) if words[i] in (",", ";")), len(words))
        denied = any(s < comma for s in denials)
        if denied and words[after : after + 1] == ["the"] and any(after < verb < end for verb in verbs):
            joints.add(comma)
        if after == comma + 2 and denied:
            last = max(s for s in denials if s < comma)
            is_single = sum(last < m.start < comma for m in mentions) == 1
            is_single &= {",", "or", "and", "nor"}.isdisjoint(words[last:comma])
            if (
                is_single
                and any(m.end <= last for m in mentions)
                and words[after : after + 1] not in (["no"], ["without"])
            ):
                joints.add(comma)
    for first, second in pairwise(mentions):
        gap = words[first.end : second.start]
        again = first.entity is second.entity is not None and gap[:1] in (["and"], [","], ["but"])
        if again and not lexicon.elided_states.isdisjoint(gap):
            joints.add(first.end)  # "no right effusion *and* a small left effusion"
    return joints


def _told_in_full(words: list[str], hits: list[Hit], mentions: list[Mention]) -> set[int]:
    """Return each "and" or comma before a full statement about an organ ("no effusion *and* the heart is enlarged")."""
    verbs = {s for tag, _, s, _ in hits if tag == "verb"}
    joints = set()
    for mention in mentions:
        if "composite" in mention.flags and verbs & set(range(mention.start, mention.end)):
            joint = mention.start - 1 - (words[mention.start - 1 : mention.start] == ["the"])
            if joint > 0 and words[joint] in ("and", ","):
                joints.add(joint)
    return joints


def _past_history(words: list[str], hits: list[Hit], mentions: list[Mention]) -> set[int]:
    """Return the tokens that end a history or a condition, such as the comma in "history of cough, edema is likely"."""
    verbs = {s for tag, _, s, _ in hits if tag == "verb"}
    first = min((s for tag, _, s, _ in hits if tag == "aside"), default=len(words))
    clause_ends = set()
    for mention in mentions:
        commas = [i for i in range(first, mention.start) if words[i] == ","]
        if commas and not verbs.isdisjoint(range(mention.end, mention.end + 3)):
            clause_ends.add(commas[-1])
    if words[:1] in (["if"], ["should"], ["were"]) and "," in words:
        clause_ends.add(words.index(","))  # a condition ends at its comma
    operations = [e for tag, _, _, e in hits if tag == "operation"]
    return clause_ends | {i for end in operations for i in range(end, len(words)) if words[i] == "with"}


def _hedged_after_comma(words: list[str], hits: list[Hit], mentions: list[Mention]) -> set[int]:
    """Return each comma before a hedged finding ("opacity, pneumonia not excluded"). The opacity is not hedged."""
    commas = set()
    for hedge in {s for tag, _, s, _ in hits if tag == "hedged"}:
        before = [m for m in mentions if m.end <= hedge][-2:]
        if len(before) < 2 or hedge - before[1].end > 1:
            continue
        gap = words[before[0].end : before[1].start]
        if "," in gap and _LISTED.isdisjoint(gap):
            commas.add(before[1].start - gap[::-1].index(",") - 1)
    return commas


def _verb_halves(words: list[str], hits: list[Hit], mentions: list[Mention], ends: set[int]) -> set[int]:
    """Return each "and", "or" or comma that joins two statements with a verb each. ``ends``: known clause starts."""
    verbs = sorted({s for tag, _, s, _ in hits if tag == "verb" and (s == 0 or words[s - 1] != "to")})
    if len(verbs) < 2:
        return set()
    dividing_joints = set()
    joints = [i for i, word in enumerate(words) if word in ("and", ",", "or")]
    for joint in joints:
        clause = max((end for end in ends if end <= joint), default=0)
        verbs_before = [v for v in verbs if clause <= v < joint]
        stop = min((end for end in ends if end > joint + 1), default=len(words))
        verbs_after = [v for v in verbs if joint < v < stop]
        if not verbs_before or not verbs_after:
            continue
        nearer = [j for j in joints if joint < j < verbs_after[0] and words[j] != "or"]
        starts_here = any(joint < m.start < verbs_after[0] for m in mentions) or verbs_after[0] - joint <= 5
        if not nearer and starts_here and verbs_after[0] - joint > 1 and any(m.start < joint for m in mentions):
            dividing_joints.add(joint)
    return dividing_joints
