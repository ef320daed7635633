"""The review stage: make a page per expert, and tables from which the organiser later reads the sheets.

The tables are :data:`UNITS` with every distinct (mask, lesion type, location) of the split, :data:`ITEMS` with the
items of each expert's page, and :data:`cxr.reporting.review.decoys.DECOYS`. They reveal which items are decoys, so
experts must not see them.
"""

from collections.abc import Iterable

import polars as pl

from cxr.base.columns import Column, schema
from cxr.base.errors import UserError, count_phrase
from cxr.base.hdf5 import Shards
from cxr.base.tables import read_lines, write_rows, write_table
from cxr.plotting.encoding import encode_grey_image, encode_mask
from cxr.reporting.review import page
from cxr.reporting.review.decoys import DECOYS, plant_decoys
from cxr.reporting.review.settings import ReviewSettings
from cxr.reporting.review.units import Unit, collect_units, deal_units, draw_sample, order_items

TEXTS = pl.List(pl.String)
UNITS = {
    "unit": Column(pl.Int64, "Number of the unit, from 0."),
    "subject_id": Column(pl.String, "Patient."),
    "study_id": Column(pl.String, "Study."),
    "image_id": Column(pl.String, "Image."),
    "target": Column(pl.String, "Lesion type."),
    "location": Column(TEXTS, "Locations as the instructions name them; empty for a negative of the whole image."),
    "mask_id": Column(pl.String, "Id of the mask; null for a negative."),
    "pair_ids": Column(TEXTS, "Ids of the pairs that share the unit."),
    "sampled": Column(pl.Boolean, "Whether the unit was sampled for the review."),
}
ITEMS = page.ITEM_COLUMNS | {"unit": Column(pl.Int64, "Number of the unit or decoy that is judged.")}

WITH_MASK, WITHOUT_MASK = "Is this mask right for this lesion, in this location?", "Is this lesion absent there?"
TOO_LARGE_REMEDY = "set review.jpeg_quality to 90, or sample fewer units with review.positives and review.negatives"


def run_pages(
    *,
    lines: str,
    masks: list[str],
    frames: list[str],
    studies: list[str],
    mask_units: list[str],
    organs: list[str],
    units: str,
    items_table: str,
    decoys: str,
    pages: list[str],
    options: ReviewSettings,
    seed: int,
    synthetic: bool,
) -> None:
    """Write one page per expert, in the order of ``options.experts``, and the organiser's tables.
    Decoys are made from ``studies`` and ``mask_units``, which are tables of the masks stage."""
    all_units = collect_units(read_lines(lines), lines)
    if not all_units:
        raise UserError(f"{lines} holds no pair, so there is nothing to review: choose another review.split")
    number_by_key = {unit.key: number for number, unit in enumerate(all_units)}
    sampled_units = draw_sample([unit for unit in all_units if unit.is_positive], options.positives, seed)
    sampled_units += draw_sample([unit for unit in all_units if not unit.is_positive], options.negatives, seed)
    dealt = deal_units(sampled_units, options.experts, seed)
    with Shards(masks, "mask_id") as mask_shards, Shards(organs) as organ_shards:
        planted = plant_decoys(
            all_units, dealt, studies=studies, mask_units=mask_units, masks=mask_shards, organs=organ_shards, seed=seed
        )
        mask_ids = {unit.mask_id for unit in sampled_units if unit.mask_id is not None}
        pngs = {mask_id: encode_mask(mask_shards.get("mask", mask_id)) for mask_id in mask_ids}
    pngs |= {decoy.unit.mask_id: encode_mask(decoy.mask) for decoy in planted if decoy.mask is not None}
    image_ids = {unit.image_id for unit in (*sampled_units, *(decoy.unit for decoy in planted))}
    pictures = _encode_images(frames, image_ids, options.jpeg_quality)
    numbered_decoys = list(enumerate(planted, start=len(all_units)))
    items = {}
    for expert, units_of_expert in dealt.items():
        numbered = [(number_by_key[unit.key], unit) for unit in units_of_expert]
        numbered += [(number, decoy.unit) for number, decoy in numbered_decoys if decoy.expert in (None, expert)]
        items[expert] = order_items(numbered, expert, seed, lambda item: item[1].key)
    written_items = list(
        page.write_pages(
            items,
            pages,
            page.read_form("verdict"),
            lambda item: describe_unit(item[1], pictures[item[1].image_id], pngs.get(item[1].mask_id)),
            remedy=TOO_LARGE_REMEDY,
            synthetic=synthetic,
        )
    )
    decoy_rows = [
        (number, decoy.unit.is_positive, number_by_key[decoy.host.key], decoy.mask_id)
        for number, decoy in numbered_decoys
    ]
    write_table(units, tabulate_units(all_units, {unit.key for unit in sampled_units}), UNITS)
    write_rows(items_table, ((*item, number) for *item, (number, _) in written_items), ITEMS)
    write_rows(decoys, decoy_rows, DECOYS)


def describe_unit(unit: Unit, picture: bytes, mask: bytes | None) -> dict:
    """Return what an expert sees of a mask or negative, as a row of :data:`cxr.base.review_units.REVIEW_UNITS`."""
    return {
        "picture": picture,
        "mask": mask,
        "question": WITH_MASK if unit.is_positive else WITHOUT_MASK,
        "hint": "" if unit.is_positive else "There is no mask. Acceptable: it is absent. Not acceptable: it is there.",
        "facts": [("Lesion type", unit.target), ("Location", " and ".join(unit.location) or "anywhere")],
        "head": f"Report, {unit.section_name.replace('_', ' ')}",
        "text": unit.report,
        "also": None,
        "sides": True,
    }


def tabulate_units(units: Iterable[Unit], sampled_keys: set[tuple[str, ...]]) -> pl.DataFrame:
    """Return the rows of :data:`UNITS`. ``sampled_keys`` are the keys of the units sampled for the review."""
    rows = [
        (number, unit.subject_id, unit.study_id, unit.image_id, unit.target, list(unit.location), unit.mask_id,
         unit.pair_ids, unit.key in sampled_keys)
        for number, unit in enumerate(units)
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=schema(UNITS), orient="row")


def _encode_images(frames: list[str], image_ids: set[str], jpeg_quality: int) -> dict[str, bytes]:
    with Shards(frames) as shards:
        if missing := [image_id for image_id in image_ids if image_id not in shards]:
            lacking = count_phrase(len(missing), "image", "images")
            raise UserError(f"results/frames lacks {lacking} of the split: run `snakemake frames` again")
        return {image_id: encode_grey_image(shards.get("image", image_id), jpeg_quality)[1] for image_id in image_ids}
