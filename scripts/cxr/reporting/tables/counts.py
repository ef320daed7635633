"""Count the results of a run, beside the paper's dataset, and compute shares of pairs, beside the settings."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import polars as pl

from cxr.base.columns import Column, Columns, schema
from cxr.base.vocabulary import LUNG_LESIONS, SPLITS
from cxr.ils.templates import BASIC, GLOBAL, INFERENCE, OPACITY, TYPES
from cxr.reporting.tables.paper import Counts, PaperTables, pair_column

PAPER_NAMES = {
    "images with pairs": "images",
    "distinct masks": "masks",
    "pairs": "pairs",
    "positive pairs": "positives",
    "negative pairs": "negatives",
}
GLOBAL_SHARE = "global among negatives of {}, %"
INFERENCE_SHARE = "lesion inference among opacity's negatives at a place, %"


@dataclass
class Tally:
    """The counts over the lines of one dataset."""

    pairs: Counts = field(default_factory=Counter)
    images: set[str] = field(default_factory=set)
    studies: set[str] = field(default_factory=set)
    masks: set[str] = field(default_factory=set)

    def add(self, line: dict) -> None:
        """Count one line."""
        self.pairs[line["split"], line["target"], pair_column(line)] += 1
        self.images.add(line["image_id"])
        self.studies.add(line["study_id"])
        if line["mask_id"] is not None:
            self.masks.add(line["mask_id"])


def count_by_name(tally: Tally, findings: pl.DataFrame, images: int, unedited: int = 0) -> dict[str, int]:
    """Return the counts of one threshold set by name.

    ``findings``: findings of all shards; ``images``: number of input images; ``unedited``: number of images that
    reached the masks stage without being edited.
    """
    lesions = findings.filter(pl.col("target").is_not_null())
    polarities: Counter[str] = Counter()
    splits: Counter[str] = Counter()
    for (split, _, column), number in tally.pairs.items():
        polarities[column.rpartition("_")[2]] += number
        splits[split] += number
    return {
        "input images": images,
        "images not edited": unedited,
        "images with pairs": len(tally.images),
        "studies with pairs": len(tally.studies),
        "findings of the seven lesion types": len(lesions),
        "findings with a mask": int(lesions["mask_id"].is_not_null().sum()),
        "distinct masks": len(tally.masks),
        "pairs": tally.pairs.total(),
        **{f"{polarity} pairs": polarities[polarity] for polarity in ("positive", "negative")},
        **{f"pairs of {split}": splits[split] for split in SPLITS},
    }


def negative_shares(pairs: Counts) -> dict[str, float | None]:
    """Return {name: percentage} of the sampled kinds of negatives; None without negatives.

    These are the global negatives of each lesion type except cardiomegaly, whose negatives are all global, and the
    lesion inferences among opacity's negatives that name a location.
    """
    kinds = {
        (lesion, kind): sum(pairs[split, lesion, f"{kind}_negative"] for split in SPLITS)
        for lesion in LUNG_LESIONS
        for kind in TYPES
    }
    share_by_name = {
        GLOBAL_SHARE.format(lesion): _percent(kinds[lesion, GLOBAL], sum(kinds[lesion, kind] for kind in TYPES))
        for lesion in LUNG_LESIONS
    }
    places = kinds[OPACITY, BASIC] + kinds[OPACITY, INFERENCE]
    return share_by_name | {INFERENCE_SHARE: _percent(kinds[OPACITY, INFERENCE], places)}


def count_columns(sets: Iterable[str]) -> Columns:
    """Return the columns of the table of counts, which has one for each threshold set."""
    return {
        "count": Column(pl.String, "Name of a count, or of a share in percent."),
        **{name: Column(pl.String, "Value for that threshold set of `thresholds.build`.") for name in sets},
        "configured": Column(
            pl.String, "Share in the settings (`dataset.global_share`, `dataset.opacity_inference_share`)."
        ),
        "paper": Column(pl.String, "The paper's value, rounded if a count."),
    }


def _percent(part: int, total: int) -> float | None:
    return 100 * part / total if total else None


def count_table(
    sets: Mapping[str, Tally],
    counts: Mapping[str, Mapping[str, int]],
    global_share: Mapping[str, float],
    opacity_inference_share: float,
    paper: PaperTables,
) -> pl.DataFrame:
    """Return one row per count: name, one column per threshold set, the settings' value, the paper's (rounded) one.

    ``sets`` and ``counts`` (of :func:`count_by_name`) are by threshold set; the shares are settings of the dataset.
    Cells are strings, because integer counts and percentages share the columns.
    """
    rows = [
        (name, *(str(set_counts[name]) for set_counts in counts.values()), "", str(paper.dataset.get(key, "")))
        for name, key in ((name, PAPER_NAMES.get(name)) for name in next(iter(counts.values())))
    ]
    configured = {GLOBAL_SHARE.format(lesion): 100 * share for lesion, share in global_share.items()}
    configured[INFERENCE_SHARE] = 100 * opacity_inference_share
    # the paper's shares are those of its train split (Table 10)
    train = paper.splits["train"].items()
    printed = Counter({("train", lesion, column): number for lesion, row in train for column, number in row.items()})
    realised = [negative_shares(tally.pairs) for tally in sets.values()]
    rows += [
        (name, *("" if share is None else f"{share:.2f}" for share in shares))
        for name, printed_share in negative_shares(printed).items()
        for shares in [(*(of_set[name] for of_set in realised), configured[name], printed_share)]
    ]
    return pl.DataFrame(rows, schema=schema(count_columns(sets)), orient="row")
