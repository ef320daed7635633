"""Table 8: the percentage of reported findings with a grounded mask, per lesion type and threshold set."""

from collections.abc import Iterable, Sequence

import polars as pl

from cxr.base.columns import Column, schema
from cxr.base.tables import THRESHOLDS
from cxr.base.vocabulary import LESIONS
from cxr.reporting.tables.paper import PaperTables

GROUNDABLE = tuple(lesion for lesion in LESIONS if lesion != "cardiomegaly")
RECALL = THRESHOLDS | {
    "lesion": Column(pl.String, "Lesion type, or `average`: the mean of those that occur."),
    "recall": Column(pl.Float64, "`grounded` over `total`; null without a study.", "%"),
    "grounded": Column(pl.Int64, "Studies with a grounded mask of it."),
    "total": Column(pl.Int64, "Studies that state it."),
    "without_labels": Column(pl.Int64, "Of these, studies whose report names no zone for it."),
    "paper": Column(pl.Float64, "The paper's recall (Table 8); null where it prints none.", "%"),
    "note": Column(pl.String, "What the paper prints, where that was a misprint."),
}


def tabulate_recall(sweeps: Iterable[pl.DataFrame], sets: Sequence[str], paper: PaperTables) -> pl.DataFrame:
    """Return the rows of :data:`RECALL`, in the order of ``sets``.

    ``sweeps``: one table per shard (a study is in one shard): thresholds, study_id, lesion, grounded (findings with a
    grounded mask), has_labels. A (study, lesion type) counts as grounded if any of its findings is; the total includes
    those without a zone label (``without_labels``). ``average`` is the unweighted mean of the lesion types that occur.
    """
    count_rows = (
        pl.concat([_count_studies(sweep) for sweep in sweeps]).group_by("thresholds", "lesion").agg(pl.all().sum())
    )
    counts = {
        (name, lesion): (grounded, total, total - labelled)
        for name, lesion, grounded, total, labelled in count_rows.iter_rows()
    }
    rows = []
    for name in sets:
        counts_by_lesion = {lesion: counts.get((name, lesion), (0, 0, 0)) for lesion in GROUNDABLE}
        recalls = {lesion: 100 * grounded / total for lesion, (grounded, total, _) in counts_by_lesion.items() if total}
        rows += [_row(name, lesion, recalls.get(lesion), counts_by_lesion[lesion], paper) for lesion in GROUNDABLE]
        average = sum(recalls.values()) / len(recalls) if recalls else None
        sums = tuple(sum(values) for values in zip(*counts_by_lesion.values(), strict=True))
        rows.append(_row(name, "average", average, sums, paper))
    return pl.DataFrame(rows, schema=schema(RECALL))


def _count_studies(sweep: pl.DataFrame) -> pl.DataFrame:
    pairs = sweep.group_by("thresholds", "study_id", "lesion").agg(
        pl.col("grounded").max() > 0, pl.col("has_labels").any()
    )
    return pairs.group_by("thresholds", "lesion").agg(
        pl.col("grounded").sum(), pl.len().alias("total"), pl.col("has_labels").sum()
    )


def _row(name: str, lesion: str, recall: float | None, counts: Sequence[int], paper: PaperTables) -> dict:
    grounded, total, without = counts
    return {
        "thresholds": name,
        "lesion": lesion,
        "recall": None if recall is None else round(recall, 1),
        "grounded": grounded,
        "total": total,
        "without_labels": without,
        "paper": paper.recall.get(name, {}).get(lesion),
        "note": paper.notes.get(("recall", name, lesion), ""),
    }
