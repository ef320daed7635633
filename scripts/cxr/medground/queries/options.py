"""What the queries' stage receives from the settings."""

from dataclasses import dataclass


@dataclass(frozen=True)
class QueriesOptions:
    """The settings ``medground.queries`` and ``medground.logic``, the source's name and the seed.

    statements: whether the queries are the sentences of the source's descriptions.
    """

    engine: str
    per_image: int
    per_image_many: int
    many: int
    kinds: dict
    max_atoms: int
    budget: int
    outline_px: float
    fragile: float
    words: float
    spread: float
    families: list
    logic: dict
    source: str
    seed: int
    statements: bool = False
