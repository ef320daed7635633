"""The review stage: make a page per expert, and the organiser's tables for :mod:`cxr.reporting.review.merge`.

:data:`UNITS` has every unit of the split, :data:`ITEMS` the items of each expert. Both are only for the organiser,
because they contain the ids that the pages withhold.
"""

from collections.abc import Iterable

import polars as pl

from cxr.base.columns import Column, schema
from cxr.base.errors import UserError, count_phrase
from cxr.base.hdf5 import Shards
from cxr.base.tables import read_lines, write_table
from cxr.plotting.encoding import encode_grey_image, encode_mask
from cxr.reporting.review import page
from cxr.reporting.review.settings import ReviewSettings
from cxr.reporting.review.units import Unit, collect_units, deal_units, draw_sample, order_items

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
    "sampled": Column(pl.Boolean, "Whether it was sampled for the review."),
}
ITEMS = page.ITEM_COLUMNS | {"unit": Column(pl.Int64, "Unit that is judged.")}

WITH_MASK, WITHOUT_MASK = "Is this mask right for this lesion, in this location?", "Is this lesion absent there?"
TOO_LARGE_REMEDY = "set review.jpeg_quality to 90, or draw fewer units with review.positives and review.negatives"


def run_pages(
    *,
    lines: str,
    masks: list[str],
    frames: list[str],
    units: str,
    items_table: str,
    pages: list[str],
    options: ReviewSettings,
    seed: int,
    synthetic: bool,
) -> None:
    """Write one page per expert, in the order of ``options.experts``, and the organiser's tables."""
    all_units = collect_units(read_lines(lines), lines)
    if not all_units:
        raise UserError(f"{lines} holds no pair, so there is nothing to review: choose another review.split")
    number = {unit.key: position for position, unit in enumerate(all_units)}
    sampled_units = draw_sample([unit for unit in all_units if unit.is_positive], options.positives, seed)
    sampled_units += draw_sample([unit for unit in all_units if not unit.is_positive], options.negatives, seed)
    pictures = _encode_images(frames, {unit.image_id for unit in sampled_units}, options.jpeg_quality)
    mask_ids = {unit.mask_id for unit in sampled_units if unit.mask_id is not None}
    with Shards(masks, "mask_id") as shards:
        pngs = {mask_id: encode_mask(shards.get("mask", mask_id)) for mask_id in mask_ids}
    dealt = deal_units(sampled_units, options.experts, seed)
    items = {expert: order_items(units, expert, seed) for expert, units in dealt.items()}
    written_items = page.write_pages(
        items, pages, page.read_form("verdict"), view_of_unit, pictures.__getitem__, pngs.__getitem__,
        remedy=TOO_LARGE_REMEDY, synthetic=synthetic,
    )  # fmt: skip
    rows = [(*item, number[unit.key]) for *item, unit in written_items]
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
    with Shards(frames) as shards:
        if missing := [image_id for image_id in image_ids if image_id not in shards]:
            lacking = count_phrase(len(missing), "image", "images")
            raise UserError(f"the frames lack {lacking} of the split: run `snakemake frames` again")
        return {image_id: encode_grey_image(shards.get("image", image_id), jpeg_quality) for image_id in image_ids}
