"""Gather the evidence for negatives from a report line and a row of the masks stage's studies table.

The masks stage says where findings are, because it has the zone masks. The report's tuples say what is denied.
"""

from cxr.base.vocabulary import LESIONS, LUNGS, VALID_LOCATIONS, side_of, zones_of
from cxr.ils.dataset.negatives import OPACITY, Evidence


def gather_evidence(study: dict, line: dict, unknown_words_max: float) -> Evidence:
    """Gather the evidence of one study. ``study`` is a row of the studies table, ``line`` the study's report line.

    ``unknown_words_max``: share of unknown words above which a report's silence is no evidence of absence.
    A negative tuple whose ``denies`` is false says only that the finding is not new.
    """
    negative = [row for row in line["tuples"] if row["presence"] == "negative" and row["lesion_type"] in LESIONS]
    denials = [row for row in negative if row.get("denies", True)]
    definite = [row for row in denials if row["certainty"] == "definitive"]
    negated: dict[str, frozenset[str]] = {}
    for row in definite:
        negated[row["lesion_type"]] = negated.get(row["lesion_type"], frozenset()) | list_locations_inside(row)
    standing = [row["lesion"] for row in study["standing"]]
    return Evidence(
        study_id=study["study_id"],
        empty=frozenset(study["empty"]),
        blocked={row["lesion"]: frozenset(row["locations"]) for row in study["lesion_blocked"]},
        global_blocked=frozenset(row["lesion"] for row in study["lesion_blocked"] if row["global_blocked"]),
        standing=frozenset(standing),
        elsewhere=frozenset(standing) - find_affirmed(line["tuples"]),
        related=frozenset(study["related"]),
        negated=negated,
        everywhere=frozenset(row["lesion_type"] for row in definite if not row["location"]),
        unclear=frozenset(row["lesion_type"] for row in negative if not row.get("denies", True)),
        doubted=frozenset(row["lesion_type"] for row in denials if row["certainty"] != "definitive"),
        about_lungs=line["mentions_lungs"] and not line["comparison_only"],
        understood=line["unknown_share"] <= unknown_words_max,
        ctr=study["ctr"],
    )


def find_affirmed(tuples: list[dict]) -> set[str]:
    """Return the names that the positive tuples of a section affirm, hedge or name as a candidate.

    A tentative tuple also affirms an opacity, because its text says so.
    """
    affirmed_names: set[str] = set()
    for row in tuples:
        if row["presence"] == "positive":
            names = {row["lesion_type"], row["predicted_lesion_type"], *(row.get("candidates") or ())} - {None}
            affirmed_names |= names | ({OPACITY} if names and row["certainty"] != "definitive" else set())
    return affirmed_names


def list_locations_inside(row: dict) -> frozenset[str]:
    """Return the valid locations that lie inside a tuple's place: all without a place, none for an unmapped place.

    A whole lung contains its zones by name. A lobe contains no zone for certain, so it adds nothing.
    """
    if not row["location"]:
        return frozenset(VALID_LOCATIONS)
    locations: set[str] = set()
    for label in row["labels"]:
        if label in LUNGS:
            locations |= {label, *zones_of(side_of(label))}
        elif label in VALID_LOCATIONS:
            locations.add(label)
    return frozenset(locations)
