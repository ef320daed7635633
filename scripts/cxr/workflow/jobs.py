"""Helpers of rules: a job's function, resources that grow with each try, the warning before a time limit."""

import ast
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

from cxr.workflow.code_digest import code_digest

SCRIPT = "job.py"


def job(function: str, *modules: str) -> dict[str, str]:
    """Return the params that name a rule's function and the digest of the code behind it.

    ``function``: "ils.masks.sweep.run_shard", below ``cxr``; ``modules``: modules that it imports by a name in the
    settings, such as an engine: "imaging.organs.lite". A change of the code's meaning re-runs the rule.
    """
    return {"function": function, "code": digest_modules(function.rpartition(".")[0], *modules)}


def digest_modules(*modules: str) -> str:
    """Return the digest of the code that a job of these modules, below ``cxr``, depends on."""
    return code_digest(SCRIPT, *(f"cxr.{name}" for name in modules))


def grow_with_tries(amount: int | Callable[[object], int], most: int) -> Callable:
    """Return a rule's resource: ``amount`` at the first try, twice that at the second and so on, up to ``most``.

    ``amount`` may depend on the job's wildcards.

    A job that ran out of memory or time is tried again with more, as often as the profile's ``retries`` says. A try
    must not ask for more than a partition allows or a node has: SLURM would refuse it or never start it.
    """
    first = amount if callable(amount) else lambda wildcards: amount
    return lambda wildcards, attempt: min(first(wildcards) * attempt, most)


def warning_options(defaults: Mapping | None, seconds: int) -> str:
    """Return the sbatch options that warn a job by SIGURG ``seconds`` before its time limit.

    The warning goes to all processes of the job's step and ends none without a handler. SIGTERM or SIGUSR1 would end
    the shell that the executor starts there, and SLURM kills the rest of a step whose first process ended.
    ``defaults``: the profile's default-resources; a rule's own slurm_extra would replace theirs, so both are returned.
    """
    slurm_extra = (defaults or {}).get("slurm_extra")
    raw = "" if slurm_extra is None else str(getattr(slurm_extra, "raw", slurm_extra) or "")
    try:
        profile_options = str(ast.literal_eval(raw)) if raw else ""
    except (ValueError, SyntaxError):  # not in quotes
        profile_options = raw
    return " ".join(filter(None, (profile_options, f"--signal=URG@{seconds}")))


def digest_existing(paths: list[str]) -> dict[str, str]:
    """Return {path: digest of its content} of the existing files.

    As a param it re-runs a rule when one of them appears, changes or disappears, without making them its inputs.
    """
    return {path: sha256(Path(path).read_bytes()).hexdigest()[:16] for path in paths if Path(path).is_file()}
