"""Selection of the reports that the rules engine hands over to a language model, and limits on the model's denials.

This module serves the engine ``both``. A report is handed over if the rules engine refuses it (``REFUSALS``) or reads
it incompletely (``find_gap``). The model's findings then replace those of the rules engine, but its denials are
limited:

* In a report that the rules engine refuses, no second reading can confirm a denial. Thus, a denial counts only if the
  setting ``dataset.denials`` is ``all``. Its other values, ``explicit`` and ``witnessed``, need both engines.
* In all other reports, a denial counts only if the rules engine denies the lesion type at least at this location, and
  denies the type nowhere with doubt. Findings that the rules engine affirms still prevent negative pairs.

A negative pair is a training pair that denies a lesion.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cxr.base.vocabulary import LESIONS, LUNGS, side_of, zones_of
from cxr.language.reports import reading
from cxr.language.reports.rules.statements import sort_lesions
from cxr.language.reports.witnesses import Witness

REFUSALS = ("unread_form", "corrected_report", "not_english")
"""Exclusion reasons of reports that the rules engine cannot read but a language model may be able to read."""
UNKNOWN_WORDS, DENIAL, MENTION = "unknown_words", "denial_not_understood", "neither_affirmed_nor_denied"


@dataclass(frozen=True)
class HandOver:
    """A report for the language model: the section to read and the reason why the rules engine hands the report over.
    ``rules_line`` is the output line that the rules engine gives, or None if the rules engine refuses the report."""

    section: reading.Section
    reason: str
    rules_line: dict | None = None


def find_hand_over(
    row: dict,
    section: reading.Section | tuple[str, str],
    outcome: dict | tuple[str, str],
    options: reading.ReadingOptions,
) -> HandOver | None:
    """Return the part of a study's report that a language model must read, or None if it need not read the report.

    ``row`` is the study's row in the cohort. ``section`` is the section that the rules engine read, and ``outcome`` the
    study's output line. Each is (reason, detail) if the report cannot be read.
    """
    if isinstance(outcome, dict):
        assert isinstance(section, reading.Section)
        is_first = outcome["section_name"] == section.name
        used_section = section if is_first else section.second_section
        reason = find_gap(outcome)
        return HandOver(used_section, reason, outcome) if reason and used_section else None
    if outcome[0] not in REFUSALS:
        return None
    whole_report = reading.read_whole_report(row, options)
    return HandOver(whole_report, outcome[0]) if isinstance(whole_report, reading.Section) else None


def find_gap(line: Mapping) -> str | None:
    """Return the reason why the rules engine reads a report incompletely, or None if it reads the report completely.
    There are three reasons. An unknown word could be a finding, the second reader (``witnesses.py``) does not
    understand a denial, or a lesion type is mentioned but neither affirmed nor denied."""
    if any(row["finding"] for row in line["unknown_words"]):
        return UNKNOWN_WORDS
    witnesses = line["witnesses"]
    denied = {item["lesion_type"] for item in line["tuples"] if _denies(item)}.intersection(LESIONS)
    if any(not witnesses[lesion]["quotes"] for lesion in denied):
        return DENIAL
    read = {
        lesion
        for item in (*line["tuples"], *line["other_tuples"])
        for lesion in (item["lesion_type"], item["predicted_lesion_type"], *item["candidates"])
    }
    return MENTION if any(witnesses[lesion]["is_mentioned"] for lesion in LESIONS if lesion not in read) else None


def limit_denials(line: dict, hand_over: HandOver) -> dict:
    """Return the model's ``line`` of a study, with ``denies`` false in denials that the rules engine does not confirm.
    Its ``witnesses`` keep evidence only if both engines found it, and none if the rules engine refuses the report."""
    line = line | {"handed_over": hand_over.reason}
    rules_line = hand_over.rules_line
    if rules_line is None:
        unclear = vars(Witness(is_mentioned=True, elsewhere=False))
        return line | {"witnesses": dict.fromkeys(LESIONS, unclear)}
    rules_tuples = rules_line["tuples"]
    return line | {
        "tuples": [
            item | {"denies": not _denies(item) or _is_shared(item, rules_tuples)}
            if item["lesion_type"] and item["denies"]
            else item
            for item in line["tuples"]
        ],
        "other_tuples": line["other_tuples"] + [item for item in rules_tuples if item["presence"] == "positive"],
        "related": sort_lesions([*line["related"], *rules_line["related"]]),
        "comparison_only": line["comparison_only"] or rules_line["comparison_only"],
        "mentions_lungs": line["mentions_lungs"] and rules_line["mentions_lungs"],
        "unknown_words": rules_line["unknown_words"],
        "unknown_share": rules_line["unknown_share"],
        "witnesses": {
            lesion: witness
            | {
                "quotes": witness["quotes"] if line["witnesses"][lesion]["quotes"] else [],
                "elsewhere": witness["elsewhere"] and line["witnesses"][lesion]["elsewhere"],
            }
            for lesion, witness in rules_line["witnesses"].items()
        },
    }


def _denies(item: Mapping) -> bool:
    return item["presence"] == "negative" and item["certainty"] == "definitive" and item["denies"]


def _is_shared(denial: Mapping, rules_tuples: Sequence[Mapping]) -> bool:
    """Return whether the rules engine denies the lesion type of the model's ``denial`` at least at its location, and
    denies this type nowhere in ``rules_tuples`` with doubt or only as a change ("no new edema")."""
    negatives = [
        item for item in rules_tuples if item["presence"] == "negative" and item["lesion_type"] == denial["lesion_type"]
    ]
    return all(map(_denies, negatives)) and any(
        not item["location"] or (denial["location"] and _locations(denial) <= _locations(item)) for item in negatives
    )


def _locations(item: Mapping) -> set[str]:
    """Return the zone labels of a tuple. For each label of a whole lung, the labels of its zones are added."""
    return set(item["labels"]).union(*(zones_of(side_of(label)) for label in item["labels"] if label in LUNGS))
