"""A short table of counts: what a run made, beside the size of the paper's dataset."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from ils.core.labels import SPLITS
from ils.tables.paper import Paper
from ils.tables.splits import Counts, column_of

PAPER_NAMES = {
    "images with pairs": "images",
    "distinct masks": "masks",
    "pairs": "pairs",
    "positive pairs": "positives",
    "negative pairs": "negatives",
}


@dataclass
class Tally:
    """What the lines of one dataset add up to."""

    pairs: Counts = field(default_factory=Counter)
    images: set[str] = field(default_factory=set)
    studies: set[str] = field(default_factory=set)
    masks: set[str] = field(default_factory=set)

    def add(self, line: dict) -> None:
        """Count one line."""
        self.pairs[line["split"], line["target"], column_of(line)] += 1
        self.images.add(line["image_id"])
        self.studies.add(line["study_id"])
        if line["mask_id"] is not None:
            self.masks.add(line["mask_id"])


def rows_of(tally: Tally, findings: pl.DataFrame, images: int) -> dict[str, int]:
    """Return the counts of one threshold set by name. ``findings``: the gathered findings table; ``images``: input."""
    lesions = findings.filter(pl.col("target").is_not_null())
    kinds = {
        f"{polarity} pairs": sum(n for (_, _, column), n in tally.pairs.items() if column.endswith(polarity))
        for polarity in ("positive", "negative")
    }
    splits = {f"pairs of {split}": sum(n for key, n in tally.pairs.items() if key[0] == split) for split in SPLITS}
    return {
        "input images": images,
        "images with pairs": len(tally.images),
        "studies with pairs": len(tally.studies),
        "findings of the seven lesion types": len(lesions),
        "findings with a mask": int(lesions["mask_id"].is_not_null().sum()),
        "distinct masks": len(tally.masks),
        "pairs": tally.pairs.total(),
        **kinds,
        **splits,
    }


def table(sets: Mapping[str, Mapping[str, int]], paper: Paper) -> pl.DataFrame:
    """Return one row per count: its name, one column per threshold set, and the paper's (rounded) number."""
    names = list(next(iter(sets.values())))
    rows = [
        {"count": name}
        | {thresholds: counts[name] for thresholds, counts in sets.items()}
        | {"paper": paper.dataset.get(PAPER_NAMES.get(name, ""))}
        for name in names
    ]
    return pl.DataFrame(rows, infer_schema_length=None)
