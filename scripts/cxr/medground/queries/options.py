"""What the queries' stage receives from the settings."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """The settings ``medground.queries`` and ``medground.logic`` that an image's targets depend on."""

    per_image: int
    per_image_many: int
    many: int
    kinds: dict
    max_atoms: int
    budget: int
    families: list
    logic: dict

    def wanted(self, candidates: int) -> int:
        """Return how many queries an image of so many candidates is to have."""
        return self.per_image_many if candidates > self.many else self.per_image


@dataclass(frozen=True, kw_only=True)
class QueriesOptions(SearchOptions):
    """The settings ``medground.queries`` and ``medground.logic``, the source's name and the seed.

    statements: whether the queries are the sentences of the source's descriptions.
    """

    engine: str
    fragile: float
    words: float
    spread: float
    source: str
    seed: int
    statements: bool = False
