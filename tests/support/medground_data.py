"""Manifests of the real data for MedGround's sources, and regions of them as plain rows."""

import csv
import json
from dataclasses import replace
from pathlib import Path

from cxr.base.hdf5 import Shard
from cxr.base.tables import read_lines, read_table
from cxr.medground.logic.facts import Facts
from cxr.medground.queries import make_queries
from cxr.medground.regions import make_regions
from cxr.medground.sources.read_sources import run
from cxr.medground.stage_settings import RegionsSettings
from cxr.workflow.plan_medground import find_film_files
from cxr.workflow.settings import Settings

SETTINGS = Settings().medground
LESIONS = {
    "ground_glass_opacity": "ground-glass opacity",
    "consolidation": "consolidation",
    "pneumothorax": "pneumothorax",
}
ORGANS = {
    "lung_right": "right lung", "lung_left": "left lung", "cardiomediastinum": "cardiomediastinum",
    "airways": "airways",
}  # fmt: skip
COVID_CLASSES = {
    "ground-glass opacity": {"many": "ground-glass opacities", "parents": {"lesion": "lesions"}},
    "consolidation": {"many": "consolidations", "parents": {"lesion": "lesions"}},
    "pneumothorax": {"many": "pneumothoraces", "parents": {"lesion": "lesions"}},
    "right lung": {"many": "right lungs", "parents": {"lung": "lungs"}},
    "left lung": {"many": "left lungs", "parents": {"lung": "lungs"}},
    "cardiomediastinum": {"many": "cardiomediastina"},
    "airways": {"one": "airway", "many": "airways"},
}
NUCLEUS = {"nucleus": {"one": "nucleus", "many": "nuclei", "parents": {"cell": "cells"}}}
SPLITS = ("train", "test")


def _write(path: Path, rows: list[dict]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)))
        writer.writeheader()
        writer.writerows(rows)
    return path


def covid(shared: Path, path: Path, half: int | None = None) -> dict:
    """Write the manifest of the radiologists' masks and return the source's keys. ``half``: 0 or 1 of the pictures."""
    folder, rows, at = shared / "data/covid", [], 0
    with open(folder / "covid.csv", encoding="utf-8") as file:
        held = [row for row in csv.DictReader(file) if "lung_right" in (row["masks"] or "")]
    for row in sorted(held, key=lambda row: row["image"]):
        at += 1
        if half is not None and at % 2 != half:
            continue
        for name, mask in json.loads(row["masks"]).items():
            if label := (LESIONS | ORGANS).get(name):
                image = str(folder / "images" / row["image"])
                told = {"image_path": image, "mask_path": str(folder / mask), "class": label}
                rows.append(told | {"split": "test", "subject_id": row["patient_id"]})
    return {"manifest": str(_write(path, rows)), "domain": "cxr", "classes": COVID_CLASSES, "modality": "chest X-ray"}


def nih(shared: Path, path: Path, half: int | None = None) -> dict:
    """Write the manifest of the boxes of NIH and RSNA and return the source's keys."""
    folder, rows, labels, at = shared / "data/nih", [], {}, 0
    with open(folder / "nih.csv", encoding="utf-8") as file:
        held = sorted(csv.DictReader(file), key=lambda row: row["image"])
    for row in held:
        at += 1
        if half is not None and at % 2 != half:
            continue
        boxes = json.loads(row["nih_boxes"] or "[]")
        boxes += [box | {"label": "lung opacity"} for box in json.loads(row["rsna_boxes"] or "[]")]
        for box in boxes:
            label = box["label"].lower()
            many = f"{label[:-1]}ies" if label.endswith("y") else f"{label}s"
            labels[label] = {"one": label, "many": many, "parents": {"lesion": "lesions"}}
            image = next(folder.rglob(row["image"]))
            rows.append({name: str(box[name]) for name in "xywh"} | {"image_path": str(image), "class": label})
            rows[-1] |= {"split": "test", "subject_id": row["patient_id"]}
    found = {"manifest": str(_write(path, rows)), "kind": "boxes", "domain": "cxr", "modality": "chest X-ray"}
    return found | {"classes": dict(sorted(labels.items()))}


def monuseg(shared: Path, path: Path, half: int | None = None) -> dict:
    """Write the manifest of the ten H&E pictures and return the source's keys: tiles of 250 px."""
    folder, rows = shared / "data/nuclei/monuseg", []
    for at, image in enumerate(sorted(folder.glob("*/img/*"))):
        if half is not None and at % 2 != half:
            continue
        mask = image.parent.parent / "labelcol" / f"{image.stem}.png"
        rows.append({"image_path": str(image), "mask_path": str(mask), "split": "test"})
    found = {"manifest": str(_write(path, rows)), "domain": "nuclei", "classes": NUCLEUS}
    return found | {"tile": 250, "modality": "H&E histopathology"}


def stardist(shared: Path, path: Path, half: int | None = None) -> dict:
    """Write the manifest of the fluorescence picture and return the source's keys: instances, tiles of 128 px."""
    folder = shared / "data/nuclei/stardist"
    rows = [{"image_path": str(folder / "img2d.tif"), "mask_path": str(folder / "mask2d.tif"), "split": "test"}]
    found = {"manifest": str(_write(path, rows)), "domain": "nuclei", "classes": NUCLEUS, "mask_kind": "instances"}
    return found | {"tile": 128, "modality": "fluorescence microscopy"}


SOURCES = {"covid": covid, "nih": nih, "monuseg": monuseg, "stardist": stardist}


def source_keys(**keys: object) -> dict:
    """Return a source's keys with the settings' defaults, as its rule receives them."""
    made = type(SETTINGS.sources.in_use("embedded")["cells"])(**keys).as_dict()
    return made | {"classes": made["classes"] or {"region": {}}}


def sources_options(keys: dict, name: str = "given", **more: object) -> dict:
    """Return the arguments of the stage for one source that come from the settings."""
    others = {"name": name, "source": keys, "seed": 2026}
    changed = {field: value for field, value in more.items() if hasattr(SETTINGS.sources, field)}
    own = {field: value for field, value in more.items() if field not in changed}
    return {"options": replace(SETTINGS.sources, **changed)} | others | own


def regions_options(**more: object) -> RegionsSettings:
    """Return the settings of the regions."""
    return replace(SETTINGS.regions, **more)


def read_source(folder: Path, keys: dict, shards: int = 1, name: str = "given", **more: object) -> Path:
    """Read a source into ``folder``/sources and return ``folder``."""
    made = folder / "sources"
    made.mkdir(parents=True, exist_ok=True)
    files = [str(made / f"{at:02d}.h5") for at in range(shards)]
    inputs = {name: keys[name] for name in ("manifest", "npz", "folder") if keys[name]}
    inputs |= find_film_files(name, keys, []) if keys["anatomy"] else {}
    run(
        shards=files, images=str(made / "images.parquet"), excluded=str(made / "excluded.parquet"),
        attrs={"stage": "medground_sources_read"}, **sources_options(keys, name, **more), **inputs,
    )  # fmt: skip
    return folder


def make_regions_of(folder: Path, **more: object) -> Path:
    """Make the regions of every shard in ``folder``/sources and return ``folder``."""
    for shard in sorted((folder / "sources").glob("*.h5")):
        made = folder / "regions"
        made.mkdir(exist_ok=True)
        make_regions.run_shard(
            sources=str(shard), images=str(folder / "sources/images.parquet"),
            output=str(made / f"{shard.stem}.parquet"),
            dropped=str(made / f"{shard.stem}.dropped.parquet"),
            shifted=str(made / f"{shard.stem}.shifted.parquet"),
            excluded=str(made / f"{shard.stem}.excluded.parquet"), options=regions_options(**more), seed=2026,
        )  # fmt: skip
    return folder


def regions_of(folder: Path) -> list[dict]:
    """Return the rows of all shards' regions."""
    files = sorted(path for path in (folder / "regions").glob("*.parquet") if path.stem.isdigit())
    return [row for path in files for row in read_table(path).iter_rows(named=True)]


def facts_of(folder: Path) -> Facts:
    """Return the facts of the source in ``folder``."""
    with Shard(folder / "sources/00.h5") as shard:
        return Facts.from_shard(shard)


def queries_options(source: str, statements: bool = False, **more: object) -> dict:
    """Return the arguments of the stage for the queries of one source."""
    options = replace(SETTINGS.queries, **more)
    return {"options": options, "source": source, "seed": 2026, "statements": statements}


def make_queries_of(folder: Path, source: str, **more: object) -> list[dict]:
    """Make the queries of every shard in ``folder`` and return their lines."""
    (folder / "queries").mkdir(exist_ok=True)
    lines = []
    for shard in sorted((folder / "sources").glob("*.h5")):
        output = folder / "queries" / f"{shard.stem}.jsonl"
        make_queries.run_shard(
            sources=str(shard), images=str(folder / "sources/images.parquet"),
            regions=str(folder / f"regions/{shard.stem}.parquet"),
            shifted=str(folder / f"regions/{shard.stem}.shifted.parquet"), output=str(output),
            unasked=str(folder / f"queries/{shard.stem}.unasked.parquet"), **queries_options(source, **more),
        )  # fmt: skip
        lines += read_lines(output)
    return lines


def whole_source(folder: Path, name: str, shared: Path | None = None, half: int | None = None, **more: object) -> Path:
    """Read a source, cells or one of :data:`SOURCES`, and make its regions; return its folder."""
    if name == "cells":
        keys = source_keys(kind="cells", domain="nuclei", modality="drawn microscopy")
    else:
        given = SOURCES[name](shared, folder / "m.csv", half)
        keys = source_keys(**({"kind": "folder"} | given))
    return make_regions_of(read_source(folder, keys, name=name, **more))


def verification_options(statements: bool = False, **more: object) -> dict:
    """Return the arguments of the stage for the verification of one source."""
    return {"options": replace(SETTINGS.verification, **more), "statements": statements}
