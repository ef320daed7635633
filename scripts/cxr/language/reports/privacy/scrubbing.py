"""Removal of markup, signatures and instructions to a language model, and replacement of identifiers by surrogates.

:func:`scrub` is the entry point. It needs the whole text before sections are split, because a signature is a line of
its own. A sentence that describes the chest is never removed, unless it is an attestation ("I have reviewed the film")
or an instruction. Only the names, numbers and dates in it are replaced.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache

from cxr.language.reports import sentences
from cxr.language.reports.decoding import BREAKS
from cxr.language.reports.privacy.names import find_names
from cxr.language.reports.privacy.rules import Rules, load_rules
from cxr.language.reports.privacy.surrogates import Surrogates, find_dates
from cxr.llm.guards import addresses_the_model

KINDS = ("name", "address", "date", "record", "phone", "web", "age", "signature", "markup", "order")
"""Kinds of removed text. An "address" is a place or an institution, "web" is a mail or web address, an "age" is an age
above 89, and an "order" is an instruction to a language model."""

_HIDDEN = re.compile(r"<!--.*?(?:-->|\Z)|<(script|style|head|title|template)\b[^>]*>.*?(?:</\1\s*>|\Z)", re.I | re.S)
_TAGS = (
    "a|abbr|address|article|b|blockquote|body|br|button|center|code|dd|div|dl|dt|em|embed|font|form|h[1-6]|"
    "head|hr|html|i|iframe|img|input|li|link|meta|object|ol|p|pre|script|section|small|span|strong|style|sub|sup|svg|table|tbody|td|textarea|"
    "tfoot|th|thead|title|tr|tt|u|ul|video|xml"
)
_TAG = re.compile(rf"<[/!?]?(?P<name>{_TAGS})\b(?:\s[^<>]*|/)?>|<\?[^<>]*\?>|<![a-z][^<>]*>", re.I)
_WEB = re.compile(
    r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b|\b(?:https?|ftp)://[^\s<>\"')]+|\bwww\.[^\s<>\"')]+"
    r"|(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])"
)
_PHONE = re.compile(
    r"(?<![\w.])(?:\+\d{1,3}[ .-]?)?\(?0?\d{2,4}\)?[ .-]\d{3}[ .-]\d{3,4}(?![\d.]\d|\w)"
    r"|(?<![\w.])\(\d{2,5}\)[ -]?\d{3,4}(?:[ -]?\d{2,5})*(?!\w)"
    r"|(?<![\w.])\+(?=(?:[ ./()-]{0,3}\d){8})\d{1,3}(?: ?[./-]? ?\(?\d{1,5}\)?){2,6}(?!\w)"
    r"|(?<![\w.])\+\d{1,3}(?:[ ./-]?\(?\d{1,5}\)?){2,5}(?!\w)"
    r"|(?<![\w.])0\d{2,4}[ ]?[-/][ ]?\d{3,9}(?:[ -]\d{2,5})*(?!\w)"
    r"|(?<![\w./-])\d{3}-\d{4}(?![\w-]|\.\d)"
    r"|(?<![\w.])x[ ]?\d{4,5}(?!\w)"
)
_RECORD = re.compile(
    r"#[ ]?\d{4,}\b|\b\d{3}-\d{2}-\d{4}\b|(?<![\d.,])\d{6,}(?:-\d{1,3})?(?![\d,]*\.\d|\w)"
    r"|\b[A-Z]{1,5}(?:-\d{2,}){1,4}\b|\b[A-Z]{1,5}#?-?\d{5,}\w*\b"
    r"|\b(?=[A-Z0-9]*\d[A-Z0-9]*\d[A-Z0-9]*\d)(?=[A-Z0-9]*[A-Z])[A-Z0-9]{7,}\b"
    r"|\b[A-Z]{3,4}\d{2,}\b|\b\d{2,}(?:-\d{2,}){2,}\b"
)
_HARMLESS_RECORD = re.compile(r"(?:COVID|SARS|CO|FEV|FIO|SPO|PO)-?\d+", re.I)
_WEAK_LABELS = frozenset(
    ("report", "ct", "mri", "study", "case", "order", "record", "visit", "device", "lot", "mr", "acc", "model", "ip",
     "job", "account", "encounter", "id")
)  # fmt: skip
_PLACE_LABELS = frozenset(("room", "bed", "ward", "station", "zimmer", "bett"))
_AGE = re.compile(
    r"(?<![\d.,-])(?:9\d|1[0-2]\d)(?=[ -]{0,2}(?:years?\b|yrs?\b|y[/.]?o\b|yo[mf]?\b|jahre|jährig|j\.))", re.I
)
_DIGIT = re.compile(r"\d")
_INITIALS = re.compile(
    r"\W*(?:/\w{2,12}/?(?:\s.*)?|[A-Z]{2,4}\s*[:/]\s*[a-z]{2,4}\b[\s\d/:.,DT-]*"
    r"|(?:D|DD|T|DT|R)\s*:\s*\d.*|[-–—]{1,2}\s*[A-Z]\w+(?:\s[A-Z]\w+)?\W*)"
)
_HEADING = re.compile(r"\W*[A-Z][A-Za-z /]{3,40}:")
_REST_WORDS = 12
"""Maximum number of words of a sentence that is removed together with the signature before it on its line."""
_CLOSING_LINES = 5
"""Maximum number of lines after a closing formula that are removed as part of the signature."""


@dataclass(frozen=True)
class Scrubbed:
    """A text in which surrogates replace identifiers, and ``removed``, {kind: number of removed identifiers}."""

    text: str
    removed: dict[str, int]


def scrub(text: str, subject_id: str) -> Scrubbed:
    """Return a report's text with surrogates in place of identifiers. ``subject_id`` is the seed of the surrogates."""
    rules, removed = load_rules(), Counter()
    text = _without_markup(text, removed)
    text = _without_signatures(text, rules, removed)
    surrogates, pieces, place = Surrogates(subject_id), [], 0
    for start, end, kind in _spans(text, rules):
        surrogate = surrogates.replace(kind, text[start:end])
        removed[kind] += 1
        pieces += [text[place:start], surrogate]
        place = end
    return Scrubbed("".join([*pieces, text[place:]]), {kind: removed[kind] for kind in KINDS if removed[kind]})


def add_counts(first_counts: dict[str, int], second_counts: dict[str, int]) -> dict[str, int]:
    """Return the sum of two counts by kind, in the order of :data:`KINDS`."""
    total = Counter(first_counts) + Counter(second_counts)
    return {kind: total[kind] for kind in KINDS if total[kind]}


def _without_markup(text: str, removed: Counter) -> str:
    if "<" not in text:
        return text

    def gap(tag: re.Match) -> str:
        removed["markup"] += 1
        return "\n" if (tag["name"] or "").lower() in BREAKS else ""

    text, hidden = _HIDDEN.subn("", text)
    removed["markup"] += hidden
    return _TAG.sub(gap, text)


def _without_signatures(text: str, rules: Rules, removed: Counter) -> str:
    """Return the text without signatures, dictation stamps, and sentences that address a language model."""
    patterns, lines, closing = _signature_patterns(), [], 0
    for line in text.split("\n"):
        if not line.strip():
            closing = 0
        elif closing and rules.chest.lacks([line]) and not _HEADING.match(line):
            removed["signature"] += 1
            closing -= 1
            continue
        elif patterns["closing"].match(line) and rules.chest.lacks([line]):
            removed["signature"] += 1
            closing = _CLOSING_LINES
            continue
        elif patterns["salutation"].match(line) and rules.chest.lacks([line]):
            removed["signature"] += 1
            continue
        else:
            closing = 0
        lines.append(_without_signed_sentences(line, rules, removed))
    return "\n".join(lines)


def _without_signed_sentences(line: str, rules: Rules, removed: Counter) -> str:
    spans, signed = [], False
    for start, end in sentences.split_sentences(line):
        sentence = line[start:end]
        if kind := _kind_of(sentence):
            removed[kind] += 1
            signed = True
        elif not (
            signed
            and rules.chest.lacks([sentence])
            and not _HEADING.match(sentence)
            and len(sentence.split()) <= _REST_WORDS
        ):
            signed = False
            continue
        spans.append((start, end))
    for start, end in reversed(spans):
        line = (
            line[:start].rstrip() + (" " if line[end:].strip() and line[:start].strip() else "") + line[end:].lstrip()
        )
    return line


@lru_cache(maxsize=1 << 16)
def _kind_of(sentence: str) -> str:
    """Return "order" for a sentence that addresses a language model, "signature" for a signature, else ""."""
    if addresses_the_model(sentence):
        return "order"
    return "signature" if _is_signature(sentence, _signature_patterns(), load_rules()) else ""


def _is_signature(sentence: str, patterns: dict[str, re.Pattern], rules: Rules) -> bool:
    if not (
        patterns["signature"].match(sentence)
        or patterns["attestation"].search(sentence)
        or _INITIALS.fullmatch(sentence)
    ):
        return False
    if patterns["attestation"].search(sentence) and re.search(r"\b(?:I|radiologist|physician)\b", sentence):
        return True
    return rules.chest.lacks([sentence])


@cache
def _signature_patterns() -> dict[str, re.Pattern]:
    phrases = load_rules().phrases
    before = r"[\W_]*(?:report\s+)?"
    after = r"\.?(?:\s*(?:[:/]|[-–—]\s)|\s*$|\s+(?:on|at|by|von|am)\b|(?-i:\s+(?:[A-ZÄÖÜ]|\d))|\s+[^\W\d_]{2,4}\s*$)"
    return {
        "signature": re.compile(rf"{before}{phrases['signatures']}(?<!\w\w\w/)[*_ ]*{after}", re.I),
        "closing": re.compile(rf"\W*{phrases['closings']}\b", re.I),
        "salutation": re.compile(rf"\W*{phrases['salutations']}\b", re.I),
        "attestation": re.compile(rf"\b{phrases['attestations']}\b", re.I),
    }


def _spans(text: str, rules: Rules) -> list[tuple[int, int, str]]:
    """Return (start, end, kind) of the identifiers, in text order. If two overlap, a web address counts before an
    identifier with digits, and both count before a name."""
    taken, spans = bytearray(len(text)), []
    for start, end, kind in _candidates(text, rules):
        if end > start and not any(taken[start:end]):
            taken[start:end] = b"\1" * (end - start)
            spans.append((start, end, kind))
    return sorted(spans)


def _candidates(text: str, rules: Rules) -> Iterator[tuple[int, int, str]]:
    yield from ((*match.span(), "web") for match in _WEB.finditer(text))
    if _DIGIT.search(text):
        yield from _find_numbers(text, rules)
    yield from find_names(text)


def _find_numbers(text: str, rules: Rules) -> Iterator[tuple[int, int, str]]:
    """Yield (start, end, kind) of each identifier with digits, such as a date, a telephone number or an age."""
    patterns = _span_patterns()
    yield from ((start, end, "date") for start, end in find_dates(text))
    for match in patterns["phone"].finditer(text):
        yield *match.span("value"), "phone"
    yield from ((*match.span(), "phone") for match in _PHONE.finditer(text))
    for match in patterns["record"].finditer(text):
        label, digits = match["label"].lower(), sum(map(str.isdigit, match["value"]))
        if label in _PLACE_LABELS or digits >= (4 if label in _WEAK_LABELS else 2):
            yield *match.span("value"), "record"
    for match in patterns["address"].finditer(text):
        for part in re.finditer(r"[^\W\d_]+|\d+", match[0]):
            start, end = match.start() + part.start(), match.start() + part.end()
            ending = patterns["street_ending"].search(part[0])
            if part[0].isdigit():
                yield start, end, "address"
            elif ending:
                yield start, end - len(ending[0]), "address"
            elif (
                part[0][0].isupper()
                and not rules.report_words.is_known(part[0].lower())
                and not patterns["street"].fullmatch(part[0])
            ):
                yield start, end, "address"
    for match in _RECORD.finditer(text):
        if not _HARMLESS_RECORD.fullmatch(match[0]):
            yield *match.span(), "record"
    yield from ((*match.span(), "age") for match in _AGE.finditer(text))


@cache
def _span_patterns() -> dict[str, re.Pattern]:
    phrases = load_rules().phrases
    number = r"(?:\s*(?:no|nr|num|number|nummer|id)\b\.?|\s*[.#:=-]){0,3}\s*"
    street = rf"(?:{phrases['streets']}|\w*{phrases['german_streets']})\.?"
    german_city = r",?[ \t]+(?:D-)?\d{5}(?:[ \t]+[A-ZÄÖÜ][\w-]+)?"
    american_city = r",[ \t]*[A-Z][\w.]+(?:[ \t][A-Z][a-z]+)?(?:,?[ \t]+[A-Z]{2})?(?:[ \t]+\d{5}(?:-\d{4})?)?"
    city = f"(?:{german_city}|{american_city})?"
    return {
        "phone": re.compile(
            rf"(?i:(?<!\w){phrases['phone_labels']})(?!\w){number}\(?(?P<value>\+?\d[\d()/ .-]{{2,18}}\d)(?!\w)"
        ),
        "record": re.compile(
            rf"(?i:(?<!\w)(?P<label>{phrases['id_labels']}))(?!\w){number}(?P<value>(?=[\w./-]*\d)[A-Z0-9#][\w/-]*)"
        ),
        "street": re.compile(street, re.I),
        "street_ending": re.compile(rf"(?<=\w){phrases['german_streets']}$", re.I),
        "address": re.compile(
            rf"(?<!\w)\d{{1,5}}\w?[ \t]+(?:[A-Z][\w'.-]+[ \t]+){{1,3}}(?i:{phrases['streets']})\b\.?{city}"
            rf"|(?<!\w)[A-ZÄÖÜ][\w-]*(?:[ \t-][A-ZÄÖÜ][\w-]*)?(?i:{phrases['german_streets']})\.?"
            rf"[ \t]*\d{{1,4}}[a-z]?{city}"
            rf"|(?<![\w.])(?:D-)?\d{{5}}[ \t]+[A-ZÄÖÜ][a-zäöüß]+"
        ),
    }
