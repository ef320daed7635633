"""Errors that a job reports in one sentence: user mistakes, damaged files, full disks, low memory, no permission."""

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
"""Out-of-memory messages of torch, onnxruntime, OpenCV and C++ that have no error class of their own."""

NO_SPACE = "no space left on the device, or its quota is used up: free some and run again, finished files stay"
LEAST_ROOM = 1 << 16  # free bytes below which a file system counts as full
FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}  # numbers of a missing permission or a read-only file system
NOT_SUPPORTED = 524  # the kernel's ENOTSUPP, which Lustre returns for a file lock; Python has no name for it
NOT_SUPPORTED_TEXT = "operation not supported"
NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.EAGAIN, errno.EDEADLK, NOT_SUPPORTED}  # no file locks
CHECK = "check that it is available and run again"
MACHINE_REMEDIES = {
    errno.EIO: "check the disk and the system's log, and run again",
    errno.ESTALE: "mount its folder again, and run again",
    errno.ENOTCONN: "mount its folder again, and run again",
    errno.EBUSY: "wait until it is free, and run again",
} | dict.fromkeys(
    (
        errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH, errno.ENODEV,
        errno.ENXIO, errno.EREMOTEIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, *NO_LOCKS,
    ),
    CHECK,
)  # fmt: skip
"""Remedy by error number of a machine, its disks or its network; these say nothing about the requested file."""
MACHINE_ERRORS = set(MACHINE_REMEDIES)
TOO_MANY_FILES = {
    errno.EMFILE: "too many open files: raise the limit (ulimit -n 4096, or more) and run again",
    errno.ENFILE: "too many open files on this computer: run fewer jobs at once (--cores) and run again",
}
"""Sentence by error number of a limit on open files."""
_NUMBERS = (re.compile(r"(?:errno = |os error )(\d+)"), re.compile(r"\[Errno (\d+)\]"))
"""Error numbers in a message: HDF5, polars, safetensors and wrapped errors give them only there; the cause's first."""
INTACT = "though it may be intact"
_QUOTED = re.compile(r"""(?<!\w)b?(?:(['"`])(.*?)\1(?!\w)|['"`].*\Z)""", re.DOTALL)
_UID = re.compile(r"(?<![\d.])(?!1\.2\.840\.10008\.)\d+(?:\.\d+){4,}\b")
_PATH = re.compile(r"\S*[/\\^]\S*")
_OUR_PATH = re.compile(r"(?:results|logs|resources|scripts)/\S+")


class UserError(Exception):
    """A user's mistake. The message is one sentence that names the key, the value and the remedy."""


def count_phrase(number: int, singular: str, plural: str) -> str:
    """Return the number with its singular or plural words: "1 image file is", "2 image files are"."""
    return f"{number} {singular if number == 1 else plural}"


def refuse_empty(path: str | Path, action: str) -> None:
    """Raise UserError if a file of lines is empty, so that there is nothing to do: ``action`` such as "to score"."""
    if not Path(path).stat().st_size:
        raise UserError(
            f"{path} holds no sample, so there is nothing {action}: take more studies, or other splits (cohort.split, "
            "or the table's column split)"
        )


def existing_file(key: str, value: str | None) -> Path:
    """Return the file that a setting names. Raises UserError if it names none."""
    return _existing(key, value, "file", Path.is_file)


def existing_folder(key: str, value: str | None) -> Path:
    """Return the folder that a setting names. Raises UserError if it names none."""
    return _existing(key, value, "folder", Path.is_dir)


def _existing(key: str, value: str | None, kind: str, is_kind: Callable[[Path], bool]) -> Path:
    if not value:
        raise UserError(f"{key} is empty: give the {kind}")
    if not is_kind(Path(value)):
        raise UserError(f"{key}: there is no {kind} {value!r}: correct the path")
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
    """Return the machine's fault (memory, space, permission, open files, disk, network) with its remedy, or ""."""
    if sentence := _machine_fault(error):
        return sentence
    return NO_SPACE if not _number_of(error)[0] and _is_full("results") else ""


def _machine_fault(error: BaseException) -> str:
    """Return what an error and its causes say of the machine, as :func:`shortage` does."""
    if out_of_memory(error):
        return "out of memory: give the rule more (--set-resources RULE:mem_mb=…), or make compute.batch smaller"
    number, name, message = _number_of(error)
    reason = NOT_SUPPORTED_TEXT if number == NOT_SUPPORTED else os.strerror(number).lower()
    if number in FULL:
        return NO_SPACE
    if number in FORBIDDEN:
        place = f" {name!r}" if name else ""
        return f"no permission to read or write{place} ({reason}): correct it and run again"
    if number in TOO_MANY_FILES:
        return TOO_MANY_FILES[number]
    if number in NO_LOCKS and "unable to lock" in message:
        return f"the file system has no file locks ({reason}): unset HDF5_USE_FILE_LOCKING and run again"
    if number in MACHINE_REMEDIES:
        return f"the disk or network failed ({reason}): {MACHINE_REMEDIES[number]}"
    return ""


def _number_of(error: BaseException) -> tuple[int, str, str]:
    """Return the system's error number, the file name and the message of an error or its causes; 0 if none has one."""
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
    """Tell whether a file system is full: torch and OpenCV only report that they could not write."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    return disk.f_blocks > 0 and disk.f_bavail * disk.f_frsize < LEAST_ROOM


def redact(text: str, allowed: frozenset[str] = frozenset()) -> str:
    """Return an error's message without what may be a patient's: quotations, paths, UIDs, names in DICOM's form.

    ``allowed`` quotations stay, and so do relative paths of this program's own folders.
    """

    def in_quotes(match: re.Match) -> str:
        quotation = match[2] or ""
        return f"'{quotation if quotation in allowed or _OUR_PATH.fullmatch(quotation) else '…'}'"

    text = _QUOTED.sub(in_quotes, _UID.sub("…", text))
    return _PATH.sub(lambda match: match[0] if _OUR_PATH.match(match[0]) else "…", text)


def describe(error: BaseException) -> str:
    """Return an error's class and the first line of its message, :func:`redact`, for logs and the screen."""
    first_line = next(iter(redact(str(error)).strip().splitlines()), "")
    return f"{type(error).__name__}: {first_line[:300]}" if first_line else type(error).__name__


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an error and of its causes, with :func:`describe` in place of each message."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    before = f"{traceback_of(cause)}\n\nwhich led to:\n\n" if cause else ""
    frames = "".join(traceback.format_tb(error.__traceback__))
    return f"{before}Traceback (most recent call last):\n{frames}{describe(error)}"


class StoreError(Exception):
    """A file written by this program is missing, damaged or of another kind. The message names it and the remedy.

    ``damaged`` is the file if its checksum or format is broken; None if only reading failed.
    """

    damaged: Path | None = None


def unreadable_file_error(path: str | Path, error: Exception) -> StoreError:
    """Return the error for a file of ours that cannot be read: missing, damaged, or out of reach on this machine."""
    if fault := _fault_at(path, error):
        return StoreError(f"{path} cannot be read, {INTACT}: {fault}")
    if not os.path.isfile(path):
        return StoreError(f"{path} is missing: run again")
    if getattr(error, "errno", None) or "errno = " in str(error):
        # an error with a number comes from the file system: the file itself may be intact
        return StoreError(f"{path} cannot be read, {INTACT} ({describe(error)}): check the disk and run again")
    damage = StoreError(f"{path} is damaged: delete it and run again ({describe(error)})")
    damage.damaged = Path(path)
    return damage


def refuse_machine_fault(path: str | Path, error: BaseException) -> None:
    """Raise StoreError with the machine's fault if that, and not the file, is why ``path`` cannot be read.

    Call it first where a failed reading is reported as a missing or damaged file: nobody must delete an intact one.
    """
    if fault := _fault_at(path, error):
        raise StoreError(f"{path} cannot be read, {INTACT}: {fault}") from None


@contextmanager
def refuse_unreadable(path: str | Path, problem: str, remedy: str, *kinds: type[Exception]) -> Iterator[None]:
    """Raise UserError "<problem> (<the error's first line>): <remedy>" if reading ``path`` inside the context fails.

    ``kinds``: of the errors, besides OSError and ValueError. A machine's fault is a StoreError.
    """
    reading_errors: tuple[type[Exception], ...] = (OSError, ValueError, *kinds)
    try:
        yield
    except reading_errors as error:
        refuse_machine_fault(path, error)
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(f"{problem} ({first[:160]}): {remedy}") from None


def _fault_at(path: str | Path, error: BaseException) -> str:
    """Return the machine's fault that an error names, or that a second look at the file meets; "" without one."""
    if fault := _machine_fault(error):  # safetensors and onnxruntime name none
        return fault
    try:
        if stat.S_ISREG(os.stat(path).st_mode):
            with open(path, "rb") as file:
                file.read(1)
    except (OSError, ValueError, TypeError) as second:
        return _machine_fault(second)
    return ""
