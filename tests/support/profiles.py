"""Read the profiles, and the number of jobs per group."""

import yaml

from conftest import ROOT
from cxr.base.vocabulary import FINDINGS


def profile(name: str) -> dict:
    return yaml.safe_load((ROOT / f"profiles/{name}/config.yaml").read_text(encoding="utf-8"))


def group_sizes() -> dict[str, int]:
    return profile("slurm")["group-components"]


PAPER_ON_A_GPU = {
    "compute": {"gpus": 1},
    "reports": {"engine": "vllm"}, "organs": {"engine": "hybridgnet"}, "anomaly": {"engine": "radedit"},
    "anatomy": {"engine": "cxas"}, "boxes": {"engine": "scaled_yolov4"}, "paraphrase": {"engine": "vllm"},
    "training": {"engine": "rosalia"},
}  # fmt: skip
"""Settings with the paper's engines, on a GPU."""
EDITS_BY_RADEDIT = {"semisyn": {"editing": {"choice": dict.fromkeys(FINDINGS, "radedit")}}}
