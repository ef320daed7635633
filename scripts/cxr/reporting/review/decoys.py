"""Plant decoys (wrong masks and wrong negatives) among the items of a review, to measure each expert's care.

A decoy is made from a real unit with a mask, its *host*, whose image and report it shows. A unit is a distinct (mask,
lesion type, location) of an image.

* A wrong mask keeps the host's text, whose locations are in one lung, but shows a mask in the other lung, the target.
  The target lung has no reported finding, no mask and no sign of a lesion. The mask is that of a *donor*, a finding of
  the same lesion type in another patient. It is mirrored if the donor's lung is on the other side, shifted so that the
  lungs' bounding boxes share their centre, and clipped to the target lung.
* A wrong negative states that the host's lesion is absent from one of its locations or from the whole image, although
  the report affirms the lesion as definitive. Wrong and real negatives of a lesion type name a location equally often.

Decoys are only on the pages and in the organiser's tables of items and decoys, never in results of other stages.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import cv2
import numpy as np
import polars as pl

from cxr.base.columns import Column
from cxr.base.hdf5 import Shards
from cxr.base.jobs import log
from cxr.base.seeds import make_rng, stable_hash
from cxr.base.tables import read_table, read_tables
from cxr.base.vocabulary import SIDES, side_of
from cxr.geometry.boxes import bounding_box
from cxr.ils.dataset.negatives import is_quiet
from cxr.reporting.review.units import Unit

ITEMS_PER_DECOY = 9
"""Number of real items per decoy. It applies separately to a page's items with a mask and to those without."""
MIN_INSIDE = 0.8
"""Minimum fraction of a moved mask's pixels that are inside the target lung."""
MAX_DONORS = 20
"""Maximum number of masks of other patients that are tried to make one wrong mask."""
DECOYS = {
    "unit": Column(pl.Int64, "Number of the decoy in the table of items, above the numbers of all units."),
    "positive": Column(pl.Boolean, "Whether the decoy is a wrong mask; else it is a wrong negative."),
    "host": Column(pl.Int64, "Number of the unit whose image and report the decoy shows."),
    "mask_id": Column(pl.String, "Id of the mask that was moved into the host's image; null for a negative."),
}


@dataclass(frozen=True)
class Decoy:
    """A deliberately wrong item. ``unit`` is what experts see, and ``host`` is the real unit that it was made from."""

    unit: Unit
    host: Unit
    mask_id: str | None = None
    mask: np.ndarray | None = None
    expert: str | None = None
    """The expert who judges the decoy, or None for all experts."""


def plant_decoys(
    units: Sequence[Unit],
    dealt: Mapping[str, Sequence[Unit]],
    *,
    studies: Iterable[str],
    mask_units: Iterable[str],
    masks: Shards,
    organs: Shards,
    seed: int,
) -> list[Decoy]:
    """Return decoys (wrong items): first wrong masks, judged by all experts, then wrong negatives, each for one expert.

    ``units`` are all units of the split, and ``dealt`` is {expert: units to judge}. ``studies`` and ``mask_units`` are
    tables of the masks stage. Logs a warning if too few units can be hosts.
    """
    sampled_keys = {unit.key for dealt_units in dealt.values() for unit in dealt_units}

    def order_hosts(*purpose: str) -> list[Unit]:
        """Return all units with a mask, first those on no page, in a random order that depends on ``purpose``."""
        hosts = [unit for unit in units if unit.is_positive]
        return sorted(hosts, key=lambda unit: (unit.key in sampled_keys, stable_hash(seed, *purpose, *unit.key)))

    num_masks = max((count_decoys(dealt_units, has_mask=True) for dealt_units in dealt.values()), default=0)
    wrong_masks = make_wrong_masks(order_hosts("mask"), studies, mask_units, masks, organs, seed)
    decoys = list(islice(wrong_masks, num_masks))
    num_wanted = num_masks
    for expert, dealt_units in dealt.items():
        number = count_decoys(dealt_units, has_mask=False)
        wrong_negatives = make_wrong_negatives(order_hosts("negative", expert), units, expert, seed)
        decoys += islice(wrong_negatives, number)
        num_wanted += number
    if len(decoys) < num_wanted:
        log.warning("review: only %d of %d decoys were made, as too few units suit as hosts", len(decoys), num_wanted)
    return decoys


def count_decoys(units: Iterable[Unit], *, has_mask: bool) -> int:
    """Return the number of decoys to add to an expert's ``units`` with a mask (``has_mask``), or to those without."""
    return -(-sum(unit.is_positive == has_mask for unit in units) // ITEMS_PER_DECOY)


def make_wrong_masks(
    hosts: Iterable[Unit], studies: Iterable[str], mask_units: Iterable[str], masks: Shards, organs: Shards, seed: int
) -> Iterator[Decoy]:
    """Yield a decoy with a wrong mask for each host whose other lung is healthy and suits another patient's mask."""
    # {image_id: sides on which a negative may name the whole lung and the image shows no sign of a lesion}
    quiet_lungs: dict[str, set[str]] = {}
    for image_id, empty, signs in read_tables(studies).select("image_id", "empty", "signs").iter_rows():
        signs_by_place = {row["location"]: row for row in signs}
        quiet_lungs[image_id] = {
            side for side in SIDES if f"{side} lung" in empty and is_quiet(signs_by_place.get(f"{side} lung"))
        }
    donors_by_target = _read_donors(mask_units)
    for host in hosts:
        side, pool = shared_side(host.location), donors_by_target.get(host.target, [])
        target_side = next((name for name in SIDES if side and name != side), None)
        if target_side not in quiet_lungs.get(host.image_id, ()):
            continue
        start = stable_hash(seed, "donor", *host.key)
        for donor in (pool[(start + step) % len(pool)] for step in range(min(MAX_DONORS, len(pool)))):
            if donor["subject_id"] == host.subject_id:
                continue
            donor_side = shared_side(donor["location"])
            donor_lung, target_lung = (
                organs.shard_of(image_id).masks(image_id)[f"{name} lung"]
                for image_id, name in ((donor["image_id"], donor_side), (host.image_id, target_side))
            )
            mask = masks.get("mask", donor["mask_id"])
            moved_mask = move_mask(mask, donor_lung, target_lung, mirrored=donor_side != target_side)
            if moved_mask is not None:
                unit = replace(host, mask_id=f"{donor['mask_id']} in {host.image_id}", pair_ids=[])
                yield Decoy(unit, host, donor["mask_id"], moved_mask)
                break


def _read_donors(mask_units: Iterable[str]) -> dict[str, list[dict]]:
    """Return {lesion type: rows of ``mask_units`` with a mask and with locations in one lung only}."""
    columns = ("mask_id", "unit", "image_id", "subject_id", "target", "location")
    is_donor = (pl.col("kind") == "basic") & pl.col("mask_id").is_not_null()
    table = pl.concat([read_table(path).filter(is_donor).select(columns) for path in mask_units])
    donors_by_target: dict[str, list[dict]] = {}
    for row in table.sort("mask_id", "unit").iter_rows(named=True):
        if shared_side(row["location"]):
            donors_by_target.setdefault(row["target"], []).append(row)
    return donors_by_target


def shared_side(locations: Iterable[str]) -> str | None:
    """Return the side ("left" or "right") that all locations share, or None if they share none."""
    sides = {side_of(location) for location in locations}
    return sides.pop() if len(sides) == 1 else None


def move_mask(mask: np.ndarray, lung: np.ndarray, target_lung: np.ndarray, *, mirrored: bool) -> np.ndarray | None:
    """Return a mask moved from ``lung`` to ``target_lung`` of another image and clipped to it; all are bool (H, W).

    If ``mirrored``, mask and lung are mirrored before the shift, which aligns the centres of the lungs' bounding boxes.
    Return None if a lung is empty, or less than the fraction :data:`MIN_INSIDE` of the mask is in the target lung.
    """
    if not (lung.any() and target_lung.any()):
        return None
    if mirrored:
        mask, lung = mask[:, ::-1], lung[:, ::-1]
    corners = np.reshape([bounding_box(target_lung), bounding_box(lung)], (2, 2, 2))
    dx, dy = np.subtract(*corners.mean(axis=1)).round()
    shift = np.array([[1, 0, dx], [0, 1, dy]])
    shifted_mask = cv2.warpAffine(mask.astype(np.uint8), shift, mask.shape[::-1], flags=cv2.INTER_NEAREST) > 0
    shifted_mask &= target_lung
    return shifted_mask if shifted_mask.sum() >= MIN_INSIDE * mask.sum() else None


def make_wrong_negatives(hosts: Iterable[Unit], units: Iterable[Unit], expert: str, seed: int) -> Iterator[Decoy]:
    """Yield decoys for ``expert`` that wrongly deny a lesion: one for each of ``hosts`` (units with a mask) that is
    "definitive" and whose lesion type also has real negatives among ``units``."""
    has_location: dict[str, list[bool]] = {}
    for unit in units:
        if not unit.is_positive:
            has_location.setdefault(unit.target, []).append(bool(unit.location))
    for host in hosts:
        if host.certainty == "definitive" and host.target in has_location:
            rng = make_rng(seed, "decoy", expert, *host.key)
            location = (rng.choice(host.location),) if rng.choice(has_location[host.target]) else ()
            yield Decoy(replace(host, mask_id=None, location=location, pair_ids=[]), host, expert=expert)
