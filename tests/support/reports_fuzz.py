"""Damaged reports: synthetic ones and heaps of report words, cut, shuffled and strewn with characters of all planes."""

import random
import unicodedata
from collections.abc import Callable, Iterator

import numpy as np

from cxr.base.vocabulary import LESIONS
from cxr.imaging.phantom import prose
from cxr.imaging.phantom.prose import PLACES

WORDS = (
    "no not without small mild left right bibasilar lower lobe upper mid lung zone apex base bases retrocardiac heart "
    "costophrenic angle blunted enlarged is are the in of and or with versus effusion effusions opacity opacities new "
    "pneumonia atelectasis consolidation edema nodule pneumothorax likely possibly may represent cannot be excluded "
    "unchanged resolved this history from to than over due , . ; : / ? ( ) - 1. 2) XXXX ___ 1.5 cm Dr. vs."
)
RANGES = {
    "controls": (0x00, 0x1F),
    "more controls": (0x7F, 0x9F),
    "combining": (0x300, 0x36F),
    "right to left": (0x590, 0x6FF),
    "spaces and directions": (0x2000, 0x206F),
    "plane 0 below the surrogates": (0x20, 0xD7FF),
    "plane 0 above the surrogates": (0xE000, 0xFFFF),
    "planes 1 to 16": (0x10000, 0x10FFFF),
}
ODD = "ıßŉǆſﬁ１２٣½Ⅷ™\u0130\u0307\u1e9e\ufeff\u200d\u2028\u2029\x00\x85\x1c\U0001f9d1\u200d\U0001f52c"
"""Letters that change their length with case, digits that are none of ASCII, marks of order, ends of lines."""


def character(draw: random.Random) -> str:
    """One character of any plane, never half of a surrogate pair."""
    if draw.random() < 0.2:
        return draw.choice(ODD)
    return chr(draw.randint(*draw.choice(list(RANGES.values()))))


def _cut(text: str, draw: random.Random) -> tuple[str, str, str]:
    start = draw.randint(0, len(text))
    end = min(len(text), start + draw.randint(0, 40))
    return text[:start], text[start:end], text[end:]


def _shuffled(text: str, draw: random.Random, separator: str) -> str:
    parts = text.split(separator)
    draw.shuffle(parts)
    return separator.join(parts)


def _replaced(change: Callable[[str, random.Random], str]) -> Callable[[str, random.Random], str]:
    def mutate(text: str, draw: random.Random) -> str:
        before, middle, after = _cut(text, draw)
        return before + change(middle, draw) + after

    return mutate


MUTATIONS: dict[str, Callable[[str, random.Random], str]] = {
    "unicode": _replaced(lambda text, draw: "".join(character(draw) for _ in range(draw.randint(1, 12)))),
    "strewn": lambda text, draw: "".join(c + character(draw) if draw.random() < 0.05 else c for c in text),
    "deleted": _replaced(lambda text, draw: ""),
    "doubled": _replaced(lambda text, draw: text * draw.randint(2, 5)),
    "sentences shuffled": lambda text, draw: _shuffled(text, draw, ". "),
    "lines shuffled": lambda text, draw: _shuffled(text, draw, "\n"),
    "words shuffled": _replaced(lambda text, draw: _shuffled(text, draw, " ")),
    "case": _replaced(lambda text, draw: draw.choice((text.upper(), text.title(), text.swapcase()))),
    "punctuation": _replaced(lambda text, draw: "".join(draw.choices(".,;:!?()/-\"'*_ \n", k=draw.randint(1, 30)))),
    "long word": _replaced(lambda text, draw: text + draw.choice("aé-1_") * draw.randint(50, 400)),
    "long sentence": lambda text, draw: text.replace(".", draw.choice((",", " and", ""))),
    "no spaces": _replaced(lambda text, draw: text.replace(" ", "")),
    "composed": lambda text, draw: unicodedata.normalize(draw.choice(("NFD", "NFKC", "NFKD")), text),
    "words": _replaced(lambda text, draw: f" {' '.join(draw.choices(WORDS.split(), k=draw.randint(1, 25)))} "),
}


def reports(seed: int, count: int) -> Iterator[str]:
    """Yield ``count`` texts: half of synthetic reports, half of heaps of words, each with one to four mutations."""
    draw, rng, words = random.Random(seed), np.random.default_rng(seed), WORDS.split()
    for number in range(count):
        if number % 2:
            text = " ".join(draw.choices(words, k=draw.randint(1, 40)))
        else:
            targets = draw.sample(LESIONS, k=draw.randint(0, 2))
            places, hedges = [name for name, place in PLACES.items() if place["labels"]], ("definite", "strong", "weak")
            findings = [
                prose.Finding("cardiomegaly", "heart")
                if target == "cardiomegaly"
                else prose.Finding(target, draw.choice(places), draw.choice(hedges))
                for target in targets
            ]
            text = prose.write_report(findings, rng, layout=draw.choice(prose.LAYOUTS)).text
        for name in draw.choices(list(MUTATIONS), k=draw.randint(1, 4)):
            text = MUTATIONS[name](text, draw)
        yield text
