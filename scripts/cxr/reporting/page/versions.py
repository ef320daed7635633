"""Collect the versions that produced the results: digests of code and settings, weights, and pinned packages."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from cxr.base.columns import Column, schema
from cxr.base.hdf5 import Shard
from cxr.base.paths import SCRIPTS, group_by_folder
from cxr.base.tables import read_lines
from cxr.nets.lite_weights import list_weights

VERSIONS = {
    "kind": Column(pl.String, "code, settings, weights or package."),
    "name": Column(pl.String, "Stage, weights file or package."),
    "version": Column(pl.String, "Digest, or version of a package."),
    "detail": Column(pl.String, "Engine of a stage, licence of weights, or environments with the package."),
}


def collect_versions(
    maps: Mapping[str, Sequence[str]],
    masks: Sequence[str],
    reports: Sequence[str],
    manifests: Sequence[str],
    engines: dict[str, str],
) -> dict:
    """Return the versions of ``stages``, ``weights`` and packages (``pins``), and the ``thresholds`` of each set.
    ``maps`` is {stage: shards}. ``masks`` are shards of all sets. ``manifests`` describe the weights of ``engines``."""
    rows: dict[tuple, dict] = {}
    # the first line is enough: the same code made all lines of a shard of reports
    for line in (line for path in reports if (line := next(read_lines(path), None))):
        digests = sorted((name, digest) for name, digest in line["digests"].items() if name != "text")
        settings = ", ".join(f"{name} {digest}" for name, digest in digests if name != "code")
        rows[line["engine"], *digests] = {
            "stage": "reports", "engine": line["engine"], "code": line["digests"].get("code", ""),
            "settings": settings, "thresholds": None,
        }  # fmt: skip
    stages = [rows[key] for key in sorted(rows, key=str)]
    for stage, paths in maps.items():
        stages += shard_versions(stage, paths)
    thresholds: dict[str, dict] = {}
    for name, paths in sorted(group_by_folder(masks).items()):
        rows = shard_versions(f"masks {name}", paths, key="mask_id")
        stages += rows
        thresholds[name] = rows[0]["thresholds"]
    weights = list_weights(engines, manifests, "used")
    return {"stages": stages, "weights": weights, "pins": _read_pins(), "thresholds": thresholds}


def tabulate_versions(version_info: dict) -> pl.DataFrame:
    """Return a row of :data:`VERSIONS` for each digest, weight and pinned package."""
    rows = [
        (kind, row["stage"], row[kind], row["engine"])
        for row in version_info["stages"]
        for kind in ("code", "settings")
    ]
    rows += [("weights", f"{w['artefact']}: {w['file']}", w["sha256"], w["licence"]) for w in version_info["weights"]]
    rows += [("package", *pin.split(), ", ".join(envs)) for pin, envs in version_info["pins"].items()]
    return pl.DataFrame(rows, schema=schema(VERSIONS), orient="row")


def short_digest(text: str) -> str:
    """Return the first 16 hexadecimal digits of a text's SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def shard_versions(stage: str, paths: Iterable[str], key: str = "image_id") -> list[dict]:
    """Return one row per version of code and settings that made a stage's shards. ``key`` is the id field of shards.
    A row has the stage, its engine, the digests of code and settings, and the thresholds."""
    row_by_version: dict[tuple, dict] = {}
    for path in paths:
        with Shard(path, key=key) as shard:
            code, settings_text = shard.attrs["code_digest"], shard.attrs["settings"]
        settings = json.loads(settings_text)
        row = {"stage": stage, "engine": settings.get("engine", ""), "code": code}
        row |= {"settings": short_digest(settings_text), "thresholds": settings.get("thresholds")}
        row_by_version.setdefault((code, settings_text), row)
    return list(row_by_version.values())


def _read_pins() -> dict[str, list[str]]:
    """Return {package and version: environments that pin it} from the files in envs/."""
    environments_by_package: dict[str, list[str]] = {}
    for path in sorted((SCRIPTS.parent / "envs").glob("*.yaml")):
        for name, version in re.findall(r"^\s+- ([\w.-]+)==([\w.+-]+)", path.read_text(encoding="utf-8"), flags=re.M):
            environments_by_package.setdefault(f"{name} {version}", []).append(path.stem)
    return dict(sorted(environments_by_package.items(), key=lambda item: item[0].lower()))
