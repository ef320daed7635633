"""The figures stage: draw panels of some studies and charts of the whole dataset, from the stored results only."""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import polars as pl

from cxr.base.edited_images import is_unedited, read_edited_image
from cxr.base.hdf5 import Shard
from cxr.base.jobs import progress
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_lines, read_table
from cxr.base.vocabulary import LESIONS, ZONE_LABELS
from cxr.plotting.plots import save_jpeg, save_png
from cxr.reporting.figures import charts
from cxr.reporting.figures.panel import PanelContent, draw_panel
from cxr.reporting.settings import FiguresSettings


def run_panels(
    *,
    findings: list[str],
    lines: list[str],
    boxes: list[str],
    masks: list[str],
    frames: list[str],
    organs: list[str],
    anomaly: list[str],
    anatomy: list[str],
    panels: str,
    options: FiguresSettings,
    seed: int,
) -> None:
    """Draw a panel of each selected study into the folder ``panels``; inputs are lists in the order of the shards."""
    folder = Path(panels)
    folder.mkdir(parents=True, exist_ok=True)
    tables = [read_table(path) for path in findings]
    selected_images = choose_images(tables, options.studies, seed)
    pairs = _read_pairs(lines, {image_id for _, image_id in selected_images})
    by_shard: dict[int, list[str]] = {}
    for shard, image_id in selected_images:
        by_shard.setdefault(shard, []).append(image_id)
    stories = (
        story
        for shard, image_ids in sorted(by_shard.items())
        for story in _read_panels(
            image_ids,
            tables[shard],
            read_table(boxes[shard]),
            masks[shard],
            [paths[shard] for paths in (frames, organs, anomaly, anatomy)],
            pairs,
        )
    )
    for image_id, story in progress(stories, len(selected_images), "panels"):
        save_jpeg(draw_panel(story), folder / f"{image_id}.jpg", options.dpi, options.quality)


def run_charts(
    *,
    funnel_table: str,
    splits_table: str,
    distribution: str,
    shares: str,
    funnel: str,
    thresholds: str,
    options: FiguresSettings,
) -> None:
    """Draw the three charts of the threshold set ``thresholds`` from the tables stage's funnel and splits."""
    steps, splits = (
        read_table(path).filter(pl.col("thresholds") == thresholds) for path in (funnel_table, splits_table)
    )
    save_png(charts.draw_distribution(splits), distribution, options.dpi)
    save_png(charts.draw_funnel(funnel_steps(steps)), funnel, options.dpi)
    save_png(charts.draw_shares(splits), shares, options.dpi)


def run_recall(*, recall_table: str, recall: str, options: FiguresSettings) -> None:
    """Draw the recall of every threshold set from the tables stage's recall table."""
    save_png(charts.draw_recall(read_table(recall_table)), recall, options.dpi)


def choose_images(findings: list[pl.DataFrame], number: int, seed: int) -> list[tuple[int, str]]:
    """Choose (shard, image_id) of ``number`` images: every lesion type with a mask comes before any comes twice.

    The choice depends only on the seed and the ids, not on the number of shards.
    """
    images: dict[str, tuple[int, set[str]]] = {}
    for shard, table in enumerate(findings):
        for row in table.iter_rows(named=True):
            _, targets = images.setdefault(row["image_id"], (shard, set()))
            if row["mask_id"] is not None:
                targets.add(row["target"])
    order = sorted(images, key=lambda image_id: stable_hash(seed, "figures", image_id))
    selected_ids: list[str] = []
    lesion_counts: Counter[str] = Counter()
    while len(selected_ids) < min(number, len(order)):
        rarest = sorted(LESIONS, key=lambda lesion: (lesion_counts[lesion], LESIONS.index(lesion)))
        remaining_ids = [image_id for image_id in order if image_id not in selected_ids]
        match = next((i for lesion in rarest for i in remaining_ids if lesion in images[i][1]), remaining_ids[0])
        selected_ids.append(match)
        lesion_counts.update(images[match][1])
    return [(images[image_id][0], image_id) for image_id in sorted(selected_ids)]


def _read_pairs(lines: list[str], image_ids: set[str]) -> dict[str, list[dict]]:
    pairs: dict[str, list[dict]] = {}
    for row in (row for path in lines for row in read_lines(path)):
        if row["image_id"] in image_ids:
            pairs.setdefault(row["image_id"], []).append(row)
    return pairs


def _read_panels(
    image_ids: Iterable[str],
    findings: pl.DataFrame,
    boxes: pl.DataFrame,
    masks: str,
    shards: list[str],
    pairs: dict[str, list[dict]],
) -> Iterator[tuple[str, PanelContent]]:
    with ExitStack() as stack:
        frames, organs, anomaly, anatomy = (stack.enter_context(Shard(path)) for path in shards)
        mask_shard = stack.enter_context(Shard(masks, key="mask_id"))
        for image_id in image_ids:
            rows = findings.filter(pl.col("image_id") == image_id).to_dicts()
            used_boxes = boxes.filter((pl.col("image_id") == image_id) & pl.col("kept"))
            mask_ids = {row["mask_id"] for row in rows} - {None}
            zones = anatomy.masks(image_id)
            yield (
                image_id,
                PanelContent(
                    title=f"study {rows[0]['study_id']}, image {image_id}, split {rows[0]['split']}",
                    image=frames.get("image", image_id),
                    edited=read_edited_image(anomaly, frames, image_id),
                    unedited=is_unedited(anomaly, image_id),
                    anomaly=anomaly.get("anomaly", image_id),
                    organs=organs.masks(image_id),
                    zones={label: zones[label] for label in ZONE_LABELS},
                    boxes=used_boxes.to_dicts(),
                    findings=rows,
                    masks={mask_id: mask_shard.get("mask", mask_id) for mask_id in sorted(mask_ids)},
                    pairs=pairs.get(image_id, []),
                ),
            )


def funnel_steps(table: pl.DataFrame) -> list[tuple[str, int, dict[str, int]]]:
    """Convert the funnel table to (stage, images left, {reason: images lost}) in its order."""
    steps: list[tuple[str, int, dict[str, int]]] = []
    for row in table.iter_rows(named=True):
        if not steps or steps[-1][0] != row["stage"]:
            steps.append((row["stage"], row["left"], {}))
        if row["reason"]:
            steps[-1][2][row["reason"]] = row["images"]
    return steps
