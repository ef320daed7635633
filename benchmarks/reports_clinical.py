"""Score the reading of clinical texts: findings, certainty, locations, false denials, texts that are not reports.

Each text of the suite (:class:`reports_labelled.Clinical`) has one ground truth: its findings with locations, and the
lesion types that must not be denied (``affirmed_or_possible``). The counts of a text are a row of :data:`COUNTS`. Rows
can be added, so that intervals come from resampled texts. The rules are:

* A lesion is a hit if an affirmed tuple has its type, or names a finding that may stand for it. An affirmed type that
  is not listed is extra, unless it is in ``affirmed_or_possible`` or ``unscored``. A denied type that is not listed is
  extra, unless it is in ``denied`` or ``unscored``.
* The certainty is that of the tuple of the lesion type. For a finding that only stands for the lesion, it is that of
  the link (``inferred_from``). It is not scored with ``certainty_free``.
* The places are the zones of all tuples of the lesion; a lobe counts as the zone in which most of it lies. They are
  right if they equal ``locations`` or one of ``locations_alt``.
* A type of ``affirmed_or_possible`` is falsely denied if the dataset could deny it and no reading prevents this. The
  dataset can deny a type that a tuple denies, or that a section on the lungs does not mention. See :func:`standing`.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from cxr.base.vocabulary import LESIONS, VALID_LOCATIONS, kinds_under
from cxr.language.reports import read_reports
from cxr.metrics.labels import ratio_or_nan
from cxr.workflow import params, settings
from reports_labelled import Clinical, Told
from reports_measures import Measure, sums

CARDIOMEGALY = "cardiomegaly"
ENGLISH, NO_REPORT = "en", "no_report"
SIGNS = ("positive", "negative")
COUNTS = (
    *(f"{sign} {kind}" for sign in SIGNS for kind in ("hit", "extra", "missed")),
    *(f"{name} {kind}" for name in ("certainty", "places", "kept", "other", "reason") for kind in ("right", "told")),
    "global denials",
)
"""Names of the counts of a text. "told" counts scored cases, "right" the correct ones. "kept": lesion types that must
not be denied; "other": texts in another language or without a report, right without a lesion; "reason": their reasons.
"""
LOBES = {"upper": "upper zone lung", "middle": "mid zone lung", "lower": "lung base"}
REASONS = {NO_REPORT: ("no_report", "empty_report")}
"""{category: correct reasons for excluding the text}; for a text in another language, it is ``not_english``."""


class Answer(NamedTuple):
    """The reading of a text: tuples, whether it mentions the lungs, or the reason why it cannot be used."""

    tuples: list[dict]
    mentions_lungs: bool = True
    related: tuple[str, ...] = ()
    reason: str | None = None


class Score(NamedTuple):
    """The row of counts of a text, and its errors as (kind, lesion or "", expected and actual reading)."""

    row: np.ndarray
    errors: list[tuple[str, str, str]]


def lesions_of(item: dict) -> set[str]:
    """Return the lesion types that a tuple has or may stand for."""
    return {item["lesion_type"], item["predicted_lesion_type"], *item["candidates"]}.intersection(LESIONS)


def zones_of(item: dict) -> set[str]:
    """Return the valid locations of a tuple; a lobe becomes the zone in which most of it lies."""
    found = set()
    for label in item["labels"]:
        side = "right" if "right" in label else "left"
        lobe = next((zone for name, zone in LOBES.items() if f"{name} lobe" in label), None)
        found |= {f"{side} {lobe}"} if lobe else {label}.intersection(VALID_LOCATIONS)
    return found


def score(text: Clinical, answer: Answer) -> Score:
    """Return the score of one text."""
    row, errors = dict.fromkeys(COUNTS, 0), []
    affirmed = [item for item in answer.tuples if item["presence"] == "positive"]
    denied = [item for item in answer.tuples if item["presence"] == "negative"]
    other = text.language != ENGLISH or text.category == NO_REPORT
    if other:
        _count_other(text, answer, row, errors)
    else:
        _count_findings(text, affirmed, denied, row, errors)
        for told in text.findings:
            tuples = [item for item in affirmed if told.lesion in lesions_of(item)]
            if told.presence == "positive" and tuples:
                _count_details(told, tuples, row, errors)
    if text.category != NO_REPORT:
        _count_denials(text, answer, affirmed, denied, row, errors)
    return Score(np.array([row[name] for name in COUNTS]), errors)


def _count_other(text: Clinical, answer: Answer, row: dict, errors: list) -> None:
    """Count a text in another language or without a report: it must give no lesion and the correct reason."""
    found = set().union(*map(lesions_of, answer.tuples)) if answer.tuples else set()
    wanted = ("not_english",) if text.language != ENGLISH else REASONS[NO_REPORT]
    row["other told"], row["other right"] = 1, not found
    row["reason told"], row["reason right"] = 1, answer.reason in wanted
    if found:
        errors.append(("other", "", f"lesions {', '.join(sorted(found))} from a text that should give none"))
    if answer.reason not in wanted:
        errors.append(("reason", "", f"wanted {' or '.join(wanted)}, read {answer.reason}"))


def _count_findings(text: Clinical, affirmed: list[dict], denied: list[dict], row: dict, errors: list) -> None:
    unscored = set(text.unscored)
    for sign, tuples in zip(SIGNS, (affirmed, denied), strict=True):
        wanted = {told.lesion for told in text.findings if told.presence == sign}
        if sign == "positive":
            found = set().union(*map(lesions_of, tuples))
            free = set(text.affirmed_or_possible) | unscored
        else:
            found = {item["lesion_type"] for item in tuples}.intersection(LESIONS) - (set(text.denied) - wanted)
            free = unscored
        counted = {"hit": wanted & found, "missed": wanted - found, "extra": found - wanted - free}
        for kind, lesions in counted.items():
            row[f"{sign} {kind}"] = len(lesions)
            errors += [(kind, lesion, f"{kind} {sign}") for lesion in sorted(lesions) if kind != "hit"]


def _count_details(told: Told, tuples: list[dict], row: dict, errors: list) -> None:
    """Count the certainty and the places of a finding that was hit."""
    if not told.certainty_free:
        found = {certainty_of(item, told.lesion) for item in tuples}
        row["certainty told"] += 1
        row["certainty right"] += told.certainty in found
        if told.certainty not in found:
            errors.append(("certainty", told.lesion, f"certainty: wanted {told.certainty}"))
    if told.lesion != CARDIOMEGALY and told.locations is not None:
        found = set().union(*map(zones_of, tuples))
        right = any(found == set(places) for places in (told.locations, *told.locations_alt))
        row["places told"] += 1
        row["places right"] += right
        if not right:
            wanted = ", ".join(sorted(told.locations)) or "none"
            errors.append(("place", told.lesion, f"places: wanted {wanted}, read {', '.join(sorted(found)) or 'none'}"))


def certainty_of(item: dict, lesion: str) -> str:
    if item["lesion_type"] == lesion:
        return item["certainty"]
    sure = item["certainty"] == "definitive" and item["predicted_hedge"] in (None, "definite")
    return "definitive" if sure else "tentative"


def standing(answer: Answer) -> set[str]:
    """Return the lesion types that cannot be denied: affirmed, tentatively denied, related types and their parent
    types."""
    affirmed = [item for item in answer.tuples if item["presence"] == "positive"]
    found = set().union(*map(lesions_of, affirmed)) | set(answer.related)
    for item in affirmed:
        found |= set(_listed(item["related"]))
    found |= {item["lesion_type"] for item in answer.tuples if not item["denies"]}
    found |= {i["lesion_type"] for i in answer.tuples if i["presence"] == "negative" and i["certainty"] == "tentative"}
    return found | {lesion for lesion in LESIONS if found.intersection(kinds_under(lesion))}


def _listed(value: str | list[str] | None) -> Iterable[str]:
    return [value] if isinstance(value, str) else value or ()


def _count_denials(text: Clinical, answer: Answer, affirmed, denied, row: dict, errors: list) -> None:
    stands = standing(answer)
    for lesion in text.affirmed_or_possible:
        by_tuple = [item for item in denied if item["lesion_type"] == lesion]
        silent = answer.reason is None and answer.mentions_lungs and lesion != CARDIOMEGALY
        wrong = lesion not in stands and (bool(by_tuple) or silent)
        row["kept told"] += 1
        row["kept right"] += not wrong
        row["global denials"] += wrong and any(not item["location"] for item in by_tuple)
        if wrong:
            errors.append(("denial", lesion, "false denial " + ("by a tuple" if by_tuple else "by silence")))


def reader() -> read_reports._Reader:
    """Return the reader of the stage reports with the default settings and the engine rules."""
    chosen = params.stage_options(settings.Settings())["reports"]
    return read_reports.make_reader(read_reports.ReportsOptions(**chosen | {"engine": "rules"}))


def answer(text: Clinical, reader: read_reports._Reader) -> Answer:
    """Read a text as the stage reads the column ``findings`` of a manifest."""
    row = {"study_id": text.id, "subject_id": text.id, "findings": text.text, "impression": None}
    line = read_reports.study_line(row, reader)
    if not isinstance(line, dict):
        return Answer([], False, (), line[0])
    return Answer(line["tuples"], line["mentions_lungs"], tuple(line["related"]))


def measures(rows: list[np.ndarray], rounds: int) -> dict[str, Measure]:
    """Return {name in ``reports_floors.yaml``: measure} of the rows of texts."""
    drawn = sums(np.array(rows).reshape(-1, len(COUNTS)), [str(number) for number in range(len(rows))], rounds)
    whole = drawn.whole
    ways = {
        "findings F1": (lambda counts: _f1(counts, SIGNS), _told(whole, SIGNS)),
        "affirmed F1": (lambda counts: _f1(counts, SIGNS[:1]), _told(whole, SIGNS[:1])),
        "denied F1": (lambda counts: _f1(counts, SIGNS[1:]), _told(whole, SIGNS[1:])),
        "certainty": (_right("certainty"), _of(whole, "certainty told")),
        "places exact": (_right("places"), _of(whole, "places told")),
        "false denials": (lambda counts: 1 - _right("kept")(counts), _of(whole, "kept told")),
        "global false denials": (lambda counts: _of(counts, "global denials"), _of(whole, "kept told")),
        "non-reports give nothing": (_right("other"), _of(whole, "other told")),
        "non-reports' reason": (_right("reason"), _of(whole, "reason told")),
    }
    return {name: drawn.measure(score, cases) for name, (score, cases) in ways.items()}


def _told(counts: np.ndarray, signs: tuple[str, ...]) -> int:
    return int(sum(_of(counts, f"{sign} {kind}") for sign in signs for kind in ("hit", "missed")))


def _f1(counts: np.ndarray, signs: tuple[str, ...]) -> np.ndarray:
    hit, extra, missed = (sum(_of(counts, f"{sign} {kind}") for sign in signs) for kind in ("hit", "extra", "missed"))
    return ratio_or_nan(2 * hit, 2 * hit + extra + missed)


def _right(name: str) -> Callable[[np.ndarray], np.ndarray]:
    """Return the function that computes right / told of the measure ``name``."""
    return lambda counts: ratio_or_nan(_of(counts, f"{name} right"), _of(counts, f"{name} told"))


def _of(counts: np.ndarray, name: str) -> np.ndarray:
    return np.asarray(counts[..., COUNTS.index(name)], float)


def halves(texts: int, every: int | None) -> Iterator[tuple[str, list[int]]]:
    """Yield (name, text indices): all texts, and with ``every`` the "read" texts and each ``every``-th, "unread"
    text."""
    yield "all", list(range(texts))
    if every:
        yield "read", [i for i in range(texts) if i % every != every - 1]
        yield "unread", [i for i in range(texts) if i % every == every - 1]
