"""Errors that a job reports in one sentence: mistakes of the user, damaged files, and a lack of space or memory."""

import errno
import os
import re
import stat
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

FULL = {errno.ENOSPC, errno.EDQUOT}  # error numbers of a full file system or an exhausted quota
OUT_OF_MEMORY = re.compile(
    r"out of memory|_status_alloc_failed|can't allocate memory|cannot allocate memory|"
    r"failed to allocate memory|insufficient memory|bad_alloc",
    re.IGNORECASE,
)
"""Pattern of out-of-memory messages. The error classes of torch, onnxruntime, OpenCV and C++ do not tell this cause."""

NO_SPACE = (
    "no space left on the device, or its quota is used up: free some space and run again (finished files are kept)"
)
LEAST_ROOM = 1 << 16  # a file system with fewer free bytes counts as full
FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}  # error numbers of a missing permission or a read-only file system
NOT_SUPPORTED = 524  # the kernel's ENOTSUPP, which Lustre returns for a file lock; Python has no name for it
NOT_SUPPORTED_TEXT = "operation not supported"
NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.EAGAIN, errno.EDEADLK, NOT_SUPPORTED}  # a file lock has failed
CHECK = "check that the disk and the network are available, and run again"
MACHINE_REMEDIES = {
    errno.EIO: "check the disk and the system's log, and run again",
    errno.ESTALE: "mount the file's folder again, and run again",
    errno.ENOTCONN: "mount the file's folder again, and run again",
    errno.EBUSY: "wait until the device is no longer busy, and run again",
} | dict.fromkeys(
    (
        errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH, errno.ENODEV,
        errno.ENXIO, errno.EREMOTEIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, *NO_LOCKS,
    ),
    CHECK,
)  # fmt: skip
"""{error number: remedy} for faults of the machine, a disk or the network. The file that was read may be intact."""
MACHINE_ERRORS = set(MACHINE_REMEDIES)
TOO_MANY_FILES = {
    errno.EMFILE: "too many open files: raise the limit (ulimit -n 4096, or more) and run again",
    errno.ENFILE: "too many open files on this computer: run fewer jobs at once (--cores) and run again",
}
"""{error number: message} for the two limits on open files."""
_NUMBERS = (re.compile(r"(?:errno = |os error )(\d+)"), re.compile(r"\[Errno (\d+)\]"))
"""Patterns that find an error number in a message. HDF5, polars and safetensors state it only there."""
INTACT = "though it may be intact"
_QUOTED = re.compile(r"""(?<!\w)b?(?:(['"`])(.*?)\1(?!\w)|['"`].*\Z)""", re.DOTALL)
_UID = re.compile(r"(?<![\d.])(?!1\.2\.840\.10008\.)\d+(?:\.\d+){4,}\b")  # a DICOM UID, except those of the standard
_PATH = re.compile(r"\S*[/\\^]\S*")  # a path, or a DICOM person name (Family^Given)
_OUR_PATH = re.compile(r"(?:results|logs|resources|scripts)/\S+")  # a relative path of this program


class UserError(Exception):
    """Error for a mistake of the user. The message is one sentence with the key, the value and the remedy."""


def count_phrase(number: int, singular: str, plural: str) -> str:
    """Return a number with the singular or plural words that fit it: "1 image file is", "2 image files are"."""
    return f"{number} {singular if number == 1 else plural}"


def refuse_empty(path: str | Path, action: str) -> None:
    """Raise UserError if a file of samples is empty. ``action`` is a verb for the message, such as "to score"."""
    if not Path(path).stat().st_size:
        raise UserError(
            f"{path} has no sample, so there is nothing {action}: use more studies, or other splits (cohort.split, or "
            "the column split of the cohort's table)"
        )


def existing_file(key: str, value: str | None) -> Path:
    """Return the path ``value`` of the setting ``key``. Raises UserError unless it is an existing file."""
    return _existing(key, value, "file", Path.is_file)


def existing_folder(key: str, value: str | None) -> Path:
    """Return the path ``value`` of the setting ``key``. Raises UserError unless it is an existing folder."""
    return _existing(key, value, "folder", Path.is_dir)


def _existing(key: str, value: str | None, kind: str, is_kind: Callable[[Path], bool]) -> Path:
    if not value:
        raise UserError(f"{key} is empty: give the path of a {kind}")
    if not is_kind(Path(value)):
        raise UserError(f"{key}: there is no {kind} {value!r}: correct the path")
    return Path(value)


def out_of_memory(error: BaseException) -> bool:
    """Return whether an error of any library means that the computer or the GPU is out of memory."""
    # torch's error class is matched by name, because this package does not import torch
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return getattr(error, "errno", None) == errno.ENOMEM or (
        not isinstance(error, UserError) and bool(OUT_OF_MEMORY.search(str(error)))
    )


def shortage(error: BaseException) -> str:
    """Return a sentence about what the machine lacks (memory, permission, network …) and the remedy, else ""."""
    if sentence := _machine_fault(error):
        return sentence
    return NO_SPACE if not _number_of(error)[0] and _is_full("results") else ""


def _machine_fault(error: BaseException) -> str:
    """Return the sentence of :func:`shortage` from the error and its causes alone, without checking the free space."""
    if out_of_memory(error):
        return "out of memory: give the rule more memory (--set-resources RULE:mem_mb=…), or lower compute.batch"
    number, name, message = _number_of(error)
    reason = NOT_SUPPORTED_TEXT if number == NOT_SUPPORTED else os.strerror(number).lower()
    if number in FULL:
        return NO_SPACE
    if number in FORBIDDEN:
        place = f" {name!r}" if name else ""
        return f"no permission to read or write{place} ({reason}): correct the permission and run again"
    if number in TOO_MANY_FILES:
        return TOO_MANY_FILES[number]
    if number in NO_LOCKS and "unable to lock" in message:
        return f"the file system has no file locks ({reason}): unset HDF5_USE_FILE_LOCKING and run again"
    if number in MACHINE_REMEDIES:
        return f"the disk or network failed ({reason}): {MACHINE_REMEDIES[number]}"
    return ""


def _number_of(error: BaseException) -> tuple[int, str, str]:
    """Return (number, file name, message) of the first system error in the chain of causes, or (0, "", "")."""
    link: BaseException | None = error
    while link is not None:
        number = getattr(link, "errno", None)
        if not isinstance(number, int):
            in_message = [match for pattern in _NUMBERS if (match := pattern.search(str(link)))]
            number = int(in_message[0][1]) if in_message else 0
        if number in FULL | FORBIDDEN | MACHINE_ERRORS:
            return number, str(getattr(link, "filename", None) or ""), str(link)
        link = link.__cause__ or link.__context__
    return 0, "", ""


def _is_full(folder: str) -> bool:
    """Return whether a folder's file system is full. Errors of torch and OpenCV do not say that this is their cause."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    return disk.f_blocks > 0 and disk.f_bavail * disk.f_frsize < LEAST_ROOM


def redact(text: str, allowed: frozenset[str] = frozenset()) -> str:
    """Replace possible patient data in an error message by "…": quotations, paths, UIDs and DICOM person names.

    Quotations in ``allowed``, and relative paths in this program's own folders, are kept.
    """

    def in_quotes(match: re.Match) -> str:
        quotation = match[2] or ""
        return f"'{quotation if quotation in allowed or _OUR_PATH.fullmatch(quotation) else '…'}'"

    text = _QUOTED.sub(in_quotes, _UID.sub("…", text))
    return _PATH.sub(lambda match: match[0] if _OUR_PATH.match(match[0]) else "…", text)


def describe(error: BaseException) -> str:
    """Return an error's class and the redacted first line of its message, for logs and the screen."""
    first_line = next(iter(redact(str(error)).strip().splitlines()), "")
    return f"{type(error).__name__}: {first_line[:300]}" if first_line else type(error).__name__


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an error and its causes, with each message redacted by :func:`describe`."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    before = f"{traceback_of(cause)}\n\nwhich led to:\n\n" if cause else ""
    frames = "".join(traceback.format_tb(error.__traceback__))
    return f"{before}Traceback (most recent call last):\n{frames}{describe(error)}"


class StoreError(Exception):
    """Error for a file that this program wrote and that is missing, damaged, or from another run.

    The message gives the path and the remedy. ``damaged`` is the file's path if its checksum or format is wrong.
    ``damaged`` is None if the file may be intact.
    """

    damaged: Path | None = None


def unreadable_file_error(path: str | Path, error: Exception) -> StoreError:
    """Return the StoreError for a file of this program that is missing, damaged, or not accessible on this machine."""
    if fault := _fault_at(path, error):
        return StoreError(f"{path} cannot be read, {INTACT}: {fault}")
    if not os.path.isfile(path):
        return StoreError(f"{path} is missing: run again to make it")
    if getattr(error, "errno", None) or "errno = " in str(error):
        # an error with a number comes from the file system: the file itself may be intact
        return StoreError(f"{path} cannot be read, {INTACT} ({describe(error)}): check the disk and run again")
    damage = StoreError(f"{path} is damaged: delete it and run again ({describe(error)})")
    damage.damaged = Path(path)
    return damage


def refuse_machine_fault(path: str | Path, error: BaseException) -> None:
    """Raise StoreError if ``path`` cannot be read because of the machine, a disk or the network, not the file itself.

    Call this function before you report a file as missing or damaged, so that nobody deletes an intact file.
    """
    if fault := _fault_at(path, error):
        raise StoreError(f"{path} cannot be read, {INTACT}: {fault}") from None


@contextmanager
def refuse_unreadable(path: str | Path, problem: str, remedy: str, *kinds: type[Exception]) -> Iterator[None]:
    """Raise UserError "<problem> (<first line of the error>): <remedy>" if reading ``path`` inside the context fails.

    ``kinds`` are error classes to catch beside OSError and ValueError. Raises StoreError if the machine is at fault.
    """
    reading_errors: tuple[type[Exception], ...] = (OSError, ValueError, *kinds)
    try:
        yield
    except reading_errors as error:
        refuse_machine_fault(path, error)
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(f"{problem} ({first[:160]}): {remedy}") from None


def _fault_at(path: str | Path, error: BaseException) -> str:
    """Return :func:`_machine_fault` of ``error``, or, if it is "", of the error that opening the file now raises."""
    if fault := _machine_fault(error):
        return fault
    try:  # errors of safetensors and onnxruntime do not show a fault of the machine
        if stat.S_ISREG(os.stat(path).st_mode):
            with open(path, "rb") as file:
                file.read(1)
    except (OSError, ValueError, TypeError) as second:
        return _machine_fault(second)
    return ""
