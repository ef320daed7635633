"""Running the job of a rule: logging, progress, errors in one sentence, and the call of the job's function."""

import dataclasses
import importlib
import inspect
import logging
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar, get_type_hints

from cxr.base.engines import with_installed_engines
from cxr.base.errors import describe, shortage, traceback_of
from cxr.base.runner import end_with_runner
from cxr.base.settings import Section

T = TypeVar("T")
log = logging.getLogger("cxr")
ARITHMETIC = {
    "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OPENCV_FOR_THREADS_NUM": "1",
    "POLARS_MAX_THREADS": "1", "MKL_CBWR": "AUTO",
}  # fmt: skip
"""Environment variables under which the same job gives bit-identical results on the same processor.

Numeric libraries read these variables when they load. Each library then uses one thread, and MKL computes matrix
products that do not depend on an array's memory address (its "conditional numerical reproducibility").
"""
OPEN_FILES = 65536  # maximum number of open files that a job requests from the system


def start_logging(log_file: str) -> None:
    """Send log messages and uncaught errors to the rule's log file and to stderr.

    A :class:`UserError`, a :class:`cxr.base.errors.StoreError`, or a lack of memory or disk space prints only its
    message. :class:`cxr.base.faults.Broken` prints its message to stderr, and the log also gets the traceback of its
    cause. Any other error is a bug. Its traceback goes to the log, and one line goes to stderr. Quotations in error
    messages are redacted, because they may be patient data. A result file that a StoreError reports as damaged is
    renamed. Messages below INFO go only to the log file.
    """
    # the default limit of many systems is 256 or 1,024 open files
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    logging.raiseExceptions = False  # no traceback if writing the log fails, as on a full disk
    try:
        file = logging.FileHandler(log_file, mode="w", encoding="utf-8")
    except OSError as error:
        sys.exit(f"cxr-ils: {shortage(error) or error}")
    screen = logging.StreamHandler(sys.stderr)
    screen.setLevel(logging.INFO)
    handlers: list[logging.Handler] = [file, screen]
    for handler in handlers:
        handler.setFormatter(_Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=handlers, force=True)
    log.setLevel(logging.DEBUG)

    def report(kind, error, trace) -> None:
        if kind.__name__ in {"UserError", "StoreError"}:
            log.error("%s", _set_aside(getattr(error, "damaged", None)) or error)
        elif remedy := shortage(error):
            log.error("%s", remedy)
        else:
            screen.setLevel(logging.CRITICAL + 1)
            if kind.__name__ == "Broken":
                cause = error.__cause__
                log.error("%s", error, exc_info=cause and (type(cause), cause, cause.__traceback__))
                print(f"{error} (traceback in {log_file})", file=sys.stderr)
                return
            log.error("unexpected error", exc_info=(kind, error, trace))
            print(f"unexpected error: {describe(error)} (traceback in {log_file})", file=sys.stderr)

    def report_last(kind, error, trace) -> None:
        report(kind, error, trace)
        if shortage(error):
            # skip Python's own exit, in which HDF5 would crash: it could not close a file, for the same reason
            logging.shutdown()
            sys.stderr.flush()
            os._exit(1)

    sys.excepthook = report_last
    threading.excepthook = lambda args: report(args.exc_type, args.exc_value, args.exc_traceback)


class _Formatter(logging.Formatter):
    """Log formatter that redacts the error messages in a traceback, because they may quote patient data."""

    def formatException(self, ei) -> str:
        return traceback_of(ei[1])


def _set_aside(damaged: Path | None) -> str:
    """Rename a damaged result file, so that the next run remakes it. Return a message, or "" if nothing is renamed."""
    if damaged is None or damaged.parts[0] != "results":
        return ""
    aside = damaged.with_name(f"{damaged.name}.damaged")
    try:
        damaged.replace(aside)
    except OSError:  # another job was faster, or the permission is missing
        return ""
    return f"{damaged} is damaged and was renamed to {aside.name}: run again to remake it and all that depends on it"


def progress(items: Iterable[T], total: int, task: str, every_s: float = 30.0) -> Iterator[T]:
    """Yield the items. Log the progress of ``task`` at the start, every ``every_s`` seconds, and at the end.

    While a slow item is computed, the time it has taken is logged after ``every_s`` seconds and at each doubling.
    """
    began = last = item_began = time.monotonic()
    done, slow_s, over = 0, every_s, threading.Event()

    def log_slow_item() -> None:
        """Log items that take long to compute, until ``over`` is set. ``item_began`` is 0 while none is computed."""
        nonlocal slow_s
        while not over.wait(min(1.0, every_s / 4)):
            number, start = done, item_began
            if start and number < total and (taken := time.monotonic() - start) >= slow_s:
                slow_s = 2 * taken
                log.info("%s: item %d of %d, %.0f s so far", task, number + 1, total, taken)

    threading.Thread(target=log_slow_item, daemon=True).start()
    log.info("%s: 0 of %d, started", task, total)
    try:
        for item in items:
            item_began = 0.0
            yield item
            done += 1
            now = item_began = time.monotonic()
            slow_s = every_s
            if now - last >= every_s:
                rate = done / (now - began)
                log.info("%s: %d of %d, %.1f a second, %.0f s to go", task, done, total, rate, (total - done) / rate)
                last = now
    finally:
        over.set()
    log.info("%s: %d of %d in %.1f s", task, done, total, time.monotonic() - began)


def run_job(snakemake) -> None:
    """Run the job of a rule: call the function that the rule's param ``function`` names.

    The name is relative to the package cxr, such as "ils.masks.sweep.run_shard". The function receives the inputs and
    outputs of the rule. It also receives each of the following that its signature names:

    * the rule's params and wildcards, and ``threads``;
    * ``options``, the settings (:func:`settings_arguments`);
    * ``code``, the digest of the code, and ``attrs``, the provenance in every result (rule, code digest, settings);
    * ``compute``, the settings section ``compute`` with the entry ``asked``, the number of GPUs that the job requested;
    * ``execution``, the settings section ``llm``.

    ``compute`` and ``execution`` are not params, so that a change in how models run does not rerun any job. All
    settings are a single param, because Snakemake compares only the set of a rule's values, not their names. It would
    miss a value that moves from one key to another, or that two keys share.

    Each numeric library runs with one thread (``ARITHMETIC``), because the number of threads changes the order of a sum
    and with it the last bit. Otherwise Snakemake would set this number by ``--cores``. A job uses its cores by
    processing several images at a time. The job ends when the Snakemake process that started it is killed.
    """
    end_with_runner()
    os.environ.update(ARITHMETIC)
    start_logging(snakemake.log[0])
    params = dict(snakemake.params.items())
    name, code, options = params.pop("function"), params.pop("code"), params.pop("options", {})
    module, _, attribute = f"cxr.{name}".rpartition(".")
    function = getattr(importlib.import_module(module), attribute)
    parameters = inspect.signature(function).parameters
    arguments = dict(snakemake.wildcards.items())
    arguments |= {"threads": snakemake.threads, "code": code}
    arguments["compute"] = snakemake.config["compute"] | {"asked": snakemake.resources.get("gpu", 0)}
    arguments |= {key: value for key, value in params.items() if key in parameters}
    settings = options | {key: value for key, value in params.items() if key not in parameters}
    arguments |= {"attrs": {"stage": snakemake.rule, "code_digest": code, "settings": settings}}
    arguments |= settings_arguments(function, settings)
    if "execution" in parameters:
        arguments["execution"] = snakemake.config["llm"]
    files = dict(snakemake.input.items()) | dict(snakemake.output.items())
    function(**{key: arguments[key] for key in arguments if key in parameters} | files)


def settings_arguments(function: Callable, settings: dict) -> dict:
    """Return the arguments that a job's function gets from ``settings``, {name: value}.

    The argument ``options`` is an instance of the class in its annotation, made from the settings that are fields of
    this class. Any other parameter gets the setting of the same name. A function need not have a parameter ``options``.
    """
    names = {*inspect.signature(function).parameters}
    if "options" not in names:
        return {key: value for key, value in settings.items() if key in names}
    kind = get_type_hints(function)["options"]
    fields = {field.name for field in dataclasses.fields(kind)}
    if issubclass(kind, Section) and "engine" in fields:
        stage = function.__module__.rpartition(".")[0].rpartition(".")[2]
        kind = with_installed_engines(kind, stage, settings.get("engine", ""))
    names -= fields
    values = {key: value for key, value in settings.items() if key not in names}
    options = kind.from_dict(values) if issubclass(kind, Section) else kind(**values)
    return {key: value for key, value in settings.items() if key in names} | {"options": options}
