"""The review stage: make a page per expert, and the organiser's tables for :mod:`cxr.reporting.review.merge`.

:data:`UNITS` has every unit of the split, :data:`ITEMS` the items of each expert. Both are only for the organiser,
because they contain the ids that the pages withhold.
"""

import logging
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import polars as pl

from cxr.base.columns import Column, schema
from cxr.base.errors import UserError, count_phrase
from cxr.base.hdf5 import Shard
from cxr.base.tables import read_lines, read_table, write_table
from cxr.plotting.encoding import encode_grey_image, encode_mask
from cxr.reporting.review import page
from cxr.reporting.review.form import read_form
from cxr.reporting.review.settings import ReviewSettings
from cxr.reporting.review.units import Unit, collect_units, deal_units, draw_sample, order_items

log = logging.getLogger("cxr")

TEXTS = pl.List(pl.String)
UNITS = {
    "unit": Column(pl.Int64, "Number of the unit, from 0."),
    "subject_id": Column(pl.String, "Patient."),
    "study_id": Column(pl.String, "Study."),
    "image_id": Column(pl.String, "Image."),
    "target": Column(pl.String, "Lesion type."),
    "location": Column(TEXTS, "Places as the instructions name them; empty for a negative of the whole image."),
    "mask_id": Column(pl.String, "Its mask; null for a negative."),
    "pair_ids": Column(TEXTS, "Pairs that share it."),
    "asked": Column(pl.Boolean, "Whether it was sampled for the review."),
}
ITEMS = page.ITEM_COLUMNS | {"unit": Column(pl.Int64, "Unit that is judged.")}

WITH_MASK, WITHOUT_MASK = "Is this mask right for this lesion, in this location?", "Is this lesion absent there?"
TOO_LARGE_REMEDY = "set review.jpeg_quality to 90, or draw fewer units with review.positives and review.negatives"


def run_pages(
    *,
    lines: str,
    index: str,
    masks: list[str],
    frames: list[str],
    units: str,
    items_table: str,
    pages: list[str],
    options: ReviewSettings,
    synthetic: bool,
) -> None:
    """Write one page per expert, in the order of ``options.experts``, and the organiser's tables."""
    all_units = collect_units(read_lines(lines), lines)
    if not all_units:
        raise UserError(f"{lines} holds no pair, so there is nothing to review: choose another review.split")
    number = {unit.key: position for position, unit in enumerate(all_units)}
    sampled_units = draw_sample([unit for unit in all_units if unit.is_positive], options.positives, options.seed)
    sampled_units += draw_sample([unit for unit in all_units if not unit.is_positive], options.negatives, options.seed)
    pictures = _encode_images(frames, {unit.image_id for unit in sampled_units}, options.jpeg_quality)
    pngs = _encode_masks(masks, index, {unit.mask_id for unit in sampled_units if unit.mask_id is not None})
    rows, form = [], read_form("verdict")
    dealt = deal_units(sampled_units, options.experts, options.seed)
    for expert, path in zip(options.experts, pages, strict=True):
        items = order_items(dealt[expert], expert, options.seed)
        on_page = [(code, view_of_unit(unit)) for code, unit in items]
        data, urls = page.page_data(expert, form, on_page, pictures.__getitem__, pngs.__getitem__)
        page.write_page(path, form, data, urls, TOO_LARGE_REMEDY, synthetic)
        rows += [
            (expert, data["page"], position, code, number[unit.key])
            for position, (code, unit) in enumerate(items, start=1)
        ]
        log.info(
            "expert %s: %d items, %d pictures, %.1f MB", expert, len(items), len(urls), Path(path).stat().st_size / 1e6
        )
    keys = {unit.key for unit in sampled_units}
    write_table(units, tabulate_units(all_units, keys), UNITS)
    write_table(items_table, pl.DataFrame(rows, schema=schema(ITEMS), orient="row"), ITEMS)


def view_of_unit(unit: Unit) -> page.ItemView:
    """Return the view of a unit that an expert judges."""
    places = " and ".join(unit.location) or "anywhere"
    return page.ItemView(
        image=unit.image_id,
        mask=unit.mask_id,
        question=WITH_MASK if unit.is_positive else WITHOUT_MASK,
        hint="" if unit.is_positive else "There is no mask. Acceptable: it is absent. Not acceptable: it is there.",
        facts={"lesion": ("Lesion type", unit.target), "location": ("Location", places)},
        head=f"Report, {unit.section_name.replace('_', ' ')}",
        text=unit.report,
        alt=f"Chest radiograph, {f'mask of {unit.target} in {places}' if unit.is_positive else 'without a mask'}",
    )


def tabulate_units(units: Iterable[Unit], sampled_keys: set[tuple[str, ...]]) -> pl.DataFrame:
    """Return the rows of :data:`UNITS`; ``sampled_keys``: keys of the sampled units."""
    rows = [
        (number, unit.subject_id, unit.study_id, unit.image_id, unit.target, list(unit.location), unit.mask_id,
         unit.pair_ids, unit.key in sampled_keys)
        for number, unit in enumerate(units)
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=schema(UNITS), orient="row")


def _encode_images(frames: list[str], image_ids: set[str], jpeg_quality: int) -> dict[str, tuple[str, bytes]]:
    picture_by_image = {}
    for path in frames:
        with Shard(path) as shard:
            for image_id in sorted(image_ids & shard.row_of.keys()):
                picture_by_image[image_id] = encode_grey_image(shard.get("image", image_id), jpeg_quality)
    if missing := image_ids - picture_by_image.keys():
        lacking = count_phrase(len(missing), "image", "images")
        raise UserError(f"the frames lack {lacking} of the split: run `snakemake frames` again")
    return picture_by_image


def _encode_masks(masks: list[str], index: str, mask_ids: set[str]) -> dict[str, bytes]:
    where = read_table(index).filter(pl.col("mask_id").is_in(list(mask_ids)))
    with ExitStack() as stack:
        shards = {Path(path).stem: path for path in masks}
        opened: dict[str, Shard] = {}
        png_by_mask = {}
        for mask_id, name in where.select("mask_id", "shard").sort("shard", "mask_id").iter_rows():
            if name not in opened:
                opened[name] = stack.enter_context(Shard(shards[name], key="mask_id"))
            png_by_mask[mask_id] = encode_mask(opened[name].get("mask", mask_id))
    return png_by_mask
