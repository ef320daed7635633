"""Handing over reports from the rules to a language model (engine both), and the denials on which the two agree.

A report is handed over if the rules refuse it (``REFUSALS``) or leave something in it open (``find_gap``). The model's
tuples then replace those of the rules, but the rules can still forbid denials:

* In a report that the rules refuse, nothing is denied: there is no second reading that could agree.
* In all other reports, a denial by the model counts only if the rules deny the same lesion type at the same location
  and leave that type open nowhere in the report. Findings that the rules affirm block negatives, and a witness needs
  both readings. So every negative with a witness would also be allowed by the rules alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cxr.base.vocabulary import LESIONS, LUNGS, side_of, zones_of
from cxr.language.reports import reading
from cxr.language.reports.rules.statements import sort_lesions
from cxr.language.reports.witnesses import Witness

REFUSALS = ("unread_form", "corrected_report", "not_english")
"""Reasons for which the rules exclude a report that a language model may be able to read."""
UNKNOWN_WORDS, DENIAL, MENTION = "unknown_words", "denial_not_understood", "neither_affirmed_nor_denied"


@dataclass(frozen=True)
class HandOver:
    """A report that is handed over: the section to read, the reason, and the rules' line (None if they refuse it)."""

    section: reading.Section
    reason: str
    rules_line: dict | None = None


def find_hand_over(
    row: dict,
    section: reading.Section | tuple[str, str],
    outcome: dict | tuple[str, str],
    options: reading.ReadingOptions,
) -> HandOver | None:
    """Return the hand-over of a study; None if the report stays with the rules.

    ``section``: the section read from the report; ``outcome``: the rules' line, or (reason, detail).
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
    """Return the reason why the rules' reading of a report is incomplete; None if it is complete.

    Reasons: an unknown word could be a finding, the second reader does not understand a denial, or a lesion type is
    mentioned but neither affirmed nor denied.
    """
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
    """Return the model's line of a study, keeping only the denials that the rules share."""
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
    """True if the rules deny the type of the model's ``denial`` at its location, and leave that type open nowhere."""
    negatives = [
        item for item in rules_tuples if item["presence"] == "negative" and item["lesion_type"] == denial["lesion_type"]
    ]
    return all(map(_denies, negatives)) and any(
        not item["location"] or (denial["location"] and _locations(denial) <= _locations(item)) for item in negatives
    )


def _locations(item: Mapping) -> set[str]:
    """Return the labels of a tuple, plus the zones of each label that is a whole lung."""
    return set(item["labels"]).union(*(zones_of(side_of(label)) for label in item["labels"] if label in LUNGS))
