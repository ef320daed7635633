"""The only module that uses Snakemake's internals; tried with 9.27.1, the version in requirements/.

Each use is guarded: if a version of Snakemake lacks an internal, a warning says what is lost, and the run continues.
"""

import functools
import logging
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from cxr.base.errors import UserError
from cxr.workflow.dry_runs import LOCAL_RULES
from cxr.workflow.locks import lock_told

log = logging.getLogger("cxr")


class Planned(NamedTuple):
    """A job that Snakemake is about to run.

    wing: folder of its rule below ``rules/``; num_gpus: GPUs that it asks for; forced: it was asked for with --forcerun
    or --forceall.
    """

    rule: str
    wing: str
    input: dict[str, str]
    output: list[str]
    wildcards: dict[str, str]
    num_gpus: int
    forced: bool

    @property
    def by_shard(self) -> bool:
        """Return whether it is of one shard."""
        return "shard" in self.wildcards


@contextmanager
def _touch(lost: str) -> Iterator[None]:
    """Continue if an internal is missing or different, and warn of what is ``lost``."""
    try:
        yield
    except (AttributeError, ImportError, TypeError, KeyError) as error:
        log.warning("this version of Snakemake is another inside (%s): %s", error, lost)


def tell_why_groups_fail() -> None:
    """Make Snakemake print why a group of jobs failed, as it does for a single job.

    Snakemake 9.27 drops the executor's message for a group. For jobs that SLURM refuses (a limit of the partition, no
    fitting node) it would only print that they failed, with an empty log.
    """
    with _touch("why a group of jobs failed is not printed; see its SLURM log"):
        from snakemake.jobs import GroupJob  # imported here, because only a workflow needs it
        from snakemake.logging import logger

        log_error = GroupJob.log_error
        if hasattr(log_error, "__wrapped__"):  # already wrapped: a process may read a Snakefile twice
            return

        @functools.wraps(log_error)
        def told(self, msg=None, *arguments, **named):
            if msg:
                logger.error(f"Group {self.groupid}: {msg}")
            return log_error(self, msg, *arguments, **named)

        GroupJob.log_error = told


def tell_of_locks() -> None:
    """Make Snakemake name the holder of a folder's lock, and the full command that frees it."""
    with _touch("a locked folder is reported in Snakemake's own words"):
        from snakemake.exceptions import LockException, WorkflowError  # imported here, because only a workflow needs it

        def told(self) -> None:
            WorkflowError.__init__(self, lock_told(Path.cwd(), sys.argv, sys.executable))

        LockException.__init__ = told


def run_one_by_one(workflow) -> None:
    """Make a group ask for the memory and cores of its largest job and the time of all.

    The executor runs a group's jobs one after the other, but counts their resources as if they ran at once. This limit,
    with ``serial: 1`` for each job from the profile, prevents that. The limit is set here because a job on a node does
    not see the profile's limits.
    """
    with _touch("groups of jobs ask SLURM for more than they need"):
        workflow.register_resource("serial", 1)


def use_all_cores(workflow) -> None:
    """Let a run on this machine take all its cores if neither --cores nor --jobs says how many.

    `cores: all` in a profile would also be obeyed where it does harm: it limits the threads of a cluster's jobs to the
    cores of the login node, and outvotes --jobs.
    """
    with _touch("snakemake without --cores stops, so add --cores all"):
        from snakemake.cli import parse_cores  # imported here, because only a workflow needs it

        if workflow.resource_settings.cores is None and workflow.resource_settings.nodes is None:
            workflow.resource_settings.cores = workflow.global_resources["_cores"] = parse_cores("all")


def refuse_missing_conda(workflow) -> None:
    """Raise UserError if the run makes environments with conda, and there is none.

    Snakemake's own words name no remedy.
    """
    with _touch("a missing conda is reported in Snakemake's own words"):
        from snakemake.settings.types import DeploymentMethod  # imported here, because only a workflow needs it

        settings = workflow.deployment_settings
        needs_conda = DeploymentMethod.CONDA in settings.deployment_method and not settings.conda_base_path
        if workflow.is_main_process and needs_conda and not shutil.which("conda"):
            raise UserError(
                "conda is not found, and sdm: conda makes the environments of the stages with it, which a dry run "
                "looks up too: add conda's folder bin to PATH, or add --sdm env-modules to use the packages here"
            )


def submits_to_slurm(workflow) -> bool:
    """Return whether the run sends its jobs to SLURM."""
    with _touch("it is not known whether the run submits to SLURM, so it is assumed to"):
        return workflow.executor_plugin.name == "slurm"
    return True


def default_resources(workflow) -> Mapping:
    """Return the default resources of jobs from a profile or the command line (--default-resources)."""
    with _touch("a training's request to SLURM replaces slurm_extra of the profile"):
        return workflow.resource_settings.default_resources or {}
    return {}


def touches(workflow) -> bool:
    """Return whether the run only marks files as up to date (--touch)."""
    with _touch("--touch is not detected"):
        return bool(workflow.touch)
    return False


def planned_jobs(dag) -> list[Planned]:
    """Return the planned jobs in the order of their rules, which Snakemake's own changes; none if they are unknown."""
    with _touch("the planned jobs are not checked before the run"):
        planned = [
            Planned(
                job.rule.name,
                Path(job.rule.snakefile).parent.name,
                {name: str(path) for name, path in job.input.items() if isinstance(path, str)},
                [str(path) for path in job.output],
                dict(job.wildcards_dict),
                int(job.resources.get("gpu", 0)),
                bool(dag.reason(job).forced),
            )
            for job in dag.needrun_jobs()
        ]
        order = {rule.name: place for place, rule in enumerate(dag.workflow.rules)}
        return sorted(planned, key=lambda job: (order[job.rule], job.output))
    return []


def say(text: str) -> None:
    """Print a text as Snakemake prints what it does."""
    with _touch("the plan of the run is not printed"):
        from snakemake.logging import logger

        logger.info(text)


def when_planned(workflow, action: Callable[[], None], target: str, unknown: Callable[[str], str]) -> None:
    """Call ``action`` once the jobs are known, where there is no ``onstart``, and if ``target`` is asked for.

    A dry run has none, nor has a workflow that another one uses as a module. With --no-hooks it is not called, as
    ``onstart`` is not. Where a file was asked for that no rule makes, end with the sentence ``unknown(path)``, if it
    returns one.
    """
    with _touch("a dry run does not refuse what the run would refuse"):
        from snakemake.exceptions import MissingRuleException  # imported here, because only a workflow needs it

        build, is_dry_run = workflow._build_dag, bool(workflow.output_settings.dryrun)
        is_module = workflow.is_main_process and not workflow.modifier.is_main_snakefile()

        def build_and_act() -> None:
            targets = list(map(str, workflow.dag_settings.targets or ()))
            try:
                build()
            except MissingRuleException:
                if sentences := [sentence for path in targets if (sentence := unknown(path))]:
                    sys.exit(f"cxr-ils: {sentences[0]}")
                raise
            if (is_dry_run or is_module or target in targets) and not workflow.execution_settings.no_hooks:
                action()

        workflow._build_dag = build_and_act


def tell_dry_runs_in_full(workflow) -> None:
    """Make a dry run show the inputs, outputs and reason of each job, not only its message."""
    with _touch("a dry run shows only the messages of jobs"):
        if workflow.output_settings.dryrun:
            for rule in workflow.rules:
                rule.message = None


def tell_local_rules(workflow) -> None:
    """Let a dry run name the rules that never go to a cluster, where jobs ask for the resources of one.

    Snakemake leaves out of a dry run what it says of each job of a run: whether it is local.
    """
    with _touch("jobs that run where Snakemake was started are taken for jobs of the cluster"):
        from snakemake.logging import logger

        if workflow.output_settings.dryrun and default_resources(workflow).keys() - {"tmpdir"}:
            logger.info(LOCAL_RULES + ", ".join(sorted(workflow._localrules)))
