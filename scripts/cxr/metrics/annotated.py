"""Scores of reports from annotations that a model or a rule engine made: sets of facts, and counts of errors."""

from collections.abc import Collection, Hashable


def set_f1(predicted: Collection[Hashable], reference: Collection[Hashable], empty: float = 0.0) -> float:
    """Return the F1 of a set of facts against the reference's; ``empty`` where both have none.

    RadGraph-F1 takes 0 there: its sets are (tokens, label, whether it has a relation) of each entity.
    """
    ours, theirs = set(predicted), set(reference)
    if not ours and not theirs:
        return empty
    return 2 * len(ours & theirs) / (len(ours) + len(theirs))


def green(matched: int, errors: int) -> float:
    """Return GREEN of a report: matched findings over these and the clinically significant errors; 0 without a match.

    Raises ValueError for a negative count.
    """
    if matched < 0 or errors < 0:
        raise ValueError(f"{matched} matched findings and {errors} errors: counts are not negative")
    return matched / (matched + errors) if matched else 0.0
