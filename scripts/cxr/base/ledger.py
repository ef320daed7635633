"""The ledger of a stage. It records each input image as accepted, or as excluded with a reason."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import polars as pl

from cxr.base.tables import EXCLUDED, THRESHOLDS, read_table, write_excluded, write_table


class Ledger:
    """Record of the images of a shard that a stage accepts or excludes. :meth:`finish` checks that none is missing."""

    def __init__(self, stage: str):
        self.stage = stage
        self.accepted: list[str] = []
        self.excluded: list[dict] = []

    def accept(self, image_id: str) -> None:
        """Record that the image passes to the next stage."""
        self.accepted.append(image_id)

    def exclude(self, image_id: str, study_id: str, reason: str, detail: str = "") -> None:
        """Record that the image is excluded. ``detail`` must not hold patient text or a path with identifiers."""
        self.excluded.append(dict(zip(EXCLUDED, (image_id, study_id, self.stage, reason, detail), strict=True)))

    def finish(self, path: str | Path, inputs: Iterable[str]) -> None:
        """Write the table of excluded images. Raises AssertionError unless each of ``inputs`` was recorded once."""
        accounted_ids = sorted([*self.accepted, *(row["image_id"] for row in self.excluded)])
        expected = sorted(inputs)
        if accounted_ids != expected:
            missing = sorted(set(expected) - set(accounted_ids))[:3]
            counts = f"the ledger has {len(accounted_ids)} entries for {len(expected)} images"
            raise AssertionError(f"{self.stage}: {counts}; images without entry, at most three: {missing}")
        write_excluded(path, self.excluded)


def gather_exclusions(
    *, excluded: Sequence[str | Path], images: str | Path, gathered: str | Path, thresholds: Sequence[str] = ()
) -> None:
    """Merge tables of excluded images into one sorted table. Missing study ids come from the cohort's table ``images``.

    ``thresholds`` has the name of the threshold set of each table, for the column ``thresholds``.
    """
    tables = [read_table(path) for path in excluded]
    if thresholds:
        pairs = zip(tables, thresholds, strict=True)
        tables = [table.with_columns(thresholds=pl.lit(name, dtype=pl.String)) for table, name in pairs]
    # an image stage knows the image_id but not the study_id
    studies = (
        read_table(images)
        .select("image_id", image_study_id="study_id")
        .unique("image_id", keep="first", maintain_order=True)
    )
    study_id = pl.when(pl.col("study_id") == "").then(pl.col("image_study_id")).otherwise(pl.col("study_id"))
    joined = pl.concat(tables).join(studies, on="image_id", how="left", maintain_order="left")
    joined = joined.with_columns(study_id=study_id).drop("image_study_id")
    write_table(gathered, joined.sort(joined.columns), EXCLUDED | (THRESHOLDS if thresholds else {}))
