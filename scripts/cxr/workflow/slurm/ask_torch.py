"""Report what torch sees on a node, for `make slurm-check` (profiles/slurm/check.smk); it imports only torch."""

import json
import platform
import re
import sys
from pathlib import Path

DRIVER = Path("/proc/driver/nvidia/version")


def describe_torch(num_gpus: int) -> dict:
    """Return node, torch, cuda, driver, seen (GPUs), name (of the first), and fault (why torch fails, or "")."""
    import torch

    driver = re.search(r"\b\d{3,}\.[\d.]+", DRIVER.read_text(errors="replace")) if DRIVER.is_file() else None
    report = {"node": platform.node(), "torch": torch.__version__, "cuda": torch.version.cuda or ""}
    report |= {"driver": driver.group() if driver else "", "seen": 0, "name": "", "fault": ""}
    try:
        torch.cuda.init()
        report |= {"seen": torch.cuda.device_count(), "name": torch.cuda.get_device_name(0)}
        for number in range(min(num_gpus, report["seen"])):
            picture = torch.ones(1, 1, 8, 8, device=torch.device("cuda", number))
            summed = torch.nn.functional.conv2d(picture, torch.ones_like(picture))  # CUDA's kernels, and cuDNN
            if float(summed) != 64:
                report["fault"] = f"GPU {number} adds 64 ones to {float(summed)}"
    except Exception as error:
        report["fault"] = next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
    if not report["fault"] and report["seen"] < num_gpus:
        report["fault"] = f"it sees {report['seen']} of {num_gpus} GPUs"
    return report


if "snakemake" in globals():
    sys.stdout = sys.stderr = open(snakemake.log[0], "w", encoding="utf-8")  # noqa: SIM115
    Path(snakemake.output[0]).write_text(json.dumps(describe_torch(snakemake.params.gpus)), encoding="utf-8")
