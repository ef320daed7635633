"""What the queries' stage receives from the settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """The settings ``medground.queries`` that an image's targets depend on."""

    per_image: int
    per_image_many: int
    many: int
    families: list
    kinds: Mapping[str, float] = field(default_factory=lambda: {"single": 0.6, "subset": 0.25, "all": 0.15})
    """Fraction of queries whose answer is one region, several, or all regions of a class or of the image."""
    max_atoms: int = 4
    """Most attributes of a query, before those that lengthen it."""
    budget: int = 20_000
    """Combinations of attributes that are tried in an image."""

    def count_queries(self, candidates: int) -> int:
        """Return the number of queries for an image with so many candidates."""
        return self.per_image_many if candidates > self.many else self.per_image


@dataclass(frozen=True, kw_only=True)
class QueriesOptions(SearchOptions):
    """The settings ``medground.queries``, the source's name and the seed.

    statements: whether the queries are the sentences of the source's descriptions.
    """

    engine: str
    fragile: float
    words: float
    source: str
    seed: int
    statements: bool = False
    spread: float = 2.5
    """Standard deviation of the number of words (paper)."""
