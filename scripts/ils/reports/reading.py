"""From a study's row to the text that is structured: its sections, the one to use, and its sentences."""

from dataclasses import dataclass
from pathlib import Path

from ils.core.faults import broken
from ils.core.places import RESOURCES
from ils.reports import sections
from ils.reports.sentences import split

RESOURCE_FILES = ("sections.yaml",)


@dataclass(frozen=True)
class Section:
    """A section that is used: name, text, [start, end) of its sentences, and the section beside it (name, text)."""

    name: str
    text: str
    spans: list[tuple[int, int]]
    beside: tuple[str, str] | None

    @property
    def sentences(self) -> list[str]:
        return [self.text[start:end] for start, end in self.spans]


def read(row: dict, overrides: bool) -> Section | tuple[str, str]:
    """Return the section of a study's row that is used, or (reason, detail) if it has none.

    ``overrides``: use the official code's hand-made sections of its odd studies.
    """
    found = _sections_of(row, overrides)
    if found is None:
        return "no_report", ""
    chosen = sections.choose(found)
    if chosen is None:
        return "empty_report", "no text in " + ", ".join(sections.SECTION_NAMES)
    name, text = chosen
    return Section(name, text, split(text), sections.other(found, name))


def _sections_of(row: dict, overrides: bool) -> dict[str, str] | None:
    """Return the sections of a study from its columns or its file, None if it has neither."""
    columns = {name: row.get(name) for name in ("findings", "impression")}
    if any((text or "").strip() for text in columns.values()):
        return {name: text.strip() for name, text in columns.items() if text}
    path = row.get("report_path")
    if path:
        text = _decode(Path(path))
        if text is None:
            return None
        rules = sections.load_rules(RESOURCES / RESOURCE_FILES[0])
        by_hand = sections.override(text, row["study_id"], rules) if overrides else None
        return by_hand if by_hand is not None else sections.named(sections.split(text, rules))
    return {} if any(text is not None for text in columns.values()) else None


def _decode(path: Path) -> str | None:
    """Read a report in UTF-8, else Latin-1; None if the file cannot be read."""
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        if broken(error):
            raise
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")
