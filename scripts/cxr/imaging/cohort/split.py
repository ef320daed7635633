"""Assigning subjects to train, validate or test: the given split, or else a stable hash of the subject."""

from collections import defaultdict
from collections.abc import Iterable

from cxr.base.errors import UserError
from cxr.base.seeds import stable_hash
from cxr.base.vocabulary import SPLITS

_SPELLINGS = {"val": "validate", "valid": "validate", "validation": "validate", "dev": "validate", "training": "train"}


def split_name(text: str) -> str | None:
    """Return train, validate or test for a table's text, "" for an empty text, None for any other text."""
    text = text.strip().lower()
    text = _SPELLINGS.get(text, text)
    return text if text in (*SPLITS, "") else None


def hashed_split(subject_id: str, shares: list[float], seed: int) -> str:
    """Return the split of a subject by hash; ``shares`` are the weights of train, validate and test."""
    place = stable_hash("split", seed, subject_id) / 2**64 * sum(shares)
    for name, share in zip(SPLITS, shares, strict=True):
        if place < share:
            return name
        place -= share
    return SPLITS[max(index for index, share in enumerate(shares) if share > 0)]


def subject_splits(given: Iterable[tuple[str, str]], shares: list[float], seed: int) -> dict[str, str]:
    """Return the split of every subject from (subject_id, given split or "") pairs.

    If one image of a subject has a split, all its images get it. Raises UserError if a subject has two splits.
    """
    named: dict[str, set[str]] = defaultdict(set)
    for subject_id, split in given:
        named[subject_id].update({split} - {""})
    torn = sum(len(splits) > 1 for splits in named.values())
    if torn:
        raise UserError(
            f"the split column puts {torn} subject{'s' if torn > 1 else ''} in more than one split: give every image "
            "of a subject the same split, or leave the column empty to have it made by subject"
        )
    return {
        subject_id: next(iter(splits)) if splits else hashed_split(subject_id, shares, seed)
        for subject_id, splits in named.items()
    }
