"""Assemble a version of the dataset as one folder: all layouts, texts, and checksums of all files.

The folder reveals no time, machine or path: the date is a setting, files are sorted, and settings that name files or
folders are emptied. Parts are hard links, so a package needs no extra disk space.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from cxr.base.atomic import atomic_folder, link_file, link_folder
from cxr.reporting.release import facts
from cxr.reporting.release.export_tables import COUNTS
from cxr.reporting.release.layout import copy_layout
from cxr.reporting.release.metadata import CRATE_NAME, FOLDERS, build_crate, build_croissant, described_files
from cxr.reporting.release.parquet import CONFIGS, published_columns
from cxr.reporting.release.settings import PackageSettings
from cxr.reporting.release.texts import card_text, datasheet_text
from cxr.reporting.release.withheld import IDS, Withheld, read_kept_pairs

SUMS = "SHA256SUMS"
DICOM, AUTHORS = "dicom_seg", "authors"


def run_package(
    *,
    tables: str,
    segmentations: Sequence[str],
    layout: Sequence[str],
    images: str,
    filtered: str | Sequence[str],
    salt: str | Sequence[str],
    excluded: Sequence[str],
    dropped: str,
    frames: Sequence[str],
    organs: Sequence[str],
    anomaly: Sequence[str],
    anatomy: Sequence[str],
    masks: Sequence[str],
    reports: Sequence[str],
    weights: Sequence[str],
    package: str,
    options: PackageSettings,
    seed: int,
    source: str,
    settings: dict,
    engines: dict,
    environments: dict,
    thresholds: str,
    taus: dict,
    codes: dict,
    attrs: dict,
) -> None:
    """Assemble the parts in the folder ``package``, which appears only when complete.

    ``layout``: the folder of the authors' layout, empty if it cannot represent the dataset (several images a study).
    ``excluded``: ledgers, in the order of the stages; the stages' shards are read only for their digests. ``codes``:
    code digests of the stages whose files contain none.
    """
    withheld, kept_pair_ids = Withheld(options.withhold, salt), read_kept_pairs(filtered)
    field_names = ("name", "version", "date", "licence", "creator", "cite", "url", "withhold")
    about = {name: getattr(options, name) for name in field_names} | {"seed": seed, "thresholds": thresholds}
    shards_by_stage = {"frames": frames, "organs": organs, "anomaly": anomaly, "anatomy": anatomy, "masks": masks}
    counts = json.loads((Path(tables) / COUNTS).read_text(encoding="utf-8"))
    package_facts = {
        "counts": counts,
        "dicom": facts.sum_counts([f"{folder}/{COUNTS}" for folder in segmentations]),
        "test": "all pairs, not reviewed."
        if kept_pair_ids is None
        else "only the pairs of a reviewed file (release.test).",
        "source": facts.COHORT_TERMS[source],
        "weights": facts.weight_rows(engines, weights, file_sha256),
        "excluded": facts.exclusion_rows(excluded),
        "dropped": facts.dropped_rows(dropped),
        "digests": {stage: [code] for stage, code in codes.items()} | facts.code_digests(shards_by_stage, reports),
        "taus": taus,
        "settings": settings,
        "engines": engines,
        "environments": environments,
        "code": attrs["code_digest"],
    }
    columns = {config: published_columns(config_columns, pixels=withheld.pixels, report_text=withheld.report_text)
               for config, (_, config_columns) in CONFIGS.items()}  # fmt: skip
    with atomic_folder(package) as folder:
        for file in _list_files(Path(tables)):
            if file != COUNTS:
                link_file(Path(tables) / file, folder / file)
        for part in segmentations if IDS not in options.withhold else []:
            link_folder(part, folder / DICOM)
            (folder / DICOM / COUNTS).unlink(missing_ok=True)
        for layout_folder in layout:
            copy_layout(Path(layout_folder), folder / AUTHORS, images, withheld, kept_pair_ids)
        files = _list_files(folder)
        _write_text(folder / "README.md", card_text(about, counts, columns, files))
        _write_text(folder / "DATASHEET.md", datasheet_text(about, package_facts))
        description = (
            "Instructions, answers and lesion masks of chest X-rays, made from reports without human labels; "
            f"thresholds {thresholds}."
        )
        digests = {file: file_sha256(folder / file) for file in described_files(files)}
        _write_json(folder / "croissant.json", build_croissant(about, columns, digests, description))
        folders = [name for name in FOLDERS if any(file.startswith(name) for file in files)]
        _write_json(folder / CRATE_NAME, build_crate(about, package_facts, description, folders))
        sums = "".join(f"{digests.get(file) or file_sha256(folder / file)}  {file}\n" for file in _list_files(folder))
        _write_text(folder / SUMS, sums)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _list_files(folder: Path) -> list[str]:
    paths = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return sorted(path.relative_to(folder).as_posix() for path in paths)


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")


def _write_json(path: Path, value: dict) -> None:
    _write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")
