"""Helpers for rules: params with a job's function, resources that grow with each try, options for sbatch."""

import ast
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

from cxr.workflow.code_digest import code_digest

SCRIPT = "job.py"


def job(function: str, *modules: str) -> dict[str, str]:
    """Return the params of a rule: the function that its jobs call, and a digest of the code of that function.

    ``function``: its path below ``cxr``, such as "ils.masks.sweep.run_shard". ``modules``: modules that are imported by
    a name in the settings, such as the engine "imaging.organs.lite". The rule reruns if the code's meaning changes.
    """
    return {"function": function, "code": digest_modules(function.rpartition(".")[0], *modules)}


def digest_modules(*modules: str) -> str:
    """Return the digest of the code of a job that runs these modules, such as "imaging.organs.lite" (below ``cxr``)."""
    return code_digest(SCRIPT, *(f"cxr.{name}" for name in modules))


def grow_with_tries(amount: int | Callable[[object], int], most: int) -> Callable:
    """Return a rule's resource: ``amount`` at the first try, twice that at the second and so on, up to ``most``.

    ``amount``: a number, or a function of the job's wildcards. A job that ran out of memory or time is tried again with
    more, as often as the profile's ``retries`` says. ``most`` should be what a partition or node has, because SLURM
    would refuse or never start a job that asks for more.
    """
    first = amount if callable(amount) else lambda wildcards: amount
    return lambda wildcards, attempt: min(first(wildcards) * attempt, most)


def warning_options(defaults: Mapping | None, seconds: int) -> str:
    """Return the sbatch options that warn a job by SIGURG ``seconds`` before its time limit.

    SIGURG goes to all processes of the job and does not end those without a handler. SIGTERM or SIGUSR1 would end the
    shell that the executor starts, and then SLURM would kill the job's other processes. ``defaults``: the profile's
    default-resources. Their slurm_extra is added to the options, because a rule's slurm_extra replaces it.
    """
    slurm_extra = (defaults or {}).get("slurm_extra")
    raw = "" if slurm_extra is None else str(getattr(slurm_extra, "raw", slurm_extra) or "")
    try:
        profile_options = str(ast.literal_eval(raw)) if raw else ""
    except (ValueError, SyntaxError):  # not in quotes
        profile_options = raw
    return " ".join(filter(None, (profile_options, f"--signal=URG@{seconds}")))


def digest_existing(paths: list[str]) -> dict[str, str]:
    """Return {path: digest of its content} of the files in ``paths`` that exist.
    As a param, the dict reruns a rule if a file appears, changes or disappears, although it is not an input."""
    return {path: sha256(Path(path).read_bytes()).hexdigest()[:16] for path in paths if Path(path).is_file()}
