"""Splitting of MIMIC-CXR reports into sections by the official parser's rules, and choice of the section to read.

The tables of header names, view phrases and corrections are in ``resources/sections.yaml``. The rules are those of the
official parser. A header is a line that starts with one space, capitals and a colon. A header on the line directly
after another header is ignored. If several sections have the same name, the last one counts. Mistakes of the official
table are corrected only on request.
"""

import re
from typing import NamedTuple

from cxr.base.resources import load_resource

RESOURCE_FILES = ("sections.yaml",)
HEADER = re.compile(r"\n ([A-Z ()/,-]+):\s")
BLANK_LINE = "\n \n"
SECTION_NAMES = ("findings", "impression", "last_paragraph")
"""Names of the sections that may be read, in the paper's order of preference (A.1)."""


class Section(NamedTuple):
    """A named part of a report. ``start``: index of its first character in the report."""

    name: str
    text: str
    start: int


def _tables() -> dict:
    return load_resource(RESOURCE_FILES[0])


def needs_correction(text: str) -> bool:
    """Return whether the official table gives a wrong section name to a header of the report."""
    return any(header.lower().strip() in _tables()["corrections"] for header in HEADER.findall(text))


def normal_name(header: str, *, corrected: bool = False) -> str:
    """Return the section name of a header. It is the name in the official table. For a header that is not there, it is
    the main section that the header contains, else "findings" if the header names a view, else the header itself.
    ``corrected``: whether to correct the table's mistakes that the key ``corrections`` lists."""
    tables, name = _tables(), header.lower().strip()
    names = tables["names"] | tables["corrections"] if corrected else tables["names"]
    if name in names:
        return names[name]
    view_name = "findings" if any(phrase in name for phrase in tables["view_phrases"]) else name
    return next((main for main in tables["main_sections"] if main in name), view_name)


def split_report(text: str, *, corrected: bool = False) -> list[Section]:
    """Return the sections of a report, in order. A text without a header becomes one section named "full report".
    ``corrected``: whether to correct listed mistakes of the official table of section names."""
    header = HEADER.search(text)
    if header is None:
        return _with_last_paragraph([Section("full report", text, 0)])
    sections = [Section("preamble", text[: header.start(1)], 0)]
    while header is not None:
        start = header.end()
        line_end = text.find("\n", start)
        following = HEADER.search(text, line_end if line_end >= 0 else start)
        end = following.start() if following else len(text)
        sections.append(Section(normal_name(header.group(1), corrected=corrected), text[start:end], start))
        header = following
    nonempty_sections = [s for s in sections if s.name not in ("findings", "impression") or s.text.strip()]
    return _with_last_paragraph(nonempty_sections)


def _with_last_paragraph(sections: list[Section]) -> list[Section]:
    """Split the last section at its first blank line if the report has neither findings nor impression. The text after
    the blank line becomes the section "last_paragraph"."""
    if any(s.name in ("findings", "impression") for s in sections) or BLANK_LINE not in sections[-1].text:
        return sections
    last = sections[-1]
    head, tail = last.text.split(BLANK_LINE, 1)
    return [*sections[:-1], last._replace(text=head), Section("last_paragraph", tail, last.start + len(head))]


def text_by_name(sections: list[Section]) -> dict[str, str]:
    """Return {section name: stripped text}. If several sections have the same name, the last one counts."""
    return {section.name: section.text.strip() for section in sections}


def manual_sections(text: str, study_id: str) -> dict[str, str] | None:
    """Return {section name: text} for a study that the official code corrects manually, or None for any other study.
    The table of corrections has either offsets, between which the text becomes the findings (empty for ``[0, 0]``), or
    a section that becomes the impression. ``study_id`` may lack its leading ``s``."""
    tables, key = _tables(), "s" + str(study_id).removeprefix("s")
    if key in tables["custom_indices"]:
        start, end = tables["custom_indices"][key]
        return {"findings": text[start:end].strip()}
    name = tables["custom_section_names"].get(key)
    return {"impression": text_by_name(split_report(text)).get(name, "")} if name else None


def choose_section(sections: dict[str, str]) -> tuple[str, str] | None:
    """Return (name, text) of the first section of ``SECTION_NAMES`` that is not blank, or None if all are blank."""
    return next(((name, sections[name]) for name in SECTION_NAMES if (sections.get(name) or "").strip()), None)


def other_section(sections: dict[str, str], section_name: str) -> tuple[str, str] | None:
    """Return (name, text) of a second section to read besides ``section_name``, or None. For the findings, it is the
    impression. For the impression, it is the findings. The addendum is appended, or returned alone if that section is
    blank or ``section_name`` is "last_paragraph". Findings in it can only keep the dataset from denying a lesion."""
    names = () if section_name == "last_paragraph" else ("findings", "impression")
    other_names = [name for name in (*names, "addendum") if name != section_name and (sections.get(name) or "").strip()]
    return (other_names[0], "\n\n".join(sections[name] for name in other_names)) if other_names else None
