"""Collect the versions behind the results: digests of code and settings, weights, and pinned packages."""

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path

from cxr.base.hdf5 import Shard
from cxr.nets.lite_weights import list_lite_weights


def short_digest(text: str) -> str:
    """Return the first 16 digits of a text's sha256."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def shard_versions(stage: str, paths: Iterable[str], key: str = "image_id") -> list[dict]:
    """Return the distinct (stage, engine, code digest, settings digest) of a stage's shards.

    Several rows mean that the shards were made with different code or settings.
    """
    row_by_version: dict[tuple, dict] = {}
    for path in paths:
        with Shard(path, key=key) as shard:
            code, settings = shard.attrs["code_digest"], shard.attrs["settings"]
        engine = json.loads(settings).get("engine", "")
        row = {"stage": stage, "engine": engine, "code": code, "settings": short_digest(settings)}
        row["thresholds"] = json.loads(settings).get("thresholds")
        row_by_version.setdefault((code, settings), row)
    return list(row_by_version.values())


def report_versions(stage: str, lines: Iterable[dict]) -> list[dict]:
    """Return the same for the lines of the reports, which contain the digests of their code and lexicon."""
    rows = {
        (line["engine"], *sorted((k, v) for k, v in line["digests"].items() if k != "text")): line for line in lines
    }
    return [
        {
            "stage": stage,
            "engine": line["engine"],
            "code": line["digests"].get("code", ""),
            "settings": ", ".join(f"{k} {v}" for k, v in sorted(line["digests"].items()) if k not in ("text", "code")),
            "thresholds": None,
        }
        for _, line in sorted(rows.items(), key=lambda item: str(item[0]))
    ]


def lite_weight_rows(engines: dict[str, str]) -> list[dict]:
    """Return file, bytes and sha256 of the repository's own weights that the engines of a run read."""
    return [
        {
            "artefact": f"{weights.file.parent.name} {weights.file.stem}",
            "licence": weights.licence,
            "file": weights.file.name,
            "bytes": weights.file.stat().st_size,
            "sha256": hashlib.sha256(weights.file.read_bytes()).hexdigest(),
        }
        for weights in list_lite_weights(engines)
    ]


def published_weight_rows(manifests: Iterable[str | Path]) -> list[dict]:
    """Return the same for published weights, from their manifests in ``results/weights``."""
    rows = []
    for path in manifests:
        manifest = json.loads(Path(path).read_text(encoding="utf-8"))
        for used in manifest["used"]:
            rows.append({"artefact": manifest["artefact"], "licence": manifest["licence"]} | used)
    return rows


def read_pins(folder: Path) -> dict[str, list[str]]:
    """Return {package==version: environments} of the environment files of a folder."""
    environments_by_package: dict[str, list[str]] = {}
    for path in sorted(folder.glob("*.yaml")):
        for name, version in re.findall(r"^\s+- ([\w.-]+)==([\w.+-]+)", path.read_text(encoding="utf-8"), flags=re.M):
            environments_by_package.setdefault(f"{name} {version}", []).append(path.stem)
    return dict(sorted(environments_by_package.items(), key=lambda item: item[0].lower()))
