"""Classifying an error by its cause: a bad input, a lack of memory, or a broken device, machine or program.

A bad input excludes one image. Any other cause ends the job, so that the job is retried, on another node if possible.
"""

import logging
import platform
import re
import traceback
from pathlib import PurePath

from cxr.base.errors import FULL, MACHINE_ERRORS, UserError, describe, out_of_memory

log = logging.getLogger("cxr")
DEVICE_ERRORS = {
    "AcceleratorError", "CudaError", "DeferredCudaCallError", "DistError", "DistBackendError", "DistNetworkError",
    "DistStoreError", "DeviceReset", "EPFail",
}  # fmt: skip
"""Names of the error classes that torch and onnxruntime raise only if a device, or a link between devices, fails. They
are matched by name, because this package imports neither library."""
DEVICE_WORDS = re.compile(
    r"cuda error|cuda failure|cuda driver|cuda kernel errors|cuda initialization|no cuda gpus|not compiled with cuda|"
    r"cudnn|cublas|cusolver|cusparse|cufft|nvrtc|nccl|nvml|no kernel image|device-side assert|illegal memory access|"
    r"uncorrectable ecc|nvidia driver|gpu is lost|fallen off the bus|busy or unavailable|invalid device ordinal|"
    r"hip error|hiperror|miopen|executionprovider|unable to find an engine to execute|could not run '",
    re.IGNORECASE,
)
"""Pattern of messages of torch, onnxruntime and their libraries about a failing device or its software."""
OURS = PurePath(__file__).parents[1].name  # this package; describe_failure gives its last function in the traceback
CALLER = f"{OURS}.base.workers"  # the module that calls the engines; describe_failure skips its functions


class Broken(RuntimeError):
    """Error that ends a job because the device, the machine or the program is broken, and no input is at fault."""


def broken_part(error: BaseException) -> str:
    """Return the broken part ("the device", "the program" …), or "" if an input may have caused the error."""
    if isinstance(error, Broken):
        return "the job"
    names = {kind.__name__ for kind in type(error).__mro__}
    may_be_device = isinstance(error, RuntimeError | AssertionError) or type(error).__module__.startswith("onnxruntime")
    if names & DEVICE_ERRORS or (may_be_device and DEVICE_WORDS.search(str(error))):
        return "the device"
    if isinstance(error, ImportError | NameError | SyntaxError):
        return "the program"
    if getattr(error, "errno", None) in MACHINE_ERRORS | FULL or "can't start new thread" in str(error):
        return "the machine"
    return ""


def is_not_from_input(error: BaseException) -> bool:
    """Return whether an error is not due to an input: a UserError, a StoreError, a lack of memory, or a broken part."""
    is_user_error = type(error).__name__ == "StoreError" or isinstance(error, UserError)
    return is_user_error or out_of_memory(error) or bool(broken_part(error))


def job_failure(task: str, error: BaseException) -> Broken:
    """Return the error that ends a job because of a :func:`broken_part`. ``task``: the job's work, for the message."""
    return Broken(
        f"{task}: {broken_part(error)} is broken, not an image ({describe(error)}), on {platform.node()}: "
        "the job fails, and Snakemake retries it if the profile allows retries"
    )


def describe_failure(error: BaseException) -> str:
    """Return an error's class and the function that failed, without the message, which may hold patient data."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    functions = [(frame.f_globals.get("__name__", ""), frame.f_code.co_name) for frame in frames]
    own_functions = [
        (module, name)
        for module, name in functions
        if module.split(".")[0] == OURS and module != CALLER and not name.startswith("<")
    ]
    module, function = own_functions[-1] if own_functions else ("", "")
    where = f" in {module}.{function}" if module else ""
    return f"the engine stopped with {type(error).__name__}{where}; the first such error is in the job's log"


class Failures:
    """Counter of a job's failed images. It ends the job when a limit in the settings section ``compute`` is exceeded.

    The job ends if ``compute.failures_in_row`` consecutive images fail with the same error, or if more than the
    fraction ``compute.failed_share`` of all images fail. If ``failures_in_row`` is not set, there is no limit.
    """

    def __init__(self, task: str, total: int, compute: dict | None):
        self.what, self.total = task, total
        self.most, self.share = (compute or {}).get("failures_in_row"), (compute or {}).get("failed_share", 1.0)
        self.failed = self.row = 0
        self._first: tuple[str, BaseException | None] = ("", None)
        self._shown: set[str] = set()

    def passed(self) -> None:
        """Record an image that the engine processed."""
        self.row = 0

    def note(self, kind: str, error: BaseException | None = None) -> None:
        """Record an image that failed with ``error``. ``kind``: its :func:`failure_kind`. Raises Broken at a limit."""
        if kind not in self._shown:
            self._shown.add(kind)
            # messages at level DEBUG, here the traceback, go only to the log file: cxr.base.jobs.start_logging
            log.debug("%s: first image with this failure: %s", self.what, kind, exc_info=error)
        if kind != self._first[0] or not self.row:
            self._first, self.row = (kind, error), 0
        self.row += 1
        self.failed += 1
        if self.most is None:
            return
        if self.row >= self.most:
            self._end(f"the same error on {self.row} images in a row", "compute.failures_in_row")
        if self.failed >= max(2, min(self.most, self.total)) and self.failed > self.share * self.total:
            self._end(f"{self.failed} of {self.total} images failed", "compute.failed_share")

    def _end(self, symptom: str, key: str) -> None:
        kind, error = self._first
        raise Broken(
            f"{self.what}: {symptom} ({kind}), on {platform.node()}: probably something other than the images is "
            "broken, so the job fails, and Snakemake retries it if the profile allows retries. If the images are at "
            f"fault, raise {key}"
        ) from error


def failure_kind(error: BaseException) -> str:
    """Return an error's class and message with each number replaced by "#", so that similar errors compare equal."""
    return re.sub(r"\d+", "#", describe(error))
