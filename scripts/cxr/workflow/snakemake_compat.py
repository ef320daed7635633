"""The only file that touches Snakemake's internals; tried with 9.27.1, the version in requirements/.

Each touch is guarded: where a version of Snakemake lacks what it needs, a line says what is lost, and the run goes on.
"""

import functools
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from cxr.workflow.locks import lock_told

log = logging.getLogger("cxr")


class Planned(NamedTuple):
    """A job that Snakemake is about to run; ``forced``: it was asked for with --forcerun or --forceall."""

    rule: str
    input: dict[str, str]
    output: list[str]
    by_shard: bool
    forced: bool


@contextmanager
def _touch(lost: str) -> Iterator[None]:
    """Go on where an internal is missing or another than we know, and say what is ``lost``."""
    try:
        yield
    except (AttributeError, ImportError, TypeError, KeyError) as error:
        log.warning("this version of Snakemake is another inside (%s): %s", error, lost)


def tell_why_groups_fail() -> None:
    """Let Snakemake print why a group of jobs failed, as it does for a single job.

    Snakemake 9.27 leaves out what its executor says of a group, so that of jobs which SLURM refuses (a limit of the
    partition, no node that fits) nothing would be told but that they failed, with an empty log.
    """
    with _touch("why a group of jobs failed is not printed; see its SLURM log"):
        from snakemake.jobs import GroupJob  # here, for only a workflow needs it
        from snakemake.logging import logger

        log_error = GroupJob.log_error
        if hasattr(log_error, "__wrapped__"):  # done: a Snakefile may be read twice in a process
            return

        @functools.wraps(log_error)
        def told(self, msg=None, *arguments, **named):
            if msg:
                logger.error(f"Group {self.groupid}: {msg}")
            return log_error(self, msg, *arguments, **named)

        GroupJob.log_error = told


def tell_of_locks() -> None:
    """Let Snakemake say of a locked folder who locks it, and give the command that frees it, options and all."""
    with _touch("a locked folder is told in Snakemake's own words"):
        from snakemake.exceptions import LockException, WorkflowError  # here, for only a workflow needs it

        def told(self) -> None:
            WorkflowError.__init__(self, lock_told(Path.cwd(), sys.argv, sys.executable))

        LockException.__init__ = told


def run_one_by_one(workflow) -> None:
    """Let a group ask for the memory and cores of its largest job and the time of all.

    The executor runs a group's jobs one after the other, but counts them as if at once. With this limit, and
    ``serial: 1`` for each job from the profile, it does not. The limit is set here and not in the profile, whose limits
    a job on a node does not get to see.
    """
    with _touch("groups of jobs ask SLURM for more than they need"):
        workflow.register_resource("serial", 1)


def submits_to_slurm(workflow) -> bool:
    """Tell whether the run sends its jobs to SLURM."""
    with _touch("whether the run submits to SLURM is not known, so it is taken to"):
        return workflow.executor_plugin.name == "slurm"
    return True


def default_resources(workflow) -> Mapping:
    """Return what a profile or the command line asks for each job (--default-resources)."""
    with _touch("what a training asks SLURM for replaces slurm_extra of the profile"):
        return workflow.resource_settings.default_resources or {}
    return {}


def touches(workflow) -> bool:
    """Tell whether the run is to mark files as up to date (--touch), and to make none."""
    with _touch("--touch is not seen"):
        return bool(workflow.touch)
    return False


def planned_jobs(dag) -> list[Planned]:
    """Return the jobs that are about to run; none, where that cannot be known."""
    with _touch("what a run is about to do is not looked at before it"):
        return [
            Planned(
                job.rule.name,
                {name: str(path) for name, path in job.input.items() if isinstance(path, str)},
                [str(path) for path in job.output],
                "shard" in job.wildcards_dict,
                bool(dag.reason(job).forced),
            )
            for job in dag.needrun_jobs()
        ]
    return []


def tell_dry_runs_in_full(workflow) -> None:
    """Let a dry run tell of each job what it reads, writes and why it would run, and not its message alone."""
    with _touch("a dry run shows the messages of jobs alone"):
        if workflow.output_settings.dryrun:
            for rule in workflow.rules:
                rule.message = None
