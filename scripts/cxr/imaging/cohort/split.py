"""Assigning subjects to train, validate or test, by the user's table or by a stable hash of the subject."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence

from cxr.base.errors import UserError
from cxr.base.seeds import stable_hash
from cxr.base.vocabulary import SPLITS

_SPELLINGS = {"val": "validate", "valid": "validate", "validation": "validate", "dev": "validate", "training": "train"}

LARGE_COHORT = 2000  # minimum number of subjects for :data:`LARGE_SHARES`; 1 % then means at least 20 subjects
SMALL_SHARES, LARGE_SHARES = (80.0, 10.0, 10.0), (98.0, 1.0, 1.0)
"""Default weights of train, validate and test, for cohorts below :data:`LARGE_COHORT` subjects, and for larger ones."""


def split_name(text: str) -> str | None:
    """Convert a table's text to train, validate or test; "" for an empty text, None for any other text."""
    text = text.strip().lower()
    text = _SPELLINGS.get(text, text)
    return text if text in (*SPLITS, "") else None


def default_shares(num_subjects: int) -> Sequence[float]:
    """Return the default weights of train, validate and test for a cohort of ``num_subjects`` subjects."""
    return SMALL_SHARES if num_subjects < LARGE_COHORT else LARGE_SHARES


def hashed_split(subject_id: str, shares: Sequence[float], seed: int) -> str:
    """Return the split of a subject, chosen by a hash of its id. ``shares``: weights of train, validate and test."""
    place = _place(subject_id, seed) * sum(shares)
    for name, share in zip(SPLITS, shares, strict=True):
        if place < share:
            return name
        place -= share
    return SPLITS[max(index for index, share in enumerate(shares) if share > 0)]


def subject_splits(
    table_splits: Iterable[tuple[str, str]], shares: Sequence[float], seed: int, usable: Collection[str] | None = None
) -> dict[str, str]:
    """Return {subject_id: split}. ``table_splits``: (subject_id, split in the user's table or "") pairs, in any order.

    If one image of a subject has a split, all images of the subject get it. Other subjects are assigned by hash with
    the weights ``shares``, or :func:`default_shares` if empty. If a split with a weight above 0 then has no subject in
    ``usable`` (None: all subjects), a subject assigned by hash is moved to it from the largest split. Raises UserError
    if the table assigns a subject to two splits.
    """
    by_table: dict[str, set[str]] = defaultdict(set)
    for subject_id, split in table_splits:
        by_table[subject_id].update({split} - {""})
    torn = sum(len(splits) > 1 for splits in by_table.values())
    if torn:
        raise UserError(
            f"cohort: the column split puts {torn} subject{'s' if torn > 1 else ''} in more than one split: give every "
            "image of a subject the same split, or leave the column empty to split by subject automatically"
        )
    shares = shares or default_shares(len(by_table))
    splits = {
        subject_id: next(iter(table_split)) if table_split else hashed_split(subject_id, shares, seed)
        for subject_id, table_split in by_table.items()
    }
    usable = splits.keys() if usable is None else splits.keys() & usable
    movable = [subject_id for subject_id in usable if not by_table[subject_id]]
    ends = [sum(shares[:number]) / sum(shares) for number in range(len(shares) + 1)]
    for number, name in reversed(list(enumerate(SPLITS))):
        counts = Counter(splits[subject_id] for subject_id in usable)
        donors = {splits[subject_id] for subject_id in movable if counts[splits[subject_id]] > 1}
        if shares[number] == 0 or counts[name] or not donors:
            continue
        donor = max(donors, key=lambda split: (counts[split], -SPLITS.index(split)))
        # move the subject whose hash position is nearest to the middle of the split
        middle = (ends[number] + ends[number + 1]) / 2
        distances = {name: abs(_place(name, seed) - middle) for name in movable if splits[name] == donor}
        splits[min(distances, key=lambda subject_id: (distances[subject_id], subject_id))] = name
    return splits


def _place(subject_id: str, seed: int) -> float:
    """Return a subject's hash as a number in [0, 1). Train, validate and test take consecutive parts of this range."""
    return stable_hash("split", seed, subject_id) / 2**64
