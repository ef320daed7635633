"""Select and check the device that a net runs on. A job that requested a GPU fails if none is visible."""

import logging
import os
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from cxr.base.errors import UserError, describe, out_of_memory
from cxr.base.faults import Broken

log = logging.getLogger("cxr")

BATCH_SYSTEMS = ("SLURM_JOB_ID", "LSB_JOBID", "PBS_JOBID", "KUBERNETES_SERVICE_HOST")
"""Environment variables that show that a batch system runs the job."""
DRIVER_VERSION_PATH = Path("/proc/driver/nvidia/version")  # file in which the loaded NVIDIA driver states its version


def select_device(device_setting: str, num_requested: int | None = None) -> torch.device:
    """Return the device that ``compute.device`` selects. Raises UserError if fewer than ``num_requested`` GPUs are
    visible, and Broken if the GPU is faulty."""
    if not count_gpus(device_setting, num_requested):
        return torch.device("cpu")
    if num_requested is not None:
        _check_gpu()
    return torch.device("cuda")


def count_gpus(device_setting: str, num_requested: int | None = None) -> int:
    """Return the number of GPUs that a job uses with the value ``device_setting`` of ``compute.device``; 0 is the CPU.

    ``num_requested``: number that the job requested, or None outside a job. Then ``auto`` uses one GPU if there is one.
    Raises UserError if fewer GPUs are visible. If there is neither GPU, driver nor batch system, ``auto`` only warns.
    """
    if device_setting == "cpu" or (device_setting == "auto" and num_requested == 0):
        return 0
    num_visible = torch.cuda.device_count() if torch.cuda.is_available() else 0
    num_needed = max(num_requested or 0, device_setting == "cuda")
    if num_visible >= num_needed:
        return min(num_visible, num_requested or 1)
    software = _describe_software()
    has_batch_system = any(os.environ.get(name) for name in BATCH_SYSTEMS)
    if num_visible or has_batch_system or num_needed > 1 or device_setting == "cuda" or _read_driver_version():
        opening_clause = "compute.device is 'cuda', but this job"
        if num_requested:
            opening_clause = f"this job requested {num_requested} GPU{'s' * (num_requested > 1)}, but it"
        raise UserError(
            f"{opening_clause} sees {num_visible or 'no GPU'} on {platform.node()} ({software}): repair the node or "
            f"the environment; or set compute.gpus to {f'{num_visible} or ' if num_visible else ''}0, or "
            "compute.device to cpu: the CPU gives the same results, slowly"
        )
    log.warning(
        "no GPU found (%s): running on the CPU, which is slow; set compute.gpus to 0 to silence this warning", software
    )
    return 0


def _describe_software() -> str:
    built = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "without CUDA"
    driver = _read_driver_version()
    try:
        torch.cuda.init()
        torch_error = ""
    except (RuntimeError, AssertionError) as error:
        torch_error = f", torch says: {str(error).strip().splitlines()[0].rstrip('.')}"
    loaded = f"the driver is {driver}" if driver else "no NVIDIA driver is loaded"
    return f"torch {torch.__version__} was built {built}, {loaded}{torch_error}"


def _read_driver_version() -> str:
    """Return the version of the loaded NVIDIA driver, or "" if none is loaded."""
    try:
        text = DRIVER_VERSION_PATH.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    match = re.search(r"\b\d{3,}\.[\d.]+", text)
    return match.group() if match else "unknown"


def _check_gpu() -> None:
    """Raise Broken if torch cannot add two numbers on this process's GPU, because it is unsupported or faulty."""
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    try:
        is_correct = float((torch.ones(2, device=device) + 1).sum()) == 4
    except Exception as error:
        if out_of_memory(error):
            raise
        raise Broken(f"the GPU of {platform.node()} fails ({describe(error)}; {_describe_software()})") from error
    if not is_correct:
        raise Broken(f"the GPU of {platform.node()} computes wrong sums ({_describe_software()})")
    log.info("the net runs on %s", torch.cuda.get_device_name(device))


@contextmanager
def inference() -> Iterator[None]:
    """Run nets without gradients, in full float32 and with deterministic algorithms."""
    exact = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
    with torch.inference_mode(), exact:
        yield
