"""Glue for scripts: the rule's log, progress, and one sentence for a user's mistake instead of a traceback."""

import errno
import importlib
import inspect
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar, get_type_hints

T = TypeVar("T")
log = logging.getLogger("ils")
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


def start(log_file: str) -> None:
    """Send logging and uncaught errors to the rule's log file and to stderr.

    A :class:`UserError` or :class:`ils.core.store.StoreError` prints its sentence alone, and so does a lack of memory
    or of disk; :class:`ils.core.faults.Broken` leaves the traceback of its cause in the log and its sentence on stderr,
    anything else, our own fault, its traceback and one line. A result that is found damaged is renamed. What is logged
    below the level INFO is in the log file alone.
    """
    logging.raiseExceptions = False  # a log on a full disk is no reason for a traceback
    try:
        handlers = [logging.FileHandler(log_file, mode="w", encoding="utf-8"), logging.StreamHandler(sys.stderr)]
    except OSError as error:
        sys.exit(f"cxr-ils: {_shortage(error) or error}")
    handlers[1].setLevel(logging.INFO)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", handlers=handlers, force=True
    )
    log.setLevel(logging.DEBUG)

    def report(kind, error, trace) -> None:
        if kind.__name__ in {"UserError", "StoreError"}:
            log.error("%s", _set_aside(getattr(error, "damaged", None)) or error)
        elif remedy := _shortage(error):
            log.error("%s", remedy)
        else:
            handlers[1].setLevel(logging.CRITICAL + 1)
            if kind.__name__ == "Broken":
                cause = error.__cause__
                log.error("%s", error, exc_info=cause and (type(cause), cause, cause.__traceback__))
                print(f"{error} (traceback in {log_file})", file=sys.stderr)
                return
            log.error("unexpected error", exc_info=(kind, error, trace))
            print(f"unexpected error: {kind.__name__}: {error} (traceback in {log_file})", file=sys.stderr)

    def report_last(kind, error, trace) -> None:
        report(kind, error, trace)
        if _shortage(error):
            # what HDF5 could not close for the same reason, it would complain of when Python ends
            sys.excepthook = sys.unraisablehook = lambda *_: None

    sys.excepthook = report_last
    threading.excepthook = lambda args: report(args.exc_type, args.exc_value, args.exc_traceback)


def _set_aside(damaged: Path | None) -> str:
    """Rename a damaged result, so that the next run makes it anew, and say so; a user's own file is left alone."""
    if damaged is None or damaged.parts[0] != "results":
        return ""
    aside = damaged.with_name(f"{damaged.name}.damaged")
    try:
        damaged.replace(aside)
    except OSError:  # another job was faster, or we may not
        return ""
    return f"{damaged} is damaged and now called {aside.name}: run again, and it is made anew with all that needs it"


def out_of_memory(error: BaseException) -> bool:
    """Tell whether an error is a lack of memory, the computer's or the GPU's, whatever library raised it."""
    # torch's own class, by name: the core knows no torch
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return getattr(error, "errno", None) == errno.ENOMEM or (
        not isinstance(error, UserError) and bool(OUT_OF_MEMORY.search(str(error)))
    )


def _shortage(error: BaseException) -> str:
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


def progress(items: Iterable[T], total: int, what: str, every_s: float = 30.0) -> Iterator[T]:
    """Yield the items and log a line of progress at the start, every ``every_s`` seconds, and at the end.

    An item that takes longer is told of while it is made: after ``every_s`` seconds, and whenever its time has doubled.
    """
    began = last = time.monotonic()
    done, over = 0, threading.Event()
    waiting = _Waiting(what, total, every_s)
    threading.Thread(target=waiting.tell, args=(over,), daemon=True).start()
    log.info("%s: 0 of %d, started", what, total)
    try:
        for item in items:
            waiting.pause()
            yield item
            done += 1
            now = time.monotonic()
            waiting.begin(done)
            if now - last >= every_s:
                rate = done / (now - began)
                log.info("%s: %d of %d, %.1f a second, %.0f s to go", what, done, total, rate, (total - done) / rate)
                last = now
    finally:
        over.set()
    log.info("%s: %d of %d in %.1f s", what, done, total, time.monotonic() - began)


class _Waiting:
    """Tells of an item that takes long, from a thread of its own: the thread that works on it is busy."""

    def __init__(self, what: str, total: int, every_s: float):
        self._what, self._total, self._every_s = what, total, every_s
        self.begin(0)

    def begin(self, done: int) -> None:
        """Note that the next item is being made, after ``done`` of them."""
        self._item = (done, time.monotonic())
        self._told_s = self._every_s

    def pause(self) -> None:
        """Note that none is being made: what is done with an item is another's matter."""
        self._item = None

    def tell(self, over: threading.Event) -> None:
        """Log until ``over``."""
        while not over.wait(min(1.0, self._every_s / 4)):
            item = self._item
            if item and item[0] < self._total and (taken := time.monotonic() - item[1]) >= self._told_s:
                self._told_s = 2 * taken
                log.info("%s: at %d of %d, for %.0f s so far", self._what, item[0] + 1, self._total, taken)


def begin(snakemake, options_class: type[T]) -> tuple[T, dict]:
    """Start a script: open the log, turn the rule's params into the stage's options.

    The settings come as one param, ``options``: Snakemake compares the set of a rule's values whatever their names, so
    a value that moves from one key to another, or that another key has too, would not be seen to change.
    Returns the options and the attributes that every result carries: stage, code digest, settings.
    """
    start(snakemake.log[0])
    return _options(snakemake, options_class)


def _options(snakemake, options_class: type[T]) -> tuple[T, dict]:
    params = dict(snakemake.params.items())
    code, settings = params.pop("code"), params.pop("options", {})
    params = settings | params
    return options_class(**params), {"stage": snakemake.rule, "code_digest": code, "settings": params}


def compute_of(snakemake) -> dict:
    """Return the section ``compute`` of the settings, and as ``asked`` the GPUs that the job asked for.

    It is no param: how a net is run re-runs nothing.
    """
    return snakemake.config["compute"] | {"asked": snakemake.resources.get("gpu", 0)}


def part(snakemake, function_name: str, /, **more: object) -> None:
    """Run one of a stage's several parts: ``function_name`` is "masks.sweep.run_shard", below ``ils``.

    The part is named and not imported by the script, so that the rule's digest holds its own code and not its
    sisters'. It gets the rule's inputs and outputs, and of options (of the class its signature says), attrs, threads
    and ``more`` those it asks for.
    """
    start(snakemake.log[0])
    module, _, attribute = f"ils.{function_name}".rpartition(".")
    function = getattr(importlib.import_module(module), attribute)
    wanted, hints = inspect.signature(function).parameters, get_type_hints(function)
    if "options" in wanted:
        options, attrs = _options(snakemake, hints["options"])
        more |= {"options": options, "attrs": attrs}
    more |= {"threads": snakemake.threads}
    function(**snakemake.input, **snakemake.output, **{key: more[key] for key in more if key in wanted})
