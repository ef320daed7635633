"""Check that torch sees a node's GPUs in the environment of each engine that needs one: `make slurm-check`."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from snakemake_executor_plugin_slurm.partitions import Partition

from cxr.base.errors import UserError
from cxr.workflow.params import ENGINE_STAGES, REQUEST_KEYS
from cxr.workflow.settings import Settings, SettingsError, read
from cxr.workflow.settings.validation import over
from cxr.workflow.slurm.check import Finding
from cxr.workflow.slurm.jobs import JobRequest, partition_of

PATIENCE_S = 5400
"""Longest time to make the environments, and for the jobs to get a node and end, seconds."""


def read_settings(words: Sequence[str], root: Path) -> Settings:
    """Return the settings that Snakemake would use with these arguments. Raises UserError."""
    # At import, Snakemake prints a message about a missing shell; the check itself reports a missing sbatch
    from snakemake.cli import get_argument_parser, parse_config
    from snakemake.common.configfile import load_configfile

    arguments, _ = get_argument_parser().parse_known_args(list(words))
    config = Settings().as_dict()
    files = [root / path for path in arguments.configfile or ()]
    for layer in (*map(load_configfile, files), parse_config(arguments.config) or {}):
        config = over(config, layer)
    try:
        return read({key: value for key, value in config.items() if key not in REQUEST_KEYS}, files)
    except SettingsError as error:
        raise UserError(str(error)) from None


def gpu_environments(jobs: list[JobRequest], partitions: list[Partition], settings: Settings) -> dict[str, dict]:
    """Return {environment: gpus, partition} of the jobs that need GPUs, each with its largest number of GPUs."""
    request_by_environment: dict[str, dict] = {}
    for job in jobs:
        for rule, _ in job.members if job.gpus else ():
            stage = rule.partition("_")[0]
            engine = getattr(settings, stage).engine if stage in ENGINE_STAGES else ""
            name = {"reports": "reports-vllm", "medground": "medground-vllm"}.get(
                stage, f"{stage}-{engine}" if engine else stage
            )
            if job.gpus > request_by_environment.get(name, {}).get("gpus", 0):
                request_by_environment[name] = {"gpus": job.gpus, "partition": partition_of(job, partitions) or ""}
    return request_by_environment


def check_gpus(
    request_by_environment: dict[str, dict], container: str, directory: Path, root: Path, instead: dict[str, object]
) -> list[Finding]:
    """Run a job on a GPU node in each environment, as the profile deploys it; return what torch says there.

    ``instead``: the profile's keys that the command line overrides.
    """
    place = directory / ".snakemake/slurm_check/devices"
    place.mkdir(parents=True, exist_ok=True)
    for old in place.glob("*.txt"):
        old.unlink()
    config = place / "config.yaml"
    config.write_text(json.dumps({"environments": request_by_environment, "container": container}), encoding="utf-8")
    command = [sys.executable, "-m", "snakemake", "--profile", "slurm", "--snakefile"]
    command += [str(root / "profiles/slurm/check.smk"), "--directory", str(place), "--nolock", "--retries", "0"]
    command += ["--quiet", "all", "--configfile", str(config)]
    for key, value in instead.items():
        if key != "retries":
            command += [f"--{key}", *map(str, value if isinstance(value, list) else [value])]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    except subprocess.TimeoutExpired:
        lack = f"jobs on nodes with GPUs did not end within {PATIENCE_S // 60} minutes: try again when some are free"
        return [Finding("GPUs", False, lack)]
    return [
        _finding(name, request["gpus"], place, done.stderr) for name, request in sorted(request_by_environment.items())
    ]


def _finding(name: str, gpus: int, place: Path, error_output: str) -> Finding:
    subject, file, log = f"torch in {name}", place / f"{name}.txt", place / f"{name}.log"
    if file.is_file():
        return Finding(subject, True, file.read_text(encoding="utf-8"))
    words = (log.read_text(encoding="utf-8", errors="replace") if log.is_file() else "") or error_output
    last = next((line.strip() for line in reversed(words.splitlines()) if line.strip()), "nothing")
    return Finding(
        subject, False, f"a job with {gpus} GPU{'s' * (gpus > 1)} in this environment fails, and says: {last}"
    )
