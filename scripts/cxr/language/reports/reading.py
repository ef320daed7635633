"""Preparation of a report for the engines. Identifiers are removed, and the section to read is split into sentences."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol

from cxr.base.faults import broken_part
from cxr.base.regular_files import open_regular
from cxr.language.reports import forms, layouts, sections
from cxr.language.reports.corrections import CorrectedReport, apply_corrections
from cxr.language.reports.decoding import NoText, decode, normalize_text
from cxr.language.reports.privacy.scrubbing import add_counts, scrub
from cxr.language.reports.sentences import split_sentences

COLUMNS = ("findings", "impression")
CORRECTED = "a heading that the official table names wrongly is corrected"
_BYTES_A_CHARACTER = 64
"""Maximum size of a report file, in bytes per allowed character. RTF and HTML need many bytes for each character."""


class ReadingOptions(Protocol):
    """Options of all stages that read reports. ``scrub``: whether to remove identifiers. ``sections``: the method that
    finds sections, ``mimic`` or ``tolerant``. :mod:`cxr.language.reports.settings` explains the other two."""

    scrub: bool
    sections: str
    section_overrides: bool
    max_characters: int


@dataclass(frozen=True)
class Section:
    """The section of a report to read. ``spans`` has the characters [start, end) of each sentence.

    ``beside`` is (name, text) of a second section, such as the impression beside the findings. Findings in ``beside``
    can only keep the dataset from denying a lesion. ``removed`` has the number of removed identifiers by kind.
    ``corrected``: whether a heading that the official table names wrongly was renamed.
    """

    name: str
    text: str
    spans: list[tuple[int, int]]
    beside: tuple[str, str] | None
    addendum: str = ""
    further_text: str = ""  # Text of further sections, such as a comment, that can only prevent denials
    removed: Mapping[str, int] = field(default_factory=dict)
    corrected: bool = False
    written: tuple[str, ...] = (forms.PROSE,)  # Kinds of form in the report

    @property
    def sentences(self) -> list[str]:
        return [self.text[start:end] for start, end in self.spans]

    @cached_property
    def second_section(self) -> "Section | None":
        """The report's other section (``beside``), or None."""
        if self.beside is None:
            return None
        name, text = self.beside
        return Section(name, text, split_sentences(text), None, self.addendum, self.further_text, self.removed)


class _Unusable(Exception):
    """Raised for a report that cannot be used. The arguments are the code of the reason and a detail."""


def read_section(row: dict, options: ReadingOptions, *, is_checked: bool = True) -> Section | tuple[str, str]:
    """Return the section of a study's report to read, or (reason, detail) if the report cannot be used. A form or
    correction that is not understood makes the report unusable if ``is_checked``, and otherwise stays in the text."""
    removed: dict[str, int] = {}
    written: set[str] = set()
    try:
        section_texts, corrected = _read_sections(row, options, removed, written, is_checked=is_checked)
    except _Unusable as unusable:
        reason, detail = unusable.args
        return reason, detail
    name_and_text = sections.choose_section(section_texts)
    if name_and_text is None and removed:
        return "no_report", "no text is left after signatures and identifiers are removed"
    if name_and_text is None:
        reason = "no text in " + ", ".join(sections.SECTION_NAMES)
        return "empty_report", f"{reason}; {CORRECTED}" if corrected else reason
    name, text = name_and_text
    return Section(
        name,
        text,
        split_sentences(text),
        sections.other_section(section_texts, name),
        section_texts.get("addendum", ""),
        layouts.remaining_text(section_texts, name),
        removed,
        corrected,
        tuple(sorted(written)) or (forms.PROSE,),
    )


def read_whole_report(row: dict, options: ReadingOptions) -> Section | tuple[str, str]:
    """Return all sections of a report as one section, or (reason, detail) if the report cannot be used. A form
    or a correction that cannot be interpreted remains in the text as it is."""
    section = read_section(row, options, is_checked=False)
    if not isinstance(section, Section):
        return section
    parts = (section.text, section.beside[1] if section.beside else "", section.further_text)
    text = "\n\n".join(filter(str.strip, parts))
    return replace(section, text=text, spans=split_sentences(text), beside=None, addendum="", further_text="")


def report_row(images: Sequence[dict]) -> dict:
    """Return the row with the report among the rows of a study's images, of which the manifest may give only one a
    report. It is the first row with a text or a file, else the first whose file is missing, else the first of all."""
    rows_with_report = (
        row for row in images if row.get("report_path") or any((row.get(name) or "").strip() for name in COLUMNS)
    )
    missing = (row for row in images if row.get("report_missing"))
    return next(rows_with_report, None) or next(missing, None) or images[0]


def report_file(row: dict) -> str | None:
    """Return the path of a study's report file, or None if there is no file or the row itself contains the text."""
    return None if any((row.get(name) or "").strip() for name in COLUMNS) else row.get("report_path")


def _read_sections(
    row: dict, options: ReadingOptions, removed: dict[str, int], written: set[str], *, is_checked: bool
) -> tuple[dict[str, str], bool]:
    """Return ({section name: text}, whether a heading was corrected) of the report in a study's columns or file. Count
    the removed identifiers in ``removed``, by kind, and add the kinds of form ("table") to ``written``. Raises
    _Unusable if there is no text or, if ``is_checked``, for a form or correction that is not understood."""

    def scrubbed(text: str) -> str:
        if not options.scrub:
            return text
        scrubbed_report = scrub(text, row["subject_id"])
        removed.update(add_counts(removed, scrubbed_report.removed))
        return scrubbed_report.text

    read_form = partial(_read_form, scrubbed=scrubbed, written=written, is_checked=is_checked)
    columns = {name: row.get(name) or "" for name in COLUMNS}
    if any(text.strip() for text in columns.values()):
        _check_length(sum(map(len, columns.values())), options)
        if options.sections == "mimic":
            return {name: scrubbed(text.strip()) for name, text in columns.items() if text}, False
        texts_by_name: dict[str, list[str]] = {}
        for column, column_text in columns.items():
            column_sections = layouts.split_layout(read_form(column_text), column) if column_text.strip() else {}
            for name, text in column_sections.items():
                texts = texts_by_name.setdefault(name, [])
                texts += [text] if text and text not in texts else []
        return {name: "\n\n".join(texts) for name, texts in texts_by_name.items()}, False
    if path := report_file(row):
        text = _read_text(Path(path), options)
        if options.sections == "mimic":  # the official corrections give offsets in the original text
            section_texts, corrected = _split_official(text, row["study_id"], options)
            return {name: scrubbed(part) for name, part in section_texts.items()}, corrected
        return layouts.split_layout(read_form(text)), False
    if row.get("report_missing"):
        raise _Unusable("missing_report", "the report file named in the cohort does not exist")
    if any(row.get(name) is not None for name in COLUMNS):
        return {}, False
    raise _Unusable("no_report", "")


def _split_official(text: str, study_id: str, options: ReadingOptions) -> tuple[dict[str, str], bool]:
    manual_sections = sections.manual_sections(text, study_id) if options.section_overrides else None
    if manual_sections is not None:
        return manual_sections, False
    section_texts = sections.text_by_name(sections.split_report(text, corrected=options.section_overrides))
    return section_texts, options.section_overrides and sections.needs_correction(text)


def _read_form(text: str, *, scrubbed: Callable[[str], str], written: set[str], is_checked: bool) -> str:
    """Return a report's text without identifiers, which ``scrubbed`` removes, and with form lines as sentences. Add the
    kinds of form to ``written``. If ``is_checked``, raise _Unusable for a form or correction that is not understood."""
    from cxr.language.reports.witnesses import load_second_reader  # imports spaCy, which planning does not need

    words, reader = forms.load_words(), load_second_reader()
    normal_text = normalize_text(text)
    try:
        form = forms.unfold(normal_text, words)
    except forms.UnreadForm as unread:
        _refuse("unread_form", unread, is_checked)
        form = forms.Form(normal_text)
    form.text = forms.drop_page_heads(scrubbed(form.text), words)
    try:
        form = forms.read_lines(form, words, reader)
    except forms.UnreadForm as unread:
        _refuse("unread_form", unread, is_checked)
        form.text = form.text.replace("\n", "\n\n")  # makes each line a sentence
    try:
        form.text = apply_corrections(form.text)
    except CorrectedReport as correction:
        _refuse("corrected_report", correction, is_checked)
    written.update(form.kinds)
    return form.text


def _refuse(reason: str, error: Exception, is_checked: bool) -> None:
    if is_checked:
        raise _Unusable(reason, str(error)) from None


def _read_text(path: Path, options: ReadingOptions) -> str:
    """Return the text of a report file. Raises _Unusable if it is missing, unreadable or too long."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > options.max_characters * _BYTES_A_CHARACTER:
                raise _Unusable(
                    "too_long",
                    f"the file has {size} bytes, too many for reports.max_characters = {options.max_characters}",
                )
            data = file.read()
        text = decode(data)
    except NoText as no_text:
        raise _Unusable("unreadable_report", str(no_text)) from None
    except FileNotFoundError:
        raise _Unusable("missing_report", "the file was removed after the cohort was read") from None
    except (OSError, ValueError) as error:
        if broken_part(error):
            raise
        reason = getattr(error, "strerror", None) or "the path is invalid"
        raise _Unusable("unreadable_report", f"the file cannot be opened: {reason}") from None
    _check_length(len(text), options)
    return text


def _check_length(characters: int, options: ReadingOptions) -> None:
    if characters > options.max_characters:
        raise _Unusable("too_long", f"{characters} characters; reports.max_characters is {options.max_characters}")
