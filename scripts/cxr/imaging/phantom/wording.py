"""The vocabulary of the synthetic reports: places, and sentences for every kind of finding."""

from dataclasses import dataclass

import yaml

from cxr.base.paths import RESOURCES

RESOURCE_FILES = ("phantom/wording.yaml",)


@dataclass(frozen=True)
class Place:
    """A location as radiologists write it, and its zone labels."""

    labels: tuple[str, ...]
    adjectives: tuple[str, ...]
    nouns: tuple[str, ...]


WORDING: dict = yaml.safe_load((RESOURCES / RESOURCE_FILES[0]).read_text(encoding="utf-8"))
"""Sentences and words by kind; the file describes the templates."""
PLACES = {
    name: Place(**{kind: tuple(words) for kind, words in entry.items()}) for name, entry in WORDING["places"].items()
}
