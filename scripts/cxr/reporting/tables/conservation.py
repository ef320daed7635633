"""Check that no image is lost: every input image of a stage is either accepted or excluded, exactly once."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from cxr.base.columns import Column, schema
from cxr.base.errors import StoreError
from cxr.base.exclusions import REASONS, STAGES

CONSERVATION = {
    "stage": Column(pl.String, "Stage."),
    "input": Column(pl.Int64, "Input images."),
    "accepted": Column(pl.Int64, "Accepted images."),
    "excluded": Column(pl.Int64, "Excluded images."),
    "balanced": Column(pl.String, "yes if each input image was accepted or excluded, exactly once; else no."),
}
FUNNEL = {
    "stage": Column(pl.String, "Stage; first `input`, last `pairs`."),
    "reason": Column(pl.String, "Code of a reason ([reasons.md](reasons.md)); empty if the stage excluded no image."),
    "images": Column(pl.Int64, "Images that this stage, and no earlier one, excluded for it."),
    "left": Column(pl.Int64, "Images remaining after the stage."),
    "meaning": Column(pl.String, "The reason in words."),
}


@dataclass(frozen=True)
class Flow:
    """Image ids of a stage: its input, the accepted ones, and {excluded one: reason}."""

    entered: frozenset[str]
    accepted: frozenset[str]
    excluded: Mapping[str, str]


def tabulate_conservation(flows: Mapping[str, Flow]) -> pl.DataFrame:
    """Return one row of :data:`CONSERVATION` per stage, in their order."""
    rows = [
        {
            "stage": stage,
            "input": len(flow.entered),
            "accepted": len(flow.accepted),
            "excluded": len(flow.excluded),
            "balanced": "yes" if is_balanced(flow) else "no",
        }
        for stage, flow in _ordered_flows(flows)
    ]
    return pl.DataFrame(rows, schema=schema(CONSERVATION))


def is_balanced(flow: Flow) -> bool:
    """Return whether every input image was accepted or excluded, exactly once, and no other image was."""
    return not (flow.accepted & flow.excluded.keys()) and flow.accepted | flow.excluded.keys() == flow.entered


def require_balance(flows: Mapping[str, Flow]) -> None:
    """Raise StoreError for the first stage that lost, duplicated or invented images."""
    for stage, flow in _ordered_flows(flows):
        if not is_balanced(flow):
            lost = len(flow.entered - flow.accepted - flow.excluded.keys())
            twice = len(flow.accepted & flow.excluded.keys())
            strange = len((flow.accepted | flow.excluded.keys()) - flow.entered)
            raise StoreError(
                f"{stage} does not balance: {lost} images lost, {twice} both accepted and excluded, {strange} that"
                f" never entered; its files belong to different runs: delete results/{stage} and run again"
            )


def tabulate_funnel(flows: Mapping[str, Flow], images: frozenset[str], with_pairs: frozenset[str]) -> pl.DataFrame:
    """Return the funnel from input images to images with pairs; each lost image counts at its first stop.

    The first row of :data:`FUNNEL` is the input, the last the images with pairs; a stage that excludes nothing has one
    row without a reason. Raises StoreError if a remaining image has no pair, or an excluded image has pairs.
    """
    remaining = set(images)
    rows = [_funnel_row("input", "", len(images), len(images), "input images")]
    for stage, flow in _ordered_flows(flows):
        stopped = Counter(reason for image, reason in flow.excluded.items() if image in remaining)
        remaining -= flow.excluded.keys()
        for reason, number in sorted(stopped.items(), key=lambda item: (-item[1], item[0])):
            rows.append(_funnel_row(stage, reason, number, len(remaining), REASONS[reason]))
        if not stopped:
            rows.append(_funnel_row(stage, "", 0, len(remaining), "no image stopped here"))
    if remaining != with_pairs:
        raise StoreError(
            f"{len(remaining - with_pairs)} images have no result and {len(with_pairs - remaining)} have pairs although"
            " a stage excluded them: the results belong to different runs; delete results/dataset and run again"
        )
    rows.append(_funnel_row("pairs", "", len(with_pairs), len(with_pairs), "images with instruction-answer pairs"))
    return pl.DataFrame(rows, schema=schema(FUNNEL))


def _funnel_row(stage: str, reason: str, images: int, num_remaining: int, meaning: str) -> dict:
    return {"stage": stage, "reason": reason, "images": images, "left": num_remaining, "meaning": meaning}


def _ordered_flows(flows: Mapping[str, Flow]) -> list[tuple[str, Flow]]:
    return [(stage, flows[stage]) for stage in STAGES if stage in flows]
