"""Options of the page besides its files."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PageOptions:
    """Facts about the run that are not in the page's files: built sets, engines, and other results (path: digest)."""

    thresholds: list[str]
    engines: dict[str, str]
    source: str
    extras: dict[str, str]
