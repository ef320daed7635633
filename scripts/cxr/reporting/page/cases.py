"""Choose the findings and images of the page, and describe why each box was kept or dropped."""

import tomllib
from collections.abc import Mapping, Sequence

import polars as pl

from cxr.base.paths import RESOURCES
from cxr.base.seeds import stable_hash
from cxr.base.vocabulary import LESIONS, list_failed_conditions
from cxr.ils.masks.box_conditions import (
    MASKS_OUTDATED,
    MEASURED_CONDITIONS,
    BoxJudgement,
    format_measure,
    format_threshold,
)

RESOURCE_FILES = ("page/words.toml",)
WORDS = tomllib.loads((RESOURCES / RESOURCE_FILES[0]).read_text(encoding="utf-8"))
QUANTITY_NAMES, OUTCOMES = WORDS["boxes"], WORDS["outcomes"]


def choose_cases(findings: Sequence[pl.DataFrame], number: int, seed: int) -> list[tuple[int, dict]]:
    """Choose ``number`` findings per lesion type, all on different images. Return (index of the shard, row) of each.

    If possible, a third of them (at least one if ``number`` is 2 or more) have no mask, because all boxes were dropped.
    The choice depends only on the seed and the ids, not on the number of shards.
    """
    cases: list[tuple[int, dict]] = []
    for lesion in LESIONS:
        judged = (pl.col("target") == lesion) & (
            pl.col("mask_id").is_not_null() | (pl.col("box_verdicts").list.len() > 0)
        )
        # to save memory, candidates are row numbers; the rows, with a verdict per box, are read for the chosen ones
        candidates = sorted(
            (stable_hash(seed, "page", lesion, image_id, finding), image_id, has_mask, shard, at)
            for shard, table in enumerate(findings)
            for at, image_id, finding, has_mask in table.with_row_index("at")
            .filter(judged)
            .select("at", "image_id", "finding", pl.col("mask_id").is_not_null())
            .iter_rows()
        )
        masked_candidates, maskless_candidates = (
            [place for place in candidates if place[2] == has_mask] for has_mask in (True, False)
        )
        spare = min(len(maskless_candidates), max(number // 3, int(number > 1)))
        images: set[str] = set()
        selected_rows: list[tuple[int, int]] = []
        rounds = ((masked_candidates, number - spare), (maskless_candidates, number), (masked_candidates, number))
        for places, most in rounds:
            for _, image_id, _, shard, at in places:
                if len(selected_rows) < most and image_id not in images:
                    images.add(image_id)
                    selected_rows.append((shard, at))
        cases += [(shard, findings[shard].row(at, named=True)) for shard, at in selected_rows]
    return cases


def choose_images(findings: Mapping[str, Sequence[pl.DataFrame]], number: int, seed: int) -> list[tuple[int, str]]:
    """Choose ``number`` images on which the page compares the masks of all threshold sets.

    Return (index of the shard, image_id) of images with masks (not only of the heart), first those whose masks differ
    between the sets. ``findings`` is {threshold set: one table per shard}.
    """
    masks: dict[tuple[int, str], dict[str, set[str]]] = {}
    for name, tables in findings.items():
        for shard, table in enumerate(tables):
            rows_with_mask = table.filter(pl.col("mask_id").is_not_null() & (pl.col("target") != "cardiomegaly"))
            for image_id, mask_id in rows_with_mask.select("image_id", "mask_id").iter_rows():
                masks.setdefault((shard, image_id), {}).setdefault(name, set()).add(mask_id)

    def rank(place: tuple[int, str]) -> tuple[bool, int]:
        is_same = len({frozenset(masks[place].get(name, ())) for name in findings}) == 1
        return is_same, stable_hash(seed, "calibration", place[1])

    return sorted(masks, key=rank)[:number]


def choose_boxes(verdicts: Sequence[int], confidences: Sequence[float], number: int) -> list[int]:
    """Return the indices of ``number`` boxes to show: first kept ones, then dropped ones with the fewest failures.

    A box is kept if its verdict is 0; else the bits of the verdict are the failed conditions. Half of the shown boxes
    are kept ones and half dropped ones, unless there are too few of either. More confident boxes come first.
    """
    order = sorted(range(len(verdicts)), key=lambda i: (int(verdicts[i]).bit_count(), -confidences[i], i))
    kept_indices = [i for i in order if verdicts[i] == 0]
    dropped_indices = [i for i in order if verdicts[i]]
    least = min(len(dropped_indices), number // 2)
    shown_indices = kept_indices[: number - least]
    return shown_indices + dropped_indices[: number - len(shown_indices)]


def describe_verdict(verdict: int, judged: BoxJudgement, taus: Mapping[str, float]) -> str:
    """Describe why a box was kept or dropped, with the measure and threshold of each failed condition.

    ``judged`` has the measures, computed from the stored arrays. They are omitted if they contradict the ``verdict``.
    ``taus`` has a threshold for each of :data:`cxr.ils.masks.box_conditions.MEASURED_CONDITIONS`.
    """
    values = judged.values
    if not judged.agrees(verdict):
        names = ", ".join(QUANTITY_NAMES[name] for name in list_failed_conditions(verdict))
        return f"dropped: {names} ({MASKS_OUTDATED})" if verdict else f"kept ({MASKS_OUTDATED})"
    if not verdict:
        return "kept: " + ", ".join(
            f"{QUANTITY_NAMES[name]} {format_measure(values[name], taus[name])}" for name in MEASURED_CONDITIONS
        )
    numbers = {
        name: f" {format_measure(values[name], taus[name])} < {format_threshold(taus[name])}"
        for name in MEASURED_CONDITIONS
    }
    failed = list_failed_conditions(verdict)
    return "dropped: " + ", ".join(f"{QUANTITY_NAMES[name]}{numbers.get(name, '')}" for name in failed)


def summarize_boxes(verdicts: Sequence[int], drawn_boxes: Sequence[Mapping], name: str) -> str:
    """Return how many boxes of a finding are kept and drawn, as in "2 of 9 boxes kept at the threshold set default; all
    are drawn", or "" without ``verdicts``. ``name`` is the threshold set; each of ``drawn_boxes`` has ``kept``."""
    if not verdicts:
        return ""
    num_kept, num_kept_drawn = sum(verdict == 0 for verdict in verdicts), sum(box["kept"] for box in drawn_boxes)
    summary = f"{num_kept} of {len(verdicts)} boxes kept at the threshold set {name}"
    if len(drawn_boxes) == len(verdicts):
        return f"{summary}; all are drawn"
    return f"{summary}; {num_kept_drawn} kept and {len(drawn_boxes) - num_kept_drawn} dropped boxes are drawn"


def describe_outcome(row: Mapping) -> str:
    """Return the result of a finding (a row of ``findings.parquet``), such as "mask in right lung base"."""
    if row["reason"] is not None:
        return OUTCOMES.get(row["reason"], row["reason"])
    if row["target"] == "cardiomegaly":
        return "the mask is the heart's and needs no boxes"
    return "mask in " + ", ".join(row["locations"] or row["grounded"])
