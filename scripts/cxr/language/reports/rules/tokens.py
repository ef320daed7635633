"""Tokenizing for spaCy: reports and the lexicon's phrases use the same tokenizer, so that they always match."""

import re
from collections.abc import Iterable, Iterator

from spacy.tokens import Doc

_TOKEN = re.compile(r"\d+(?:[.,]\d+)*|[^\W\d_]+|_+|[^\w\s]")
_HYPHEN = re.compile(r"(?<=\w)[-‐‑–](?=\w)")
LONGEST_WORD = 60


def split_words(text: str) -> list[tuple[str, int, int]]:
    """Return (lower-case word, start, end) of each token; hyphens between letters are blanks."""
    hyphens = {match.start() for match in _HYPHEN.finditer(text)} if "-" in text or "–" in text or "‑" in text else ()
    return [
        (match.group()[:LONGEST_WORD].lower(), match.start(), match.end())
        for match in _TOKEN.finditer(text)
        if match.start() not in hyphens
    ]


class Tokenizer:
    """A spaCy tokenizer over :func:`split_words`."""

    def __init__(self, vocab):
        self.vocab = vocab

    def __call__(self, text: str) -> Doc:
        return Doc(self.vocab, words=[word for word, _, _ in split_words(text)] or [" "])

    def pipe(self, texts: Iterable[str], batch_size: int = 0) -> Iterator[Doc]:
        """Tokenize many texts (the interface negspacy asks for)."""
        del batch_size
        yield from (self(text) for text in texts)
