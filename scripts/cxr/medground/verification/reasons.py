"""Whether a judge's reason says the opposite of its verdict: such an answer is no judgement."""

import re
from collections.abc import Mapping, Sequence

_NEGATED = re.compile(
    r"\b(?:not|no|never|neither|nor|cannot|without|hardly|isn't|doesn't|don't|aren't)\b(?:\s+\w+){0,3}\s*$"
)


def contradicts(answer: Mapping, affirms: Sequence[str], denies: Sequence[str]) -> str | None:
    """Return why an answer {observed, grounded, unambiguous, reason} contradicts itself; None if it does not.

    affirms, denies: phrases of a reason that speak for a query or against it. A rejection needs a reason. A reason with
    phrases of both kinds contradicts nothing.
    """
    if not answer["observed"].strip():
        return "observed: blank"
    accepted = answer["grounded"] and answer["unambiguous"]
    reason = " ".join(answer["reason"].lower().replace("’", "'").split())
    if not accepted and not reason:
        return "reason: blank"
    good, bad = _counted(reason, affirms, denies)
    if accepted and bad and not good:
        return "reason: it speaks against what is accepted"
    if not accepted and good and not bad:
        return "reason: it speaks for what is rejected"
    return None


def _counted(reason: str, affirms: Sequence[str], denies: Sequence[str]) -> tuple[int, int]:
    """Return how many phrases speak for and against, the longest first; one that is negated counts for the other."""
    counts = [0, 0]
    phrases = sorted(
        [*((word, 0) for word in affirms), *((word, 1) for word in denies)], key=lambda phrase: -len(phrase[0])
    )
    for word, kind in phrases:
        pattern = re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])")
        while match := pattern.search(reason):
            negated = _NEGATED.search(reason[: match.start()]) is not None
            counts[kind ^ negated] += 1
            reason = f"{reason[: match.start()]}; {reason[match.end() :]}"
    return counts[0], counts[1]
