"""Score the reading of clinical texts: findings, certainty, locations, false denials, texts that are not reports.

A text of the suite (:class:`reports_labelled.Clinical`) holds one careful reading: its findings with places, and the
lesion types that may not be denied of it (``affirmed_or_possible``). Counts of one text are a row of :data:`COUNTS`;
rows add up, so that intervals come from drawings of texts. The rules of the suite's fields:

* a lesion counts as found where an affirmed tuple is of its type, or of a finding that may stand for it. Beyond the
  listed findings no type of ``affirmed_or_possible`` or ``unscored`` is extra; a denied type of ``denied`` neither;
* certainty is that of the type's own tuple, or of the link where a finding only stands for it (``inferred_from``);
  not scored where the reading has ``certainty_free``;
* places are the zones of all tuples that tell the type, lobes as the zone they mostly lie in; right where they are
  exactly ``locations`` or one of ``locations_alt``;
* a type is falsely denied where it may not be, nothing stands of it (a standing consolidation is an opacity, a
  neighbouring term or a doubtful denial forbids to deny), and the dataset could deny it: a tuple denies it, or the
  section speaks of the lungs and never of the type.
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
"""What is counted of a text. "kept": lesion types that may not be denied and are not; "other": texts in another
language or without a report, right if they give no lesion; "reason": those with a reason the suite can name."""
LOBES = {"upper": "upper zone lung", "middle": "mid zone lung", "lower": "lung base"}
REASONS = {NO_REPORT: ("no_report", "empty_report")}
"""Reasons that say of a text what it is; in another language only ``not_english`` does."""


class Answer(NamedTuple):
    """What was read in a text: tuples, whether it speaks of the lungs, or why it cannot be used."""

    tuples: list[dict]
    mentions_lungs: bool = True
    related: tuple[str, ...] = ()
    reason: str | None = None


class Score(NamedTuple):
    """The row of counts of a text, and each of its errors as (kind, lesion or "", what was wanted and read)."""

    row: np.ndarray
    errors: list[tuple[str, str, str]]


def lesions_of(item: dict) -> set[str]:
    """Return the lesion types that a tuple is or may stand for."""
    return {item["lesion_type"], item["predicted_lesion_type"], *item["candidates"]}.intersection(LESIONS)


def zones_of(item: dict) -> set[str]:
    """Return the valid locations of a tuple, lobes as the zone that they mostly lie in."""
    found = set()
    for label in item["labels"]:
        side = "right" if "right" in label else "left"
        lobe = next((zone for name, zone in LOBES.items() if f"{name} lobe" in label), None)
        found |= {f"{side} {lobe}"} if lobe else {label}.intersection(VALID_LOCATIONS)
    return found


def score(text: Clinical, answer: Answer) -> Score:
    """Count one text."""
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
    """A text in another language or without a report: no lesion may come of it, and the reason should say so."""
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
    """Certainty and places of a finding that was found."""
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
    """Return the lesion types that forbid a denial: affirmed, doubtfully denied, their neighbours and parents."""
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
    """Return what the stage reads with under the default settings."""
    chosen = params.stage_options(settings.Settings())["reports"]
    return read_reports.make_reader(read_reports.ReportsOptions(**chosen | {"engine": "rules"}))


def answer(text: Clinical, reader: read_reports._Reader) -> Answer:
    """Read a text as the stage reads a manifest's column ``findings``."""
    row = {"study_id": text.id, "subject_id": text.id, "findings": text.text, "impression": None}
    line = read_reports.study_line(row, reader)
    if not isinstance(line, dict):
        return Answer([], False, (), line[0])
    return Answer(line["tuples"], line["mentions_lungs"], tuple(line["related"]))


def measures(rows: list[np.ndarray], rounds: int) -> dict[str, Measure]:
    """Return each measure of texts with its interval, by the names of ``reports_floors.yaml``."""
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
    """Return the function that gives right / told of a measure."""
    return lambda counts: ratio_or_nan(_of(counts, f"{name} right"), _of(counts, f"{name} told"))


def _of(counts: np.ndarray, name: str) -> np.ndarray:
    return np.asarray(counts[..., COUNTS.index(name)], float)


def halves(texts: int, every: int | None) -> Iterator[tuple[str, list[int]]]:
    """Yield (name, indices): all, and with ``every`` those that may be looked at and each ``every``-th that may not."""
    yield "all", list(range(texts))
    if every:
        yield "read", [i for i in range(texts) if i % every != every - 1]
        yield "unread", [i for i in range(texts) if i % every == every - 1]
