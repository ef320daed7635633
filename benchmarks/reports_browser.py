"""Write the error browser: one HTML page without a network that shows how each report was read.

Each text is shown with its findings coloured by decision, its tuples and, if there are any, the human labels. The
template escapes the texts, and the page's content security policy forbids it to load anything.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import jinja2

from cxr.base.atomic import atomic_file
from cxr.base.errors import UserError
from cxr.base.vocabulary import LESIONS
from cxr.language.reports import sentences
from reports_labelled import Case, Clinical, Expected, Report
from reports_marks import DECISIONS, Piece, marks_of, pieces_of, row_of
from reports_scores import WAYS, case_right, found_lesions, places_of

TEMPLATE = Path(__file__).with_suffix(".html.j2")
LABELLED = {
    "all": "all reports",
    "errors": "any error",
    "missed": "missed",
    "extra": "extra",
    "place": "wrong place",
}
READ = {"all": "all reports", "affirmed": "affirmed", "weak": "only weakly hedged", "denied": "denied"}


@dataclass
class Entry:
    """An article of the page. ``kinds``: {filter: lesions for which it shows the article}; ``rows``, ``gold``: table
    rows."""

    name: str
    verdict: str
    kinds: dict[str, list[str]]
    pieces: list[Piece]
    rows: list[tuple]
    gold: list[tuple] = field(default_factory=list)
    more: list[tuple] = field(default_factory=list)
    """Rows of the tuples in the report's other section."""

    @property
    def wrong(self) -> bool:
        return "errors" in self.kinds


@dataclass
class Page:
    """Data for the template. ``total`` and ``wrong`` count all reports, also those that are not shown."""

    title: str
    filters: dict[str, str]
    reports: list[Entry]
    total: int
    wrong: int = 0
    cases: list[Entry] = field(default_factory=list)


def in_text(text: str, tuples: list[dict]) -> list[dict]:
    """Convert the spans of :func:`reports_accuracy.tuples_of` to characters of the whole text; return the tuples."""
    starts = [start for start, _ in sentences.split_sentences(text)]
    return [item | {"span": [c + starts[item["sentence_index"] - 1] for c in item["span"]]} for item in tuples]


def report_entry(number: int, report: Report, tuples: list[dict]) -> Entry:
    """Return the article of a labelled report."""
    found, gold = found_lesions(tuples), set(report.lesions)
    places = {lesion: places_of(report, lesion, found) for lesion in gold & found.keys()}
    kinds = {
        "all": gold | found.keys() | found_lesions(tuples, WAYS["all"]).keys(),
        "missed": gold - found.keys(),
        "extra": found.keys() - gold,
        "place": {lesion for lesion, place in places.items() if False in place},
    }
    kinds["errors"] = kinds["missed"] | kinds["extra"] | kinds["place"]
    words = [f"{LABELLED[kind]} {', '.join(_ordered(kinds[kind]))}" for kind in ("missed", "extra", "place")]
    words = [word for word, kind in zip(words, ("missed", "extra", "place"), strict=True) if kinds[kind]]
    told = [
        (item.lesion or "", item.term or "", ", ".join(item.sides), ", ".join(item.zone_family), item.side_implied)
        for item in report.gold
    ]
    told += [(lesion, "", "", "", False) for lesion in _ordered(gold - {item.lesion for item in report.gold})]
    name = f"report {number if report.uid is None else report.uid}"
    return _entry(name, "; ".join(words) or "right", kinds, report.text, in_text(report.text, tuples), told)


def case_entry(number: int, case: Case, tuples: list[dict]) -> Entry:
    """Return the article of a labelled sentence."""
    told = [
        ("" if reading is case.expected else "or", item.entity, item.presence, *_of_case(item))
        for reading in (case.expected, *case.alternatives)
        for item in reading
    ]
    lesions = {item.lesion for item in case.expected if item.lesion} | found_lesions(tuples, WAYS["all"]).keys()
    right = case_right(case, tuples)
    kinds = {"all": lesions} if right else {"all": lesions, "errors": lesions}
    name = f"sentence {number if case.id is None else case.id}" + (f" ({case.note})" if case.note else "")
    return _entry(name, "right" if right else "wrong", kinds, case.report, in_text(case.report, tuples), told, True)


def _of_case(item: Expected) -> tuple[str, str, str]:
    wanted = item.predicted_lesion_type or ()
    certainty = "either" if item.certainty_free else item.certainty or ""
    candidates = wanted if isinstance(wanted, str) else ", ".join(wanted)
    return certainty, candidates, ", ".join(sorted(item.labels15))


def result_entry(line: dict) -> Entry:
    """Return the article of a study, ``line``, from the output of the stage reports."""
    tuples = line["tuples"]
    kept = found_lesions(tuples, WAYS["all"]).keys()
    denied = {item["lesion_type"] for item in tuples if item["presence"] == "negative" and item["lesion_type"]}
    kinds = {"affirmed": found_lesions(tuples).keys(), "weak": kept - found_lesions(tuples).keys(), "denied": denied}
    kinds["all"] = kept | denied
    words = [f"{READ[kind]} {', '.join(_ordered(kinds[kind]))}" for kind in ("affirmed", "weak") if kinds[kind]]
    name = f"study {line['study_id']}, {line.get('section_name', '')}".rstrip(", ")
    entry = _entry(name, "; ".join(words) or "no lesion affirmed", kinds, line["section_text"], tuples, [])
    entry.more = [row_of(number, item) for number, item in enumerate(line.get("other_tuples") or [], start=1)]
    return entry


def _entry(name, verdict, kinds, text, tuples, gold, always: bool = False) -> Entry:
    kinds = {kind: _ordered(lesions) for kind, lesions in kinds.items() if lesions or kind == "all" or always}
    rows = [row_of(number, item) for number, item in enumerate(tuples, start=1)]
    return Entry(name, verdict, kinds, pieces_of(text, marks_of(text, tuples)), rows, gold)


def _ordered(lesions: Iterable[str]) -> list[str]:
    return sorted(lesions, key=LESIONS.index)


def labelled_page(
    reports: list[Report], answers: list[list[dict]], cases: list[Case], case_answers: list[list[dict]], show: int
) -> Page:
    """Return the page of labelled reports and sentences, wrong ones first, with at most ``show`` reports."""
    entries = [report_entry(n, r, t) for n, (r, t) in enumerate(zip(reports, answers, strict=True), start=1)]
    entries.sort(key=lambda entry: not entry.wrong)
    of_cases = [case_entry(n, c, t) for n, (c, t) in enumerate(zip(cases, case_answers, strict=True), start=1)]
    of_cases.sort(key=lambda entry: not entry.wrong)
    wrong = sum(entry.wrong for entry in entries)
    return Page("Labelled reports and what was read", LABELLED, entries[:show], len(entries), wrong, of_cases)


CLINICAL = {
    "all": "all texts",
    "errors": "any error",
    "denial": "falsely denied",
    "missed": "missed",
    "extra": "extra",
    "place": "wrong place",
    "certainty": "wrong certainty",
    "other": "from a text that should give nothing",
    "reason": "wrong reason",
}


def clinical_entry(text: Clinical, tuples: list[dict], errors: list[tuple[str, str, str]]) -> Entry:
    """Return the article of a clinical text; the spans of ``tuples`` count characters of the text."""
    kinds = {kind: [lesion for found, lesion, _ in errors if found == kind and lesion] for kind in CLINICAL}
    general = {kind for kind, lesion, _ in errors if not lesion}
    told = {item.lesion for item in text.findings} | {lesion for _, lesion, _ in errors if lesion}
    kinds |= {"all": told, "errors": {lesion for _, lesion, _ in errors if lesion}}
    entry = _entry(
        f"text {text.id}",
        "; ".join(what if not lesion else f"{lesion}: {what}" for _, lesion, what in errors) or "right",
        {kind: set(lesions) for kind, lesions in kinds.items()},
        text.text,
        tuples,
        [
            (
                f.lesion,
                f"{f.presence}, {f.certainty}" + (", either" if f.certainty_free else ""),
                "",
                ", ".join(f.locations or ()),
                False,
            )
            for f in text.findings
        ],
    )
    for kind in general | ({"errors"} if errors else set()):
        entry.kinds.setdefault(kind, [])
    return entry


def clinical_page(
    texts: list[Clinical], answers: list[list[dict]], errors: list[list[tuple[str, str, str]]], show: int
) -> Page:
    """Return the page of at most ``show`` clinical texts, wrong ones first."""
    entries = [clinical_entry(*each) for each in zip(texts, answers, errors, strict=True)]
    entries.sort(key=lambda entry: not entry.wrong)
    wrong = sum(entry.wrong for entry in entries)
    return Page("Clinical texts and what was read", CLINICAL, entries[:show], len(entries), wrong)


def both(first: Page, second: Page) -> Page:
    """Join two pages, with the reports and the filters of both."""
    entries = sorted([*first.reports, *second.reports], key=lambda entry: not entry.wrong)
    total, wrong = first.total + second.total, first.wrong + second.wrong
    return Page(first.title, first.filters | second.filters, entries, total, wrong, first.cases)


def results_page(path: Path, show: int) -> Page:
    """Return the page of at most ``show`` studies of a run; ``path``: its ``results/reports``, or one ``.jsonl`` in it.

    Raises UserError with one sentence if ``path`` has no lines of the reports stage.
    """
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    entries, total = [], 0
    for file in files:
        read = 0
        try:
            with open(file, encoding="utf-8") as lines:
                for text in lines:
                    read += 1
                    if total + read <= show:
                        entries.append(result_entry(json.loads(text)))
        except OSError as error:
            raise UserError(f"{file} cannot be read: {error.strerror}.") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(f"{file}, line {read}: not written by the reports stage.") from None
        total += read
    if not entries:
        raise UserError(f"{path} holds no line of the reports stage: give results/reports of a run.")
    return Page("What was read in the reports of a run", READ, entries, total)


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8"))


def write(path: str, page: Page) -> None:
    """Write the page. An unpaired surrogate, which UTF-8 cannot encode, becomes a question mark.

    Raises UserError if ``path`` cannot be written.
    """
    parts = _template().generate(page=page, decisions=DECISIONS, lesions=LESIONS)
    try:
        with (
            atomic_file(path) as temporary,
            open(temporary, "w", encoding="utf-8", errors="replace", newline="\n") as file,
        ):
            file.writelines(parts)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.") from None
