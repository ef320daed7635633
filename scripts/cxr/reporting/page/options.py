"""What the page is told besides its files."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PageOptions:
    """What the page says of the run beyond its files: sets built, engines, and what else was there (path: digest)."""

    thresholds: list[str]
    engines: dict[str, str]
    source: str
    extras: dict[str, str]
