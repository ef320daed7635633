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
"""Maximum time in seconds until the environments are made and the jobs have started and ended."""


def read_settings(words: Sequence[str], root: Path) -> Settings:
    """Return the settings that Snakemake would use with the command-line arguments ``words``.
    ``root``: the repository, which relative paths refer to. Raises UserError for a wrong setting."""
    # imported here, because the import may print a message about a missing shell
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
    """Return {environment: {"gpus": number, "partition": name}} of the environments whose jobs need GPUs.
    The number is the largest that a job of the environment requests."""
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
    """Run one job on a GPU node in each environment, and return a line with torch's answer for each.

    ``request_by_environment``: see :func:`gpu_environments`. ``container``: image of the jobs, "" for none.
    ``directory``: working directory. ``root``: the repository. ``instead``: {key of the profile: value that replaces
    the profile's}, from the command line.
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
        lack = f"jobs on nodes with GPUs did not end within {PATIENCE_S // 60} minutes: try again when GPUs are free"
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
