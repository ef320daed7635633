"""Mistakes of a user, damaged files, and machines that are full, too small or do not let us: each has one sentence."""

import errno
import os
import re
from pathlib import Path

FULL = {errno.ENOSPC, errno.EDQUOT}
"""Numbers of the errors of a file system that takes nothing more."""
OUT_OF_MEMORY = re.compile(
    r"out of memory|_status_alloc_failed|can't allocate memory|cannot allocate memory|"
    r"failed to allocate memory|insufficient memory|bad_alloc",
    re.IGNORECASE,
)
"""What torch, onnxruntime, OpenCV and C++ say of it without a class of its own."""

LEAST_ROOM = 1 << 16
"""Bytes under which a file system counts as full."""
FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
"""Numbers of the errors of a file system that does not let us."""
MACHINE_ERRORS = {
    errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENODEV, errno.ENXIO,
    errno.ENOTCONN, errno.EREMOTEIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM,
}  # fmt: skip
"""Numbers of errors of a machine, its disks or its network: they say nothing of the file that was asked for."""


class UserError(Exception):
    """A user's mistake: the message is one sentence that names the key, the value and the remedy."""


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
    """Tell whether an error is a lack of memory, the computer's or the GPU's, whatever library raised it."""
    # torch's own class, by name: the core knows no torch
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return getattr(error, "errno", None) == errno.ENOMEM or (
        not isinstance(error, UserError) and bool(OUT_OF_MEMORY.search(str(error)))
    )


def shortage(error: BaseException) -> str:
    """Return what to do about a machine that is too small or does not let us, "" if the error is of another kind."""
    if out_of_memory(error):
        return "out of memory: give the rule more (--set-resources RULE:mem_mb=…), or make compute.batch smaller"
    number, name = _number_of(error)
    if number in FULL or (not number and _is_full("results")):
        return "no space left on the device, or no more of its quota: free some and run again, what is finished stays"
    if number in FORBIDDEN:
        what = f" {name!r}" if name else ""
        return f"no permission to read or write{what} ({os.strerror(number).lower()}): correct it and run again"
    if number in MACHINE_ERRORS:
        return f"the disk or network failed ({os.strerror(number).lower()}): see that it is there and run again"
    return ""


def _number_of(error: BaseException) -> tuple[int, str]:
    """Return the number of the system's error and the file that it names, of an error or of what caused it; 0, ""."""
    seen: BaseException | None = error
    while seen is not None:
        # HDF5, polars and safetensors tell the number in their texts only
        told = re.search(r"(?:errno = |os error )(\d+)", str(seen))
        number = getattr(seen, "errno", None) or (int(told.group(1)) if told else 0)
        if isinstance(number, int) and number in FULL | FORBIDDEN | MACHINE_ERRORS:
            return number, str(getattr(seen, "filename", None) or "")
        seen = seen.__cause__ or seen.__context__
    return 0, ""


def _is_full(folder: str) -> bool:
    """Tell whether a file system has no room: torch and OpenCV say no more than that they could not write."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    return disk.f_blocks > 0 and disk.f_bavail * disk.f_frsize < LEAST_ROOM


class StoreError(Exception):
    """A file of ours is missing, damaged or of another kind; the message names it and the remedy.

    ``damaged`` is the file that cannot be what was once written whole: a checksum or the format is broken, it is not
    that reading failed.
    """

    damaged: Path | None = None


def unreadable(path: Path, error: Exception) -> StoreError:
    if not path.is_file():
        return StoreError(f"{path} is missing: run again")
    found = StoreError(f"{path} is damaged: delete it and run again ({error})")
    # an error with a number is the file system's: the file may be whole
    if getattr(error, "errno", None) is None and "errno = " not in str(error):
        found.damaged = path
    return found
