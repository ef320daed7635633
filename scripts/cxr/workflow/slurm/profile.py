"""Read config.yaml and partitions.yaml of the profile `slurm` as Snakemake and its SLURM executor read them.

A mistake in these files is reported here in one sentence. The executor would raise a traceback during the run.
"""

from dataclasses import dataclass, fields
from pathlib import Path

import yaml
from snakemake_executor_plugin_slurm import ExecutorSettings
from snakemake_executor_plugin_slurm.partitions import Partition, PartitionLimits, read_partition_file
from snakemake_interface_common.exceptions import WorkflowError

from cxr.base.errors import UserError

FIRST_LOOK = "slurm-init-seconds-before-status-checks"
FIRST_LOOK_S = ExecutorSettings().init_seconds_before_status_checks
"""Default number of seconds until the executor first asks SLURM for a job's state (the option FIRST_LOOK)."""
CLUSTERS = ("slurm_cluster", "cluster", "clusters")
"""Keys of a partition in partitions.yaml that are not limits."""


@dataclass(frozen=True)
class Profile:
    """The values of config.yaml that the check needs.

    deployment: methods of software deployment. resources: default requests of jobs. first_look_s: seconds until the
    executor first asks for a job's state. retries: tries after the first. conda_in_image: whether the container
    image has conda.
    """

    deployment: tuple[str, ...]
    resources: dict[str, str]
    first_look_s: int
    retries: int
    conda_in_image: bool

    @property
    def account(self) -> str:
        """The first account in slurm_account, to which jobs are charged, or "" if the profile names none."""
        return self.resources.get("slurm_account", "").strip("'\"").partition(",")[0]


def read_profile(path: Path, instead: dict[str, object] | None = None) -> Profile:
    """Return the values of a profile's config.yaml. ``instead``: {key: value from the command line that replaces it}.
    An absent key gets the default of Snakemake or the executor. Raises UserError for a value that they would refuse."""
    values = _yaml(path) or {}
    if not isinstance(values, dict):
        raise UserError(f"{_name(path)} is not a list of `key: value`: restore it from the repository")
    values |= instead or {}
    methods = values.get("sdm", values.get("software-deployment-method")) or ()
    return Profile(
        (methods,) if isinstance(methods, str) else tuple(map(str, methods)),
        _resources(path, values.get("default-resources") or {}),
        _whole_number(path, values, FIRST_LOOK, FIRST_LOOK_S, least=1),
        _whole_number(path, values, "retries", 0, least=0),
        bool(values.get("conda-base-path")),
    )


def read_partitions(path: Path) -> list[Partition]:
    """Return the partitions of partitions.yaml, read as the executor does. Raises UserError for a wrong entry."""
    content = _yaml(path)
    limits_by_name = content.get("partitions") if isinstance(content, dict) else None
    if not isinstance(limits_by_name, dict) or not limits_by_name:
        raise UserError(f"{_name(path)} names no partition: below `partitions:`, write those that `sinfo` lists")
    for name, limits in limits_by_name.items():
        _check(path, name, limits)
    try:
        return read_partition_file(path)
    except WorkflowError as error:
        raise UserError(f"{_name(path)}: {str(error).splitlines()[0]}") from None


def _check(path: Path, name: object, limits: object) -> None:
    default_by_key = {field.name: field.default for field in fields(PartitionLimits)}
    if not isinstance(name, str):
        raise UserError(f"{_name(path)}: write the partition {name} in quotes")
    if not isinstance(limits, dict):
        raise UserError(f"{_name(path)}: {name} is {limits!r}: write `{name}: {{}}` for a partition without limits")
    for key, value in limits.items():
        if key not in default_by_key and key not in CLUSTERS:
            raise UserError(
                f"{_name(path)}: {name} has {key}, which the executor does not know: use {', '.join(default_by_key)}"
            )
        number = isinstance(value, (int, float)) or (key == "max_runtime" and isinstance(value, str))
        if key.startswith("max_") and not number:
            raise UserError(f"{_name(path)}: {key} of {name} is {value!r}: write a number")


def _resources(path: Path, resources: object) -> dict[str, str]:
    if not isinstance(resources, dict):
        words = resources.split() if isinstance(resources, str) else resources
        resources = dict(str(word).partition("=")[::2] for word in words) if isinstance(words, list) else None
    if resources is None:
        raise UserError(f"{_name(path)}: default-resources is not a list of `name: value`: write one pair per line")
    return {str(name): str(value) for name, value in resources.items()}


def _whole_number(path: Path, values: dict, key: str, default: int, least: int) -> int:
    value = values.get(key, default)
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = least - 1
    if number < least:
        raise UserError(f"{_name(path)}: {key} is {value!r}: write a whole number of at least {least}")
    return number


def _yaml(path: Path) -> object:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"there is no {_name(path)}: restore it from the repository") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        raise UserError(f"{_name(path)} is not valid YAML{where}: correct it") from None


def _name(path: Path) -> str:
    return "/".join(path.parts[-3:])
