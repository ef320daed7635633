"""Wording of labels, findings and regions in a sentence."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from cxr.base.paths import RESOURCES

RESOURCE_FILES = ("radvlm/names.yaml",)


@dataclass(frozen=True)
class SpokenNames:
    """wording_by_name: {name: words}; articles: {words: article}; regions: regions used in questions."""

    wording_by_name: dict[str, str]
    articles: dict[str, str]
    regions: tuple[str, ...]

    def say(self, name: str) -> str:
        """Return the wording of a name, in lower case."""
        return self.wording_by_name.get(name, name).lower()

    def with_article(self, words: str) -> str:
        """Return the words with "a" or "an" if they take an article."""
        article = self.articles.get(words.lower())
        return f"{article} {words}" if article else words


@cache
def load_spoken_names() -> SpokenNames:
    """Load the names, once per process."""
    resource = yaml.safe_load((Path(RESOURCES) / RESOURCE_FILES[0]).read_text(encoding="utf-8"))
    articles = {words: article for article, word_list in resource["articles"].items() for words in word_list}
    return SpokenNames(resource["said"], articles, tuple(resource["regions"]))


def join_in_words(words: Sequence[str]) -> str:
    """Join words with commas and a final "and"."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1] if words else "")))
