"""Read one source, and write its shards of images and masks, its table of images and its table of excluded images.

A shard is an HDF5 file with the key ``image_id``. Its fields are picture uint8 (S, S, 3) and mask bool (K, S, S), for K
classes, as bits. Some sources add instances uint16 (S, S), zones bool (Z, S, S), organs bool (3, S, S) or anomaly uint8
(S, S), which are 0 if unknown. The attribute ``facts`` is :class:`cxr.medground.logic.facts.Facts` as JSON."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from cxr.base.columns import read_columns
from cxr.base.hdf5 import ShardWriter
from cxr.base.jobs import log
from cxr.base.ledger import EXCLUDED, Ledger
from cxr.base.lesions import LESION_TYPES
from cxr.base.resources import load_resource
from cxr.base.seeds import shard_of
from cxr.base.tables import read_tables, write_rows, write_table
from cxr.base.vocabulary import LESIONS, LUNG_LESIONS, ORGAN_LABELS, ZONE_LABELS
from cxr.dicom.files import Rejected
from cxr.geometry.boxes import CORNERS
from cxr.imaging.frames.burned_in import KEEP, clean_image
from cxr.language.reports.privacy.scrubbing import scrub as scrub_text
from cxr.medground.logic.facts import FACTS, Facts
from cxr.medground.logic.text import clean_description, sides_disagree
from cxr.medground.sources.cells import KINDS, SIDE, read_cells
from cxr.medground.sources.folder import REQUIRED, Row, read_folder_image, read_manifest
from cxr.medground.sources.ils import ABSENT, ANATOMY_FOUND, DIFFERENT, IlsResults, finding_class, read_ils
from cxr.medground.sources.image import Image, ImageReader, cut_tiles, fit_to_frame
from cxr.medground.sources.lvit import read_lvit
from cxr.medground.sources.medsegbench import check_digest, parse_flag, read_flag_facts, read_npz
from cxr.medground.sources.settings import EMBEDDED, SourcesSettings

RESOURCE_FILES = ("medground/sources.yaml", "columns/medground_sources.toml")
BOX = pl.Struct({"label": pl.String, "x1": pl.Float64, "y1": pl.Float64, "x2": pl.Float64, "y2": pl.Float64})
IMAGES = read_columns("medground_sources", "images")
"""Columns of the table of images."""


def _labels_and_words(source: Mapping) -> tuple[list[str], dict[str, dict]]:
    """Return the classes of a source in the order of its mask planes, and {class: {one, many, parents, …}}, which are
    the singular noun, the plural noun, {broader term: its plural} and further settings of the class."""
    if source["kind"] not in EMBEDDED:
        return list(source["classes"]), source["classes"]
    vocabulary = load_resource(RESOURCE_FILES[0])
    if source["kind"] == "cells":
        return list(KINDS), vocabulary["cells"]
    words_by_class = dict(vocabulary["ils"])
    for lesion in LESION_TYPES:
        for certainty, parents in (("definitive", "lesion"), ("tentative", "tentative")):
            name, noun, plural = (finding_class(word, certainty) for word in (lesion.name, lesion.noun, lesion.plural))
            words = {"one": noun, "many": plural, "parents": vocabulary[parents]}
            words_by_class[name] = words | {"inside": lesion.name in LUNG_LESIONS}
    return [*LESIONS, *(finding_class(word, "tentative") for word in LESIONS), *ORGAN_LABELS], words_by_class


def _list_readers(
    name: str, source: Mapping, manifest: Mapping[str, list[Row]], options: SourcesSettings, seed: int, inputs: Mapping
) -> Iterator[tuple[str, ImageReader]]:
    """Return (image id, function that reads the image) for each image of the source ``name``. ``source``: its settings,
    with the settings that hold for the masks of all sources. ``inputs``: {name of an input: its path or paths}."""
    if source["kind"] == "cells":
        return read_cells(options.cells, seed)
    if source["kind"] == "ils":
        return read_ils(**inputs)
    if source["kind"] == "lvit":
        return read_lvit(name, source, str(inputs["folder"]))
    if source["kind"] == "medsegbench":
        return read_npz(str(inputs["npz"]), parse_flag(source["npz"])[0], source)
    return ((image_id, partial(read_folder_image, image_id, rows, source)) for image_id, rows in manifest.items())


class _Writer:
    """Writer of a source's images. It appends them to the shards and collects their rows for the table of images."""

    def __init__(self, source: Mapping, side: int, shards: Sequence[str], attrs: dict, stack: ExitStack):
        self.source, self.rows = source, []
        self.labels, words = _labels_and_words(source)
        self.present_labels: set[str] = set()
        has_films, kind, shape = bool(source["anatomy"]), source["kind"], (side, side)
        has_instances = kind == "cells" or (kind == "folder" and source["mask_kind"] == "instances")
        optional_fields = {
            "zones": (kind == "ils" or has_films, (len(ZONE_LABELS), *shape), np.bool_),
            "organs": (has_films, (len(ORGAN_LABELS), *shape), np.bool_),
            "anomaly": (has_films and source["anomaly"] == "results", shape, np.uint8),
            "instances": (has_instances, shape, np.uint16),
        }
        self.fields = {name: (form, dtype) for name, (is_present, form, dtype) in optional_fields.items() if is_present}
        empty = {"picture": ((*shape, 3), np.uint8), "mask": ((len(self.labels), *shape), np.bool_)} | self.fields
        zones = ZONE_LABELS if "zones" in self.fields else ()
        allow, modality, has_boxes = source["allow"], source["modality"], kind == "boxes"
        facts = Facts(self.labels, words, list(self.fields), zones, allow, modality, has_boxes)
        options = {"attrs": attrs | {FACTS: asdict(facts)}, "pictures": ("picture",), "empty": empty}
        self.shards = {Path(path).stem: stack.enter_context(ShardWriter(path, **options)) for path in sorted(shards)}

    def write(self, image: Image, digest: str) -> None:
        shard = sorted(self.shards)[shard_of(image.subject_id, len(self.shards))]
        picture = image.picture if image.picture.ndim == 3 else np.repeat(image.picture[..., None], 3, axis=2)
        outside = np.zeros(picture.shape[:2], bool)
        zones = np.stack([image.zones[zone] for zone in ZONE_LABELS]) if image.zones else None
        organs = np.stack([image.organs[organ] for organ in ORGAN_LABELS]) if image.organs else None
        planes = {"zones": zones, "organs": organs, "anomaly": image.anomaly, "instances": image.instances}
        fields = {name: np.zeros(*form) if planes[name] is None else planes[name] for name, form in self.fields.items()}
        mask = np.stack([image.masks.get(label, outside) for label in self.labels])
        self.shards[shard].append(image.image_id, picture=picture, mask=mask, **fields)
        self.present_labels |= {label for label, part in image.masks.items() if part.any()} | set(image.boxes or ())
        text, state = clean_description(image.description)
        is_sided = image.domain in ("cxr", "ct") and self.source["orientation"] == "radiological"
        boxes = [(label, box) for label, boxes in (image.boxes or {}).items() for box in boxes.tolist()]
        columns = ("image_id", "subject_id", "split", "domain", "licence", "anatomy", "extent", "inner")
        self.rows.append(
            {name: getattr(image, name) for name in columns}
            | {"shard": shard, "modality": self.source["modality"], "description": text, "described": state}
            | {"disagrees": sides_disagree(text, image.masks, is_sided) if image.masks else None}
            | {"radiological": True if is_sided else None, "anomaly": image.anomaly is not None, "digest": digest}
            | {"to_original": image.to_original.ravel().tolist()}
            | {"boxes": [{"label": label} | dict(zip(CORNERS, box, strict=True)) for label, box in boxes]}
        )


def _image_digest(image: Image) -> str:
    return hashlib.blake2b(image.picture.tobytes() + str(image.picture.shape).encode(), digest_size=12).hexdigest()


def _find_duplicates(images: Sequence[tuple[str, str, str]]) -> dict[str, str]:
    """Return {image id: reason} of the images to exclude as duplicates, from (image id, digest, split) of all images.
    Of equal images the first one is kept, or the first one of the test split if there is one."""
    original_by_digest: dict[str, tuple[str, str]] = {}
    for image_id, digest, split in images:
        _, original_split = original_by_digest.setdefault(digest, (image_id, split))
        if split == "test" and original_split != "test":
            original_by_digest[digest] = image_id, split
    reason_by_image = {}
    for image_id, digest, split in images:
        original_id, original_split = original_by_digest[digest]
        is_across = original_split == "test" and split != "test"
        if image_id != original_id:
            reason_by_image[image_id] = "duplicate_of_test" if is_across else "duplicate_image"
    return reason_by_image


def run(
    *, shards: Sequence[str], images: str, excluded: str, options: SourcesSettings, name: str, source: dict,
    attrs: dict, seed: int = 0, burned_in: str = KEEP, scrub: bool = False, **inputs: object,
) -> None:  # fmt: skip
    """Write ``shards``, the table of ``images`` and the table of ``excluded`` images of the source ``name``.
    ``burned_in``: setting privacy.burned_in. ``scrub``: whether identifiers are removed from descriptions. Raises
    UserError for an invalid manifest and StoreError for a damaged input."""
    kind, tile = source["kind"], source["tile"]
    mask_names = ("mask_threshold", "most_foreground", "resize_masks")
    source = source | {key: getattr(options, key) for key in mask_names}
    side = SIDE if kind == "cells" else tile or options.size
    if kind == "medsegbench":
        flag, side = parse_flag(source["npz"])
        source |= read_flag_facts(flag)
        tile = None
        check_digest(Path(source["npz"]), source["md5"])
    side = -(-side // 8) * 8
    manifest = read_manifest(name, kind, Path(str(inputs["manifest"]))) if kind in REQUIRED else {}

    def read() -> Iterator[tuple[str, Image | Rejected]]:
        """Yield (image id, image without burned-in text and identifiers), or (image id, Rejected) if excluded."""
        for image_id, read_image in _list_readers(name, source, manifest, options, seed, inputs):
            try:
                image = read_image()
                text = image.description
                if kind not in EMBEDDED:
                    text = scrub_text(text, image.subject_id).text if scrub and text else text
                    image = replace(image, picture=clean_image(image.picture, burned_in)[0], description=text)
                yield image_id, image
            except Rejected as rejected:
                yield image_id, rejected

    readable = ((key, image) for key, image in (read() if kind not in EMBEDDED else ()) if isinstance(image, Image))
    reason_by_image = _find_duplicates([(key, _image_digest(image), image.split) for key, image in readable])
    ledger, image_ids = Ledger("medground_sources"), []
    with ExitStack() as stack:
        writer = _Writer(source, side, shards, attrs, stack)
        films = IlsResults(inputs, stack) if source["anatomy"] else None
        for image_id, image in read():
            image_ids.append(image_id)
            if isinstance(image, Rejected) or image_id in reason_by_image:
                reasons = (image.reason, image.detail) if isinstance(image, Rejected) else (reason_by_image[image_id],)
                ledger.exclude(image_id, "", *reasons)
                continue
            ledger.accept(image_id)
            digest = _image_digest(image)
            for part in cut_tiles(image, tile) if tile else [image]:
                framed_image = fit_to_frame(part, side, is_tile=tile is not None)
                if films is not None and framed_image.domain == "cxr":
                    framed_image = films.add_anatomy(framed_image, part.picture.shape[:2])
                writer.write(framed_image, digest)
    rows = sorted(writer.rows, key=lambda row: row["image_id"])
    _warn(name, source["anatomy"], rows)
    absent = [label for label in writer.labels if label not in writer.present_labels]
    if absent and kind not in EMBEDDED:
        log.warning("%s: no image has a region of the class %s: check the source's masks", name, ", ".join(absent))
    write_rows(images, rows, IMAGES)
    ledger.finish(excluded, image_ids)


def _warn(name: str, results: str, rows: Sequence[dict]) -> None:
    """Log a warning if most descriptions contradict the masks' sides, and one if radiographs lack ILS ``results``."""
    disagreements = [row["disagrees"] for row in rows if row["disagrees"] is not None]
    if sum(disagreements) > len(disagreements) / 2:
        log.warning(
            "%s: %d of %d descriptions name other sides than the masks: check whether the images are mirrored, and "
            "medground.sources.sets.%s.orientation", name, sum(disagreements), len(disagreements), name,
        )  # fmt: skip
    counts = Counter(row["anatomy"] for row in rows)
    if lost := counts[ABSENT] + counts[DIFFERENT]:
        log.warning(
            "%s: %d of %d radiographs have no anatomy in %s (%d of them are other images of the same name): their "
            "queries name no zone and stay unjudged",
            name, lost, lost + counts[ANATOMY_FOUND], results, counts[DIFFERENT],
        )  # fmt: skip


def run_tables(*, images: Sequence[str], excluded: Sequence[str], table: str, all_excluded: str) -> None:
    """Join the tables of images of a source's shards to one table, and their tables of excluded images to another."""
    write_table(table, read_tables(images).sort("image_id"), IMAGES)
    excluded_table = read_tables(excluded)
    write_table(all_excluded, excluded_table.sort(excluded_table.columns), EXCLUDED)
