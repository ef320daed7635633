"""Settings of the stage semisyn_selection."""

from typing import Literal

from cxr.base.settings import OURS, PAPER, Section, key

METRICS = (
    "auroc", "ap1070", "c2st", "kid", "fid", "kid_xrv", "fid_xrv", "kernel_lite", "frechet_lite", "clip",
)  # fmt: skip


class SelectionSettings(Section):
    """Choice of a configuration for each finding by the scores of all."""

    samples: int = key(
        35, "Trial jobs of each finding, which every configuration edits.", unit="jobs", source=PAPER, ge=1, le=100_000
    )
    parts: int = key(
        1,
        "Parts of the trial jobs; each part is one cluster job per configuration, which loads its model once.",
        source=OURS,
        ge=1,
        le=64,
    )
    configs: list[str] = key(
        lambda: ["lite"], "Configurations of semisyn.editing.configs to compare, besides the points of the grid."
    )
    search: Literal["sequential", "figures", "product"] = key(
        "sequential",
        "Points of semisyn.editing.grid. sequential: one axis varied at a time; figures: every pipeline with "
        "every soft mask and extent; product: all combinations.",
    )
    metrics: list[Literal[METRICS]] = key(
        lambda: ["auroc", "ap1070", "c2st", "kid", "kid_xrv"],
        "Metrics whose mean decides, if available; frechet_lite and kernel_lite are circular for images of the engine "
        "lite.",
        min_length=1,
    )
