"""Assemble a version of the dataset as one folder: the pairs in several formats, texts, and checksums of all files.

The folder reveals no time, machine or path. The date is a setting, files are sorted, and settings that name files or
folders are emptied. Large parts are hard links, so a package needs little extra disk space.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl

from cxr.base.atomic import atomic_folder, link_file, link_folder
from cxr.base.exclusions import REASONS
from cxr.base.hdf5 import Shard
from cxr.base.paths import group_by_folder
from cxr.base.tables import read_lines, read_table
from cxr.ils.dataset.mimic_ils import SPLIT_NAMES as LAYOUT_SPLITS
from cxr.ils.dataset.mimic_ils import make_study_entry, make_study_key
from cxr.instructions.mimic_ils import JSON_NAME, MASK_FOLDER, write_studies
from cxr.nets.lite_weights import list_weights
from cxr.reporting.release.export_tables import COUNTS
from cxr.reporting.release.metadata import CRATE_NAME, FOLDERS, build_crate, build_croissant, described_files
from cxr.reporting.release.settings import PackageSettings
from cxr.reporting.release.texts import TERMS, card_text, datasheet_text
from cxr.reporting.release.withheld import IDS, Withheld, keep_lines, read_groups, read_kept_pairs

SUMS = "SHA256SUMS"
DICOM, AUTHORS = "dicom_seg", "authors"


def run_package(
    *,
    tables: str,
    segmentations: Sequence[str],
    layout: Sequence[str],
    lines: Sequence[str],
    filtered: str | Sequence[str],
    salt: str | Sequence[str],
    excluded: Sequence[str],
    dropped: str,
    maps: Sequence[str],
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

    ``layout`` has the folder with our dataset in the format of the paper's authors. It is empty if studies have several
    images, which that format cannot represent. ``lines`` has the dataset, one file per split. ``excluded`` are the
    tables of excluded images in the order of the stages. ``maps``, ``masks`` and ``reports`` are read only for their
    code digests. ``codes`` has the digests of the stages whose files do not contain them, and ``attrs`` that of the
    release. ``taus`` are the values of the threshold set ``thresholds``.
    """
    withheld, kept_pair_ids = Withheld(options.withhold, salt), read_kept_pairs(filtered)
    field_names = ("name", "version", "date", "licence", "creator", "cite", "url", "withhold")
    about = {name: getattr(options, name) for name in field_names} | {"seed": seed, "thresholds": thresholds}
    shards_by_stage = group_by_folder(maps) | {"masks": list(masks)}
    counts = json.loads((Path(tables) / COUNTS).read_text(encoding="utf-8"))
    segment_counts: Counter = Counter()
    for part in segmentations:
        segment_counts.update(json.loads(Path(part, COUNTS).read_text(encoding="utf-8")))
    package_facts = {
        "counts": counts,
        "dicom": dict(sorted(segment_counts.items())),
        "test": "all pairs, not reviewed."
        if kept_pair_ids is None
        else "only the pairs of a reviewed file (release.test).",
        "source": TERMS[source],
        "weights": list_weights(engines, weights, "published"),
        "excluded": [
            row | {"meaning": REASONS[row["reason"]]}
            for path in excluded
            for row in read_table(path).group_by("stage", "reason").len("images").sort("reason").to_dicts()
        ],
        "dropped": read_table(dropped).group_by("reason").agg(pl.len().alias("pairs")).sort("reason").to_dicts(),
        "digests": {stage: [code] for stage, code in codes.items()} | _code_digests(shards_by_stage, reports),
        "taus": taus,
        "settings": settings,
        "engines": engines,
        "environments": environments,
        "code": attrs["code_digest"],
    }
    columns = withheld.published_columns()
    with atomic_folder(package) as folder:
        for file in _list_files(Path(tables)):
            if file != COUNTS:
                link_file(Path(tables) / file, folder / file)
        for part in segmentations if IDS not in options.withhold else []:
            link_folder(part, folder / DICOM)
            (folder / DICOM / COUNTS).unlink(missing_ok=True)
        for layout_folder in layout:
            _write_layout(Path(layout_folder), folder / AUTHORS, lines, withheld, kept_pair_ids)
        files = _list_files(folder)
        write_text(folder / "README.md", card_text(about, counts, columns, files))
        write_text(folder / "DATASHEET.md", datasheet_text(about, package_facts))
        description = (
            "Instructions, answers and lesion masks of chest X-rays, made from reports without human labels; "
            f"thresholds {thresholds}."
        )
        digests = {file: file_sha256(folder / file) for file in described_files(files)}
        _write_json(folder / "croissant.json", build_croissant(about, columns, digests, description))
        folders = [name for name in FOLDERS if any(file.startswith(name) for file in files)]
        _write_json(folder / CRATE_NAME, build_crate(about, package_facts, description, folders))
        write_sums(folder, digests)


def write_sums(folder: Path, digests: Mapping[str, str]) -> None:
    """Write the checksums of all files of a package. ``digests`` is {file: SHA-256} of files with known checksums."""
    sums = "".join(f"{digests.get(file) or file_sha256(folder / file)}  {file}\n" for file in _list_files(folder))
    write_text(folder / SUMS, sums)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _code_digests(shards: dict[str, list[str]], reports: Sequence[str]) -> dict[str, list[str]]:
    """Return {stage: digests of the code that made its shards}. There are several if the code changed during a run."""
    digests: dict[str, set[str]] = {stage: set() for stage in shards}
    for stage, path in ((stage, path) for stage, paths in shards.items() for path in paths):
        with Shard(path, key="mask_id" if stage == "masks" else "image_id") as shard:
            digests[stage].add(str(shard.attrs["code_digest"]))
    if codes := {line["digests"]["code"] for path in reports if (line := next(read_lines(path), None))}:
        digests["reports"] = codes
    return {stage: sorted(values) for stage, values in digests.items()}


def _list_files(folder: Path) -> list[str]:
    paths = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return sorted(path.relative_to(folder).as_posix() for path in paths)


def write_text(path: Path, text: str) -> None:
    """Write a text in UTF-8, with the same line endings on every system."""
    path.write_text(text, encoding="utf-8", newline="\n")


def _write_json(path: Path, value: dict) -> None:
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def _write_layout(
    source: Path, target: Path, lines: Sequence[str], withheld: Withheld, kept_pair_ids: set[str] | None
) -> None:
    """Write the authors' layout into ``target``, without withheld data and without pairs that are not kept.
    Masks are hard links to the masks in ``source``. The numbers in their names stay, so some numbers may be missing."""

    def published_studies(path: str) -> Iterator[tuple[str, dict]]:
        for study_id, study_lines in read_groups(path, "study_id", withheld.publish_id if withheld.ids else None):
            if not (published_lines := keep_lines(study_lines, kept_pair_ids)):
                continue
            key, (entry, _) = make_study_key(study_id), make_study_entry(study_lines)
            shown_key = withheld.publish_id("study_id", study_id) if withheld.ids else key
            pair_keys = {key + line["pair_id"].removeprefix(study_id) for line in published_lines}
            pairs = entry["instruction_answer_pairs"]
            for polarity, group in pairs.items():
                pairs[polarity] = [pair for pair in group if pair["pair_id"] in pair_keys]
            for pair in (pair for group in pairs.values() for pair in group):
                pair["pair_id"] = shown_key + pair["pair_id"].removeprefix(key)
                if name := pair["seg_mask_path"]:  # <study>/<study>_<target>_<k>.png
                    shown_name = f"{shown_key}/{shown_key}{name.split('/', 1)[1].removeprefix(key)}"
                    if not (target / MASK_FOLDER / shown_name).exists():
                        link_file(source / MASK_FOLDER / name, target / MASK_FOLDER / shown_name)
                    pair["seg_mask_path"] = shown_name
            if withheld.report_text:
                entry["section_content"] = ""
            if withheld.ids:
                subject = withheld.publish_id("subject_id", entry["subject_id"])
                image = withheld.publish_id("image_id", entry["dicom_id"])
                path_of_image = f"{subject[:3]}/{subject}/{shown_key}/{image}.jpg"
                entry |= {"subject_id": subject, "dicom_id": image, "image_path": path_of_image}
            yield shown_key, entry

    target.mkdir(parents=True, exist_ok=True)
    splits = {LAYOUT_SPLITS[Path(path).stem]: published_studies(path) for path in lines}
    write_studies(target / JSON_NAME, splits)
