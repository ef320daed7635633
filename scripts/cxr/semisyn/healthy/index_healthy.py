"""Write the table of all healthy images, and the funnel of the criteria."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import polars as pl
import yaml

from cxr.base.columns import schema
from cxr.base.engines import engine_module
from cxr.base.jobs import log
from cxr.base.paths import RESOURCES
from cxr.base.tables import read_table, write_table
from cxr.base.vocabulary import FINDINGS
from cxr.semisyn.healthy.columns import FUNNEL, HEALTHY
from cxr.semisyn.healthy.criteria import CRITERIA, criterion_of
from cxr.semisyn.healthy.settings import HealthySettings

RESOURCE_FILES = ("semisyn/paper.yaml",)


def run(
    *, shards: Sequence[str], excluded: str | Path, images: str | Path, funnel: str | Path, options: HealthySettings,
    references: Iterable[str],
) -> None:  # fmt: skip
    """Concatenate the shards' tables into ``images``, sorted by image_id, and write ``funnel`` (:data:`FUNNEL`).

    ``excluded``: the ledger of all shards; ``references``: names of those whose patients are excluded.
    """
    healthy_images = pl.concat([read_table(path) for path in ([shards] if isinstance(shards, str) else shards)])
    write_table(images, healthy_images.sort("image_id"), HEALTHY)
    stopped = read_table(excluded).select("stage", "reason").iter_rows()
    paper = yaml.safe_load((RESOURCES / RESOURCE_FILES[0]).read_text(encoding="utf-8"))["healthy_images"]
    num_unknown = int((healthy_images["position"] == "").sum())
    table = funnel_table(stopped, len(healthy_images), describe_criteria(options, references, num_unknown), paper)
    write_table(funnel, table, FUNNEL)
    log.info("healthy: %d of %d images", len(healthy_images), table["in"][0])
    if not len(healthy_images):
        log.warning("healthy: no image is left, so nothing can be placed: %s shows where they went", Path(funnel).name)


def describe_criteria(options: HealthySettings, references: Iterable[str], untold: int) -> dict[str, str]:
    """Return {criterion: its description}. ``untold``: number of healthy images of unknown position."""
    unseen = _unseen_findings(options)
    devices = {"not_positive": "no device", "negative": "devices denied", "any": "devices are not asked for"}
    reference_names = ", ".join(references)
    return {
        "frame": "decoded, and chosen of its study",
        "view": f"view {' or '.join(options.views)}",
        "position": f"patient {' or '.join(options.positions)} (of the pool {untold} do not tell)",
        "reference": f"in no reference ({reference_names or 'none is set, so nobody is excluded'})",
        "split": f"split {' or '.join(options.splits)}",
        "labels": f"labelled by {options.labels}",
        "finding": "no finding",
        "device": devices[options.devices],
        "classifier": f"negative by {options.classifier}" + (f" (does not see {', '.join(unseen)})" if unseen else ""),
        "organs": "organs found",
        "heart": "a heart",
        "lungs": "two lungs apart",
    }


def _unseen_findings(options: HealthySettings) -> list[str]:
    """Return the findings that the classifier cannot detect; those of a score table are known from its columns only."""
    module = engine_module("cxr.semisyn.healthy", options.classifier)
    return [finding for finding in FINDINGS if finding in getattr(module, "UNSEEN", ())]


def funnel_table(
    stopped: Iterable[tuple[str, str]], healthy: int, sentences: Mapping[str, str], paper: int
) -> pl.DataFrame:
    """Return the funnel: a row per criterion in their order, then the pool with the paper's size.

    ``stopped``: (stage, reason) of every excluded image; ``healthy``: number of images in the pool.
    """
    reasons: dict[str, Counter[str]] = {name: Counter() for name in CRITERIA}
    for stage, reason in stopped:
        reasons[criterion_of(stage, reason)][reason] += 1
    num_remaining = healthy + sum(counts.total() for counts in reasons.values())
    rows = []
    for name, counts in reasons.items():
        reason_counts = ", ".join(f"{reason} {number}" for reason, number in sorted(counts.items()))
        rows.append((sentences[name], num_remaining, num_remaining - counts.total(), reason_counts, None))
        num_remaining -= counts.total()
    rows.append(("healthy", healthy, healthy, "", paper))
    return pl.DataFrame(rows, schema=schema(FUNNEL), orient="row")
