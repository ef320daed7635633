"""Errors that a job reports in one sentence: user mistakes, damaged files, full disks, low memory, no permission."""

import errno
import os
import re
from pathlib import Path

FULL = {errno.ENOSPC, errno.EDQUOT}
"""Error numbers of a full file system or an exhausted quota."""
OUT_OF_MEMORY = re.compile(
    r"out of memory|_status_alloc_failed|can't allocate memory|cannot allocate memory|"
    r"failed to allocate memory|insufficient memory|bad_alloc",
    re.IGNORECASE,
)
"""Out-of-memory messages of torch, onnxruntime, OpenCV and C++ that have no error class of their own."""

LEAST_ROOM = 1 << 16
"""Free bytes below which a file system counts as full."""
FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
"""Error numbers of a missing permission or a read-only file system."""
MACHINE_ERRORS = {
    errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENODEV, errno.ENXIO,
    errno.ENOTCONN, errno.EREMOTEIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM,
}  # fmt: skip
"""Error numbers of a machine, its disks or its network; they say nothing about the requested file."""


class UserError(Exception):
    """A user's mistake. The message is one sentence that names the key, the value and the remedy."""


def existing_file(key: str, value: str | None) -> Path:
    """Return the file that a setting names. Raises UserError if it names none."""
    if not value:
        raise UserError(f"{key} is empty: give the file")
    if not Path(value).is_file():
        raise UserError(f"{key}: there is no file {value!r}: correct the path")
    return Path(value)


def existing_folder(key: str, value: str | None) -> Path:
    """Return the folder that a setting names. Raises UserError if it names none."""
    if not value:
        raise UserError(f"{key} is empty: give the folder")
    if not Path(value).is_dir():
        raise UserError(f"{key}: there is no folder {value!r}: correct the path")
    return Path(value)


def out_of_memory(error: BaseException) -> bool:
    """Tell whether an error means that the computer or the GPU is out of memory, whichever library raised it."""
    # torch's own class is matched by name: this package does not import torch
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return getattr(error, "errno", None) == errno.ENOMEM or (
        not isinstance(error, UserError) and bool(OUT_OF_MEMORY.search(str(error)))
    )


def shortage(error: BaseException) -> str:
    """Return the remedy for a lack of memory, disk space, permission or connection; "" for any other error."""
    if out_of_memory(error):
        return "out of memory: give the rule more (--set-resources RULE:mem_mb=…), or make compute.batch smaller"
    number, name = _number_of(error)
    if number in FULL or (not number and _is_full("results")):
        return "no space left on the device, or its quota is used up: free some and run again, finished files stay"
    if number in FORBIDDEN:
        what = f" {name!r}" if name else ""
        return f"no permission to read or write{what} ({os.strerror(number).lower()}): correct it and run again"
    if number in MACHINE_ERRORS:
        return f"the disk or network failed ({os.strerror(number).lower()}): check that it is available and run again"
    return ""


def _number_of(error: BaseException) -> tuple[int, str]:
    """Return the system's error number and file name from an error or its causes; 0 and "" if there are none."""
    seen: BaseException | None = error
    while seen is not None:
        # HDF5, polars and safetensors give the number only in their messages
        told = re.search(r"(?:errno = |os error )(\d+)", str(seen))
        number = getattr(seen, "errno", None) or (int(told.group(1)) if told else 0)
        if isinstance(number, int) and number in FULL | FORBIDDEN | MACHINE_ERRORS:
            return number, str(getattr(seen, "filename", None) or "")
        seen = seen.__cause__ or seen.__context__
    return 0, ""


def _is_full(folder: str) -> bool:
    """Tell whether a file system is full: torch and OpenCV only report that they could not write."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    return disk.f_blocks > 0 and disk.f_bavail * disk.f_frsize < LEAST_ROOM


class StoreError(Exception):
    """A file written by this program is missing, damaged or of another kind. The message names it and the remedy.

    ``damaged`` is the file if its checksum or format is broken; None if only reading failed.
    """

    damaged: Path | None = None


def unreadable(path: Path, error: Exception) -> StoreError:
    if not path.is_file():
        return StoreError(f"{path} is missing: run again")
    found = StoreError(f"{path} is damaged: delete it and run again ({error})")
    # an error with a number comes from the file system: the file itself may be intact
    if getattr(error, "errno", None) is None and "errno = " not in str(error):
        found.damaged = path
    return found
