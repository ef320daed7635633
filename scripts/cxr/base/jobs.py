"""What a job does besides its work: its log, progress, a sentence instead of a traceback, the call of its function."""

import importlib
import inspect
import logging
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar, get_type_hints

from cxr.base.errors import shortage

T = TypeVar("T")
log = logging.getLogger("cxr")


def start(log_file: str) -> None:
    """Send logging and uncaught errors to the rule's log file and to stderr.

    A :class:`UserError` or :class:`cxr.base.errors.StoreError` prints its sentence alone, and so does a lack of memory
    or of disk; :class:`cxr.base.faults.Broken` leaves the traceback of its cause in the log and its sentence on stderr,
    anything else, our own fault, its traceback and one line. A result that is found damaged is renamed. What is logged
    below the level INFO is in the log file alone.
    """
    logging.raiseExceptions = False  # a log on a full disk is no reason for a traceback
    try:
        handlers = [logging.FileHandler(log_file, mode="w", encoding="utf-8"), logging.StreamHandler(sys.stderr)]
    except OSError as error:
        sys.exit(f"cxr-ils: {shortage(error) or error}")
    handlers[1].setLevel(logging.INFO)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", handlers=handlers, force=True
    )
    log.setLevel(logging.DEBUG)

    def report(kind, error, trace) -> None:
        if kind.__name__ in {"UserError", "StoreError"}:
            log.error("%s", _set_aside(getattr(error, "damaged", None)) or error)
        elif remedy := shortage(error):
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
        if shortage(error):
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


def part(snakemake) -> None:
    """Do a rule's work: call the function that its param ``function`` names, "ils.masks.sweep.run_shard" below cxr.

    It gets the rule's inputs and outputs, and of these what its signature asks for: ``options`` (of the class that it
    says) and ``attrs``, what every result carries (rule, code digest, settings); without options each param by its
    name; ``threads``; ``code``, the digest; each wildcard by its name; ``compute`` (:func:`compute_of`) and
    ``execution``, how the stage's language model is run.

    The settings come as one param, ``options``: Snakemake compares the set of a rule's values whatever their names, so
    a value that moves from one key to another, or that another key has too, would not be seen to change.
    """
    start(snakemake.log[0])
    params = dict(snakemake.params.items())
    name, code, options = params.pop("function"), params.pop("code"), params.pop("options", {})
    module, _, attribute = f"cxr.{name}".rpartition(".")
    function = getattr(importlib.import_module(module), attribute)
    wanted, hints = inspect.signature(function).parameters, get_type_hints(function)
    given = dict(snakemake.wildcards.items())
    given |= {"threads": snakemake.threads, "code": code, "compute": compute_of(snakemake)}
    if "options" in wanted:
        chosen = options | params
        attrs = {"stage": snakemake.rule, "code_digest": code, "settings": chosen}
        given |= {"options": hints["options"](**chosen), "attrs": attrs}
    else:
        given |= params
    if "execution" in wanted:
        given["execution"] = snakemake.config[name.split(".")[1]]["llm"]["execution"]
    files = dict(snakemake.input.items()) | dict(snakemake.output.items())
    function(**{key: given[key] for key in given if key in wanted} | files)


def compute_of(snakemake) -> dict:
    """Return the section ``compute`` of the settings, and as ``asked`` the GPUs that the job asked for.

    It is no param: how a net is run re-runs nothing. Nor is ``execution``, how a stage's language model is run.
    """
    return snakemake.config["compute"] | {"asked": snakemake.resources.get("gpu", 0)}
