"""Read one source: shards of images and masks, a table of images, and the excluded images.

A shard (HDF5, key ``image_id``): ``picture`` uint8 (S, S, 3); ``mask`` bool (K, S, S), packed, the classes in the
attribute ``facts``; ``instances`` uint16 (S, S) where the source knows instances; ``zones`` bool (Z, S, S) where it
knows the patient's zones; ``organs`` bool (3, S, S) and ``anomaly`` uint8 (S, S) where they come from results of ILS,
0 for an image without them, of which the table of images tells. The attribute ``facts`` is
:class:`cxr.medground.logic.facts.Facts` as JSON.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from cxr.base.columns import Column, Columns
from cxr.base.hdf5 import ShardWriter
from cxr.base.jobs import log
from cxr.base.ledger import EXCLUDED, Ledger
from cxr.base.lesions import LESION_TYPES
from cxr.base.resources import load_resource
from cxr.base.seeds import shard_of
from cxr.base.tables import read_table, write_rows, write_table
from cxr.base.vocabulary import LESIONS, LUNG_LESIONS, ORGAN_LABELS, ZONE_LABELS
from cxr.dicom.files import Rejected
from cxr.geometry.boxes import CORNERS
from cxr.imaging.frames.burned_in import KEEP, clean_image
from cxr.language.reports.privacy.scrubbing import scrub
from cxr.medground.logic.facts import Facts
from cxr.medground.logic.text import clean_description, sides_disagree
from cxr.medground.sources.cells import KINDS, SIDE, read_cells
from cxr.medground.sources.folder import REQUIRED, read_folder, read_manifest
from cxr.medground.sources.ils import (
    ABSENT,
    DIFFERENT,
    FOUND,
    IlsResults,
    finding_class,
    read_ils,
    take_shard_files,
)
from cxr.medground.sources.image import Image, Refused, cut_tiles, fit_to_frame, pad_tile
from cxr.medground.sources.lvit import read_lvit
from cxr.medground.sources.medsegbench import check_digest, parse_flag, read_flag_facts, read_npz
from cxr.medground.sources.settings import EMBEDDED, SourcesSettings

RESOURCE_FILES = ("medground/sources.yaml",)
BOX = pl.Struct({"label": pl.String, "x1": pl.Float64, "y1": pl.Float64, "x2": pl.Float64, "y2": pl.Float64})
IMAGES: Columns = {
    "image_id": Column(pl.String, "Image, or tile of one: its row and column after the name."),
    "subject_id": Column(pl.String, "Its subject; the image itself where the source names none."),
    "split": Column(pl.String, "train, validate or test."),
    "shard": Column(pl.String, "Shard of its subject."),
    "domain": Column(pl.String, "Kind of image: nuclei, bacteria, ultrasound, dermoscopy, ct, cxr or other."),
    "modality": Column(pl.String, "Modality, in the source's words."),
    "licence": Column(pl.String, "Licence of the picture and its masks."),
    "description": Column(pl.String, "Text that came with it, without marks; empty: none, or refused."),
    "described": Column(
        pl.String, "none; refused: it gives orders to a model; read: of a known form; unread: another."
    ),
    "disagrees": Column(pl.Boolean, "Whether it names other sides than the masks have; null where it does not tell."),
    "radiological": Column(pl.Boolean, "Whether its left is the patient's right; null where that is unknown."),
    "extent": Column(pl.List(pl.Int64), "The picture without padding: left, top, right, bottom.", "frame pixels"),
    "inner": Column(pl.List(pl.Boolean), "Which of these edges a tile was cut at."),
    "to_original": Column(pl.List(pl.Float64), "Affine from frame to original pixels, by rows; centres at .5."),
    "boxes": Column(pl.List(BOX), "The boxes, of a source without masks.", "frame pixels"),
    "anatomy": Column(
        pl.String,
        "Its zones. none: not asked for; found; absent: the results of ILS have none of it; different: those of that "
        "name are of another picture.",
    ),
    "anomaly": Column(pl.Boolean, "Whether the judge may look at its anomaly map."),
    "digest": Column(pl.String, "Digest of the pixels."),
}
"""Columns of the table of images."""


def _class_words(source: Mapping) -> dict[str, dict]:
    """Return {class: {one, many, parents}} of a source."""
    if source["kind"] not in EMBEDDED:
        return source["classes"]
    vocabulary = load_resource(RESOURCE_FILES[0])
    if source["kind"] == "cells":
        return vocabulary["cells"]
    words_by_class = dict(vocabulary["ils"])
    for lesion in LESION_TYPES:
        words = {"one": lesion.noun, "many": lesion.plural, "parents": vocabulary["lesion"]}
        tentative_words = {
            "one": f"possible {lesion.noun}", "many": f"possible {lesion.plural}", "parents": vocabulary["tentative"]
        }  # fmt: skip
        inside = {"inside": lesion.name in LUNG_LESIONS}
        words_by_class[lesion.name] = words | inside
        words_by_class[finding_class(lesion.name, "tentative")] = tentative_words | inside
    return words_by_class


def _labels(source: Mapping) -> list[str]:
    if source["kind"] == "ils":
        return [*LESIONS, *(finding_class(word, "tentative") for word in LESIONS), *ORGAN_LABELS]
    return list(KINDS) if source["kind"] == "cells" else list(source["classes"])


def _read_images(
    name: str, source: Mapping, options: SourcesSettings, seed: int, inputs: Mapping
) -> Iterator[tuple[str, Image | Refused]]:
    """Yield (image_id, image or why it is excluded) of a source. ``source``: its settings, and those of all masks."""
    kind = source["kind"]
    if kind == "cells":
        return read_cells(options.cells, seed)
    if kind == "ils":
        return read_ils(**inputs)
    if kind == "lvit":
        return read_lvit(name, source, str(inputs["folder"]))
    if kind == "medsegbench":
        return read_npz(str(inputs["npz"]), parse_flag(source["npz"])[0], source)
    return read_folder(source, inputs["manifest"])


def _without_identifiers(image: Image | Refused, burned_in: str, is_scrubbed: bool) -> Image | Refused:
    """Return an image without burned-in text and with a scrubbed description."""
    if isinstance(image, Refused):
        return image
    try:
        picture, _ = clean_image(image.picture, burned_in)
    except Rejected as rejected:
        return Refused(rejected.reason, rejected.detail)
    text = scrub(image.description, image.subject_id).text if is_scrubbed and image.description else image.description
    return replace(image, picture=picture, description=text)


def _frame_side(source: Mapping, size: int) -> int:
    """Return the side of the source's frames, a multiple of 8."""
    side_by_kind = {"cells": SIDE, "medsegbench": source.get("side")}
    side = side_by_kind.get(source["kind"]) or source["tile"] or size
    return -(-side // 8) * 8


class _Writer:
    """Write the images of a source to its shards."""

    def __init__(self, source: Mapping, side: int, shards: Sequence[str], attrs: dict, stack: ExitStack):
        self.source, self.labels, self.rows, self.found = source, _labels(source), [], set()
        shape, films = (side, side), bool(source["anatomy"])
        knows_instances = source["kind"] == "cells" or (
            source["kind"] == "folder" and source["mask_kind"] == "instances"
        )
        optional_fields = {
            "zones": (source["kind"] == "ils" or films, (len(ZONE_LABELS), *shape), np.bool_),
            "organs": (films, (len(ORGAN_LABELS), *shape), np.bool_),
            "anomaly": (films and source["anomaly"] == "results", shape, np.uint8),
            "instances": (knows_instances, shape, np.uint16),
        }
        self.fields = {name: (form, kind) for name, (is_present, form, kind) in optional_fields.items() if is_present}
        empty = {"picture": ((*shape, 3), np.uint8), "mask": ((len(self.labels), *shape), np.bool_)} | self.fields
        facts = Facts(
            self.labels, _class_words(source), list(self.fields), ZONE_LABELS if "zones" in self.fields else (),
            source["allow"], source["modality"], source["kind"] == "boxes",
        )  # fmt: skip
        shard_attrs = attrs | facts.to_attrs()
        self.writers = {
            Path(path).stem: stack.enter_context(
                ShardWriter(path, attrs=shard_attrs, pictures=("picture",), empty=empty)
            )
            for path in shards
        }
        self.names = sorted(self.writers)

    def _more(self, image: Image) -> dict[str, np.ndarray]:
        """Return the image's further fields; 0 without results of ILS."""
        planes = {
            "zones": np.stack([image.zones[zone] for zone in ZONE_LABELS]) if image.zones else None,
            "organs": np.stack([image.organs[organ] for organ in ORGAN_LABELS]) if image.organs else None,
            "anomaly": image.anomaly,
            "instances": image.instances,
        }
        return {
            name: np.zeros(form, kind) if planes[name] is None else planes[name]
            for name, (form, kind) in self.fields.items()
        }

    def write(self, image: Image, digest: str) -> None:
        shard = self.names[shard_of(image.subject_id, len(self.names))]
        picture = image.picture if image.picture.ndim == 3 else np.repeat(image.picture[..., None], 3, axis=2)
        outside = np.zeros(picture.shape[:2], bool)
        mask = np.stack([image.masks.get(label, outside) for label in self.labels])
        self.writers[shard].append(image.image_id, picture=picture, mask=mask, **self._more(image))
        self.found |= {label for label, part in image.masks.items() if part.any()} | set(image.boxes or ())
        text, state = clean_description(image.description)
        sided = image.domain in ("cxr", "ct") and self.source["orientation"] == "radiological"
        self.rows.append(
            {
                **{name: getattr(image, name) for name in ("image_id", "subject_id", "split", "domain", "licence")},
                "shard": shard,
                "modality": self.source["modality"],
                "description": text,
                "described": state,
                "disagrees": sides_disagree(text, image.masks, sided) if image.masks else None,
                "radiological": True if sided else None,
                "extent": list(image.extent),
                "inner": list(image.inner),
                "to_original": image.to_original.ravel().tolist(),
                "boxes": [
                    {"label": label} | dict(zip(CORNERS, box, strict=True))
                    for label, boxes in (image.boxes or {}).items()
                    for box in boxes.tolist()
                ],
                "anatomy": image.anatomy,
                "anomaly": image.anomaly is not None,
                "digest": digest,
            }
        )


def _image_digest(image: Image) -> str:
    return hashlib.blake2b(image.picture.tobytes() + str(image.picture.shape).encode(), digest_size=12).hexdigest()


def _find_duplicates(images: Iterable[tuple[str, str, str]]) -> dict[str, str]:
    """Return {image_id: reason} of duplicates: all but the first test image, or all but the first image."""
    copies_by_digest: dict[str, list[tuple[str, str]]] = {}
    for image_id, digest, split in images:
        copies_by_digest.setdefault(digest, []).append((image_id, split))
    reason_by_image = {}
    for copies in copies_by_digest.values():
        tested = [image_id for image_id, split in copies if split == "test"]
        original_id = (tested or [copies[0][0]])[0]
        for image_id, split in copies:
            if image_id != original_id:
                across = tested and split != "test"
                reason_by_image[image_id] = "duplicate_of_test" if across else "duplicate_image"
    return reason_by_image


def run(
    *, shards: Sequence[str], images: str, excluded: str, options: SourcesSettings, name: str, source: dict,
    attrs: dict, seed: int = 0, burned_in: str = KEEP, scrub: bool = False, **inputs: object,
) -> None:  # fmt: skip
    """Write the shards, the table of images and the excluded images of one source, or of one shard of it.

    ``source``: its settings; ``burned_in``, ``scrub``: whether burned-in text and identifiers in descriptions are
    removed. Raises UserError for a wrong manifest, StoreError for a damaged input.
    """
    kind, parts = source["kind"], take_shard_files(inputs)
    mask_names = ("mask_threshold", "most_foreground", "resize_masks")
    source = source | {key: getattr(options, key) for key in mask_names}
    if kind == "medsegbench":
        flag, side = parse_flag(source["npz"])
        source |= read_flag_facts(flag) | {"side": side, "tile": None}
        check_digest(Path(source["npz"]), source["md5"])
    if kind in REQUIRED:
        inputs = {"manifest": read_manifest(name, kind, Path(str(inputs["manifest"])))}

    def read() -> Iterator[tuple[str, Image | Refused]]:
        pairs = _read_images(name, source, options, seed, inputs)
        if kind in EMBEDDED:
            return pairs
        return ((image_id, _without_identifiers(image, burned_in, scrub)) for image_id, image in pairs)

    reason_by_image: dict[str, str] = {}
    if kind not in EMBEDDED:
        readable = ((image_id, image) for image_id, image in read() if isinstance(image, Image))
        reason_by_image = _find_duplicates((key, _image_digest(image), image.split) for key, image in readable)
    ledger, image_ids = Ledger("medground_sources"), []
    side, tile = _frame_side(source, options.size), source["tile"]
    with ExitStack() as stack:
        writer = _Writer(source, side, shards, attrs, stack)
        films = stack.enter_context(IlsResults(parts) if parts else nullcontext())
        for image_id, image in read():
            image_ids.append(image_id)
            if isinstance(image, Refused):
                ledger.exclude(image_id, "", image.reason, image.detail)
                continue
            if image_id in reason_by_image:
                ledger.exclude(image_id, "", reason_by_image[image_id], "")
                continue
            ledger.accept(image_id)
            digest = _image_digest(image)
            for part in cut_tiles(image, tile) if tile else [image]:
                placed = pad_tile(part, side) if tile else fit_to_frame(part, side)
                if films is not None and placed.domain == "cxr":
                    placed = films.add_anatomy(placed, part.picture.shape[:2])
                writer.write(placed, digest)
    rows = sorted(writer.rows, key=lambda row: row["image_id"])
    _warn_mirrored(name, rows)
    _warn_missing_anatomy(name, source["anatomy"], rows)
    absent = [label for label in writer.labels if label not in writer.found]
    if absent and kind not in EMBEDDED:
        log.warning("%s: no image has a region of the class %s", name, ", ".join(absent))
    write_rows(images, rows, IMAGES)
    ledger.finish(excluded, image_ids)


def _warn_mirrored(name: str, rows: Sequence[dict]) -> None:
    """Warn if most descriptions name other sides than the masks."""
    disagreements = [row["disagrees"] for row in rows if row["disagrees"] is not None]
    if disagreements and sum(disagreements) > len(disagreements) / 2:
        log.warning(
            "%s: %d of %d descriptions name other sides than the masks have; are the images mirrored, or is "
            "medground.sources.sets.%s.orientation wrong?", name, sum(disagreements), len(disagreements), name,
        )  # fmt: skip


def _warn_missing_anatomy(name: str, results: str, rows: Sequence[dict]) -> None:
    """Warn about the number of radiographs without results of ILS."""
    counts = Counter(row["anatomy"] for row in rows)
    if lost := counts[ABSENT] + counts[DIFFERENT]:
        log.warning(
            "%s: of %d of %d films %s has no anatomy (%d of these are other pictures of the same name): their queries "
            "name no zone and stay unjudged",
            name, lost, lost + counts[FOUND], results, counts[DIFFERENT],
        )  # fmt: skip


def run_tables(*, images: Sequence[str], excluded: Sequence[str], table: str, all_excluded: str) -> None:
    """Join the tables of images, and those of excluded images, of a source's shards."""
    joined = (pl.concat([read_table(path) for path in paths]) for paths in (images, excluded))
    write_table(table, next(joined).sort("image_id"), IMAGES)
    excluded_table = next(joined)
    write_table(all_excluded, excluded_table.sort(excluded_table.columns), EXCLUDED)
