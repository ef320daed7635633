"""Assemble a version of the dataset as one folder: all layouts, texts, and checksums of all files.

The folder reveals no time, machine or path: the date is a setting, files are sorted, and settings that name files or
folders are emptied. Parts are hard links, so a package needs no extra disk space.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import polars as pl

from cxr.base.atomic import atomic_folder, link_file, link_folder
from cxr.base.exclusions import REASONS
from cxr.base.hdf5 import Shard
from cxr.base.tables import read_lines, read_table
from cxr.instructions.mimic_ils import JSON_NAME, MASK_FOLDER, write_studies
from cxr.nets.lite_weights import list_lite_weights
from cxr.reporting.release.export_tables import COUNTS
from cxr.reporting.release.metadata import CRATE_NAME, FOLDERS, build_crate, build_croissant, described_files
from cxr.reporting.release.parquet import CONFIGS, published_columns
from cxr.reporting.release.settings import PackageSettings
from cxr.reporting.release.texts import TERMS, card_text, datasheet_text
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
        "dicom": _sum_counts([f"{folder}/{COUNTS}" for folder in segmentations]),
        "test": "all pairs, not reviewed."
        if kept_pair_ids is None
        else "only the pairs of a reviewed file (release.test).",
        "source": TERMS[source],
        "weights": _weight_rows(engines, weights),
        "excluded": _exclusion_rows(excluded),
        "dropped": read_table(dropped).group_by("reason").agg(pl.len().alias("pairs")).sort("reason").to_dicts(),
        "digests": {stage: [code] for stage, code in codes.items()} | _code_digests(shards_by_stage, reports),
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
            _copy_layout(Path(layout_folder), folder / AUTHORS, images, withheld, kept_pair_ids)
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
    """Write the checksums of all files of a package; ``digests``: {file: its SHA-256} of those that are known."""
    sums = "".join(f"{digests.get(file) or file_sha256(folder / file)}  {file}\n" for file in _list_files(folder))
    write_text(folder / SUMS, sums)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _exclusion_rows(paths: Sequence[str]) -> list[dict]:
    """Return {stage, reason, meaning, images} of the ledgers, without details, in the order of the paths."""
    rows = []
    for path in paths:
        table = read_table(path).group_by("stage", "reason").len("images").sort("reason")
        rows += [row | {"meaning": REASONS[row["reason"]]} for row in table.iter_rows(named=True)]
    return rows


def _weight_rows(engines: dict[str, str], manifests: Sequence[str]) -> list[dict]:
    """Return {name, used_by, licence, source, sha256} of each file of weights that the engines read."""
    rows = []
    for lite_weights in list_lite_weights(engines):
        folder = lite_weights.file.parent.name
        rows.append({
            "name": f"{folder}/{lite_weights.file.name}", "used_by": ", ".join(lite_weights.used_by),
            "licence": lite_weights.licence, "source": f"resources/{folder}/{lite_weights.card.name}",
            "sha256": file_sha256(lite_weights.file),
        })  # fmt: skip
    for path in manifests:
        manifest = json.loads(Path(path).read_text(encoding="utf-8"))
        rows += [
            {"name": file["file"], "used_by": manifest["used_by"], "licence": manifest["licence"],
             "source": manifest["source"], "sha256": file["sha256"]}
            for file in manifest["published"]
        ]  # fmt: skip
    return rows


def _code_digests(shards: dict[str, Sequence[str]], reports: Sequence[str]) -> dict[str, list[str]]:
    """Return {stage: digests of the code that made its shards}; several if the code changed in between."""
    digests_by_stage: dict[str, set[str]] = {}
    for stage, paths in shards.items():
        for path in paths:
            with Shard(path, key="mask_id" if stage == "masks" else "image_id") as shard:
                digests_by_stage.setdefault(stage, set()).add(str(shard.attrs["code_digest"]))
    for path in reports:
        line = next(read_lines(path), None)
        if line:
            digests_by_stage.setdefault("reports", set()).add(line["digests"]["code"])
    return {stage: sorted(values) for stage, values in digests_by_stage.items()}


def _sum_counts(paths: Sequence[str]) -> dict[str, int]:
    """Return the sums over several ``counts.json``."""
    total: Counter = Counter()
    for path in paths:
        total.update(json.loads(Path(path).read_text(encoding="utf-8")))
    return dict(sorted(total.items()))


def _list_files(folder: Path) -> list[str]:
    paths = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return sorted(path.relative_to(folder).as_posix() for path in paths)


def write_text(path: Path, text: str) -> None:
    """Write a text of a package, with the same line ends on every system."""
    path.write_text(text, encoding="utf-8", newline="\n")


def _write_json(path: Path, value: dict) -> None:
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def _copy_layout(source: Path, target: Path, images: str, withheld: Withheld, kept_pair_ids: set[str] | None) -> None:
    """Write the authors' layout of the folder ``source`` into ``target``, without withheld data.

    ``images``: the table with each image's study; ``kept_pair_ids``: ids of the kept pairs of the test split. The JSON
    has one study per line, so only one study is in memory at a time.
    """
    studies = dict(read_table(images).select("image_id", "study_id").iter_rows())
    target.mkdir(parents=True, exist_ok=True)
    with open(source / JSON_NAME, "rb") as json_file:

        def published_studies(split: str, places: list[int]) -> Iterator[tuple[str, dict]]:
            for shown_key, place in _published_order(json_file, places, studies, withheld):
                key, entry = _read_entry(json_file, place)
                names = _filter_pairs(
                    entry, key, studies[entry["dicom_id"]], kept_pair_ids if split == "test" else None
                )
                if names is None:
                    continue
                for name in sorted(names):
                    link_file(source / MASK_FOLDER / name, target / MASK_FOLDER / _rename_mask(name, key, shown_key))
                yield shown_key, _published_entry(entry, key, shown_key, withheld)

        write_studies(
            target / JSON_NAME,
            {split: published_studies(split, places) for split, places in _study_offsets(json_file).items()},
        )


def _study_offsets(json_file: BinaryIO) -> dict[str, list[int]]:
    """Return {split: file offsets of the studies' lines}."""
    offsets_by_split: dict[str, list[int]] = {}
    begin, split = 0, ""
    for line in json_file:
        text = line.strip()
        if text.endswith(b": {"):
            split = json.loads(text.removesuffix(b": {"))
            offsets_by_split[split] = []
        elif text.startswith(b'"'):
            offsets_by_split[split].append(begin)
        begin += len(line)
    return offsets_by_split


def _read_entry(json_file: BinaryIO, place: int) -> tuple[str, dict]:
    json_file.seek(place)
    ((key, entry),) = json.loads(b"{" + json_file.readline().strip().removesuffix(b",") + b"}").items()
    return key, entry


def _published_order(
    json_file: BinaryIO, places: list[int], studies: dict[str, str], withheld: Withheld
) -> Iterator[tuple[str, int]]:
    """Yield (published name of the study, its offset); sorted by these names if identifiers are withheld."""
    named_offsets = []
    for place in places:
        key, entry = _read_entry(json_file, place)
        name = withheld.publish_id("study_id", studies[entry["dicom_id"]]) if withheld.ids else key
        named_offsets.append((name, place))
    yield from sorted(named_offsets) if withheld.ids else named_offsets


def _filter_pairs(entry: dict, key: str, study_id: str, kept_pair_ids: set[str] | None) -> set[str] | None:
    """Remove the pairs that are not kept; return the mask files of the remaining pairs, None if no pair remains."""
    pairs = entry["instruction_answer_pairs"]
    if kept_pair_ids is not None:
        for name, group in pairs.items():
            pairs[name] = [pair for pair in group if study_id + pair["pair_id"].removeprefix(key) in kept_pair_ids]
    remaining_pairs = [pair for group in pairs.values() for pair in group]
    return {pair["seg_mask_path"] for pair in remaining_pairs if pair["seg_mask_path"]} if remaining_pairs else None


def _rename_mask(name: str, key: str, shown_key: str) -> str:
    """Rename the study in the name of a mask, ``<study>/<study>_<target>_<k>.png``."""
    return f"{shown_key}/{shown_key}{name.split('/', 1)[1].removeprefix(key)}"


def _published_entry(entry: dict, key: str, shown_key: str, withheld: Withheld) -> dict:
    if withheld.report_text:
        entry["section_content"] = ""
    if withheld.ids:
        subject = withheld.publish_id("subject_id", entry["subject_id"])
        image = withheld.publish_id("image_id", entry["dicom_id"])
        path = f"{subject[:3]}/{subject}/{shown_key}/{image}.jpg"
        entry |= {"subject_id": subject, "dicom_id": image, "image_path": path}
        for pair in (pair for group in entry["instruction_answer_pairs"].values() for pair in group):
            pair["pair_id"] = shown_key + pair["pair_id"].removeprefix(key)
            if pair["seg_mask_path"]:
                pair["seg_mask_path"] = _rename_mask(pair["seg_mask_path"], key, shown_key)
    return entry
