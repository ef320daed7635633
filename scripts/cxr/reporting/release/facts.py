"""Collect the facts about a package from the results: counts, exclusions, licences, code digests."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from cxr.base.exclusions import REASONS
from cxr.base.hdf5 import Shard
from cxr.base.tables import read_lines, read_table
from cxr.nets.lite_weights import list_lite_weights
from cxr.radvlm.sources.settings import FORMATS

COHORT_TERMS = {
    "mimic": FORMATS["mimic"].terms,
    "openi": "Indiana University chest X-rays (Open-i, NLM): CC BY-NC-ND 4.0, not for commercial use; nothing derived "
    "from the reports' text may be passed on.",
    "embedded": "synthetic X-rays and reports, made by this project: MIT",
    "manifest": "images and reports of the maker of this package: under the terms of their source",
}
"""Terms of the images and reports, by ``cohort.source``."""
TERMS = {name: source.terms for name, source in FORMATS.items()} | COHORT_TERMS
"""{format of a RadVLM source, or ``cohort.source`` for the source ``own``: terms of its facts, texts and images}."""


def exclusion_rows(paths: Sequence[str]) -> list[dict]:
    """Return {stage, reason, meaning, images} of the ledgers, without details, in the order of the paths."""
    rows = []
    for path in paths:
        table = read_table(path).group_by("stage", "reason").len("images").sort("reason")
        rows += [row | {"meaning": REASONS[row["reason"]]} for row in table.iter_rows(named=True)]
    return rows


def dropped_rows(path: str) -> list[dict]:
    """Return {reason, pairs} of the dropped pairs."""
    return read_table(path).group_by("reason").agg(pl.len().alias("pairs")).sort("reason").to_dicts()


def weight_rows(engines: dict[str, str], manifests: Sequence[str], sha256_of) -> list[dict]:
    """Return {name, used_by, licence, source, sha256} of each file of weights that the engines read."""
    rows = []
    for lite_weights in list_lite_weights(engines):
        folder = lite_weights.file.parent.name
        rows.append({
            "name": f"{folder}/{lite_weights.file.name}", "used_by": ", ".join(lite_weights.used_by),
            "licence": lite_weights.licence, "source": f"resources/{folder}/{lite_weights.card.name}",
            "sha256": sha256_of(lite_weights.file),
        })  # fmt: skip
    for path in manifests:
        manifest = json.loads(Path(path).read_text(encoding="utf-8"))
        rows += [
            {"name": file["file"], "used_by": manifest["used_by"], "licence": manifest["licence"],
             "source": manifest["source"], "sha256": file["sha256"]}
            for file in manifest["published"]
        ]  # fmt: skip
    return rows


def code_digests(shards: dict[str, Sequence[str]], reports: Sequence[str]) -> dict[str, list[str]]:
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


def sum_counts(paths: Sequence[str]) -> dict[str, int]:
    """Return the sums over several ``counts.json``."""
    total: Counter = Counter()
    for path in paths:
        total.update(json.loads(Path(path).read_text(encoding="utf-8")))
    return dict(sorted(total.items()))
