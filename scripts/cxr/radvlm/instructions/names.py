"""How labels, findings and regions are said in a sentence."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from cxr.base.paths import RESOURCES

RESOURCE_FILES = ("radvlm/names.yaml",)
LOWER = "lower"


@dataclass(frozen=True)
class SpokenNames:
    """said: {name: its words}; articles: {words: article}; regions: those that are asked for."""

    wording_by_name: dict[str, str]
    articles: dict[str, str]
    regions: tuple[str, ...]

    def say(self, name: str, case: str = LOWER) -> str:
        """Return the words of a name; ``case``: lower, or as_is."""
        words = self.wording_by_name.get(name, name)
        return words.lower() if case == LOWER else words

    def with_article(self, words: str) -> str:
        """Return the words with a or an where they take one."""
        article = self.articles.get(words.lower())
        return f"{article} {words}" if article else words


@cache
def load_spoken_names() -> SpokenNames:
    """Return the names of the resource."""
    resource = yaml.safe_load((Path(RESOURCES) / RESOURCE_FILES[0]).read_text(encoding="utf-8"))
    articles = {words: article for article, word_list in resource["articles"].items() for words in word_list}
    return SpokenNames(resource["said"], articles, tuple(resource["regions"]))


def join_in_words(words: Sequence[str]) -> str:
    """Return words as a list in a sentence: commas between them, and before the last the word and."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1] if words else "")))
