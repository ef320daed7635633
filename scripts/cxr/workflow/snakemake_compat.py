"""All uses of Snakemake's internal functions, tested with version 9.27.1 of requirements/.

If another version of Snakemake lacks a function, a warning says what no longer works, and the run continues.
"""

import base64
import copy
import functools
import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from cxr.base.errors import UserError, shortage
from cxr.base.runner import end_with_runner
from cxr.workflow.folder import describe_lock, snakemake_command

log = logging.getLogger("cxr")

RECORDS = Path("results/records")
"""Folder of Snakemake's records: one per output, with the params, inputs and checksums of the job that made it."""

LOCAL_RULES = "Rules that run where Snakemake was started: "
"""Beginning of the line in which a dry run for a cluster names the rules that do not run on the cluster."""
ONLY_TARGET, TARGET_DONE = "CXR_ILS_ONLY_TARGET", "CXR_ILS_TARGET_DONE"
"""Environment variables of a run: the only target that it may make, and the target that was made just before it."""


class Planned(NamedTuple):
    """A job that Snakemake is about to run.

    wing: folder of its rule below ``rules/``. input: {name: path}, without inputs of several files. num_gpus: GPUs that
    it asks for. forced: whether the user asked for it with --forcerun or --forceall.
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
        """Return whether the job processes a single shard."""
        return "shard" in self.wildcards


@contextmanager
def _guard_internals(lost: str) -> Iterator[None]:
    """Catch errors of missing or changed internals, and log a warning that ends with the consequence ``lost``."""
    try:
        yield
    except (AttributeError, ImportError, TypeError, KeyError) as error:
        log.warning("unsupported Snakemake internals (%s): %s", error, lost)


def print_group_errors() -> None:
    """Make Snakemake print why a group of jobs failed, as it does for a single job.

    Snakemake 9.27 drops the executor's message for a group. If SLURM refuses a group because of a limit, Snakemake
    would only print that the group failed, and the log would be empty.
    """
    with _guard_internals("why a group of jobs failed is not printed; see its SLURM log"):
        from snakemake.jobs import GroupJob  # imported here, because only a workflow needs it
        from snakemake.logging import logger

        log_error = GroupJob.log_error
        if hasattr(log_error, "__wrapped__"):  # already wrapped: a process may read a Snakefile twice
            return

        @functools.wraps(log_error)
        def log_reason(self, msg=None, *arguments, **keywords):
            if msg:
                logger.error(f"Group {self.groupid}: {msg}")
            return log_error(self, msg, *arguments, **keywords)

        GroupJob.log_error = log_reason


def explain_locks() -> None:
    """Make Snakemake's message about a locked folder name the process that uses it, or the command that unlocks it."""
    with _guard_internals("a locked folder is reported in Snakemake's own words"):
        from snakemake.exceptions import LockException, WorkflowError  # imported here, because only a workflow needs it

        def name_holder(self) -> None:
            WorkflowError.__init__(self, describe_lock(Path.cwd(), sys.argv, sys.executable))

        LockException.__init__ = name_holder


def store_records_in_results() -> None:
    """Make Snakemake keep its records of finished jobs in results/, so that a copy of this folder contains them.
    A job on a cluster also writes its own record, because the main Snakemake process may end before the job does."""
    lost = "records stay in .snakemake/metadata: copy that folder together with results/"
    with _guard_internals(lost):
        from snakemake.persistence.file import FilePersistence  # imported here, because only a workflow needs it
        from snakemake_interface_executor_plugins.settings import ExecMode

        initialise, finish = FilePersistence.__init__, FilePersistence.finished
        if hasattr(initialise, "__wrapped__"):  # already wrapped: a process may read a Snakefile twice
            return

        @functools.wraps(initialise)
        def initialise_with_results(self, *arguments, **options):
            initialise(self, *arguments, **options)
            self._metadata_path = str(RECORDS.absolute())

        @functools.wraps(finish)
        async def finish_and_record(self, job) -> None:
            recorder = copy.copy(self)
            recorder.dag = _Variant(self.dag, workflow=_Variant(self.dag.workflow, exec_mode=ExecMode.DEFAULT))
            await finish(recorder, job)

        FilePersistence.__init__, FilePersistence.finished = initialise_with_results, finish_and_record


class _Variant:
    """A view of an object in which some attributes have other values."""

    def __init__(self, original: object, **changed: object):
        self._original = original
        vars(self).update(changed)

    def __getattr__(self, name: str) -> object:
        return getattr(self._original, name)


def around_planning(workflow, before: Callable, after: Callable) -> None:
    """Call ``before(dag)`` before Snakemake decides which jobs run, and ``after(dag)`` once it has decided.

    The calls are made only by the process that runs or dry-runs the workflow. Processes of jobs and commands such as
    --unlock or --summary make none. A UserError of either function ends the run with its message.
    """
    with _guard_internals("changed reports and images are not noticed, nor results without records"):
        build = workflow._build_dag

        def build_dag() -> None:
            executes = workflow._executor_plugin is not None and workflow.is_main_process
            if executes:
                _check_or_exit(before, workflow.dag)
            build()
            if executes:
                _check_or_exit(after, workflow.dag)

        workflow._build_dag = build_dag


def _check_or_exit(check: Callable, dag) -> None:
    try:
        check(dag)
    except UserError as error:
        sys.exit(f"cxr-ils: {error}")
    except OSError as error:
        if remedy := shortage(error):
            sys.exit(f"cxr-ils: {remedy}")
        raise


def unrecorded_outputs(dag) -> list[str]:
    """Return the existing outputs that have no record of Snakemake and that no planned job makes again, sorted."""
    with _guard_internals("results without records are not noticed"):
        records = dag.workflow.persistence
        jobs = [job for job in dag.jobs if dag.reason(job).no_metadata and not dag.needrun(job)]
        return sorted(
            {str(path) for job in jobs for path in job.output if os.path.exists(path) and not records.metadata(path)}
        )
    return []


class Records:
    """Snakemake's records of all outputs that it has made, including outputs that no longer exist."""

    def __init__(self, folder: Path = RECORDS):
        self._files: dict[str, Path] = {}
        for path in folder.rglob("*"):
            with suppress(ValueError):  # a file that is no record
                if path.is_file():
                    # a record's path is the output's in base64, cut into names that start with "@"
                    coded = "".join(part.removeprefix("@") for part in path.relative_to(folder).parts)
                    self._files[base64.urlsafe_b64decode(coded).decode()] = path

    def outputs(self) -> list[str]:
        """Return the paths of all recorded outputs."""
        return list(self._files)

    def logs(self, output: str) -> list[str]:
        """Return the paths of the logs of the job that made an output."""
        return self._record(output).get("log") or []

    def params(self, output: str) -> list[str]:
        """Return the params of the job that made an output, each as ``repr`` writes it."""
        return self._record(output).get("params") or []

    def forget(self, outputs: Collection[str]) -> None:
        """Remove the records of some outputs."""
        for output in self._files.keys() & set(outputs):
            self._files.pop(output).unlink()

    def _record(self, output: str) -> dict:
        try:
            return json.loads(self._files[output].read_text(encoding="utf-8"))
        except (KeyError, OSError, ValueError):
            return {}


def output_test(workflow, shards_of: Callable[[str, Mapping], Collection[str]]) -> Callable[[str], bool]:
    """Return a function that tells for a path whether a rule could make this file under the present settings.
    ``shards_of`` returns the present shards for a path and the wildcards of its rule."""
    with _guard_internals("results of earlier settings are not found"):
        outputs = [(output.constant_prefix(), output) for rule in workflow.rules for output in rule.output]

        def can_make(path: str) -> bool:
            matches = (output.match(path) for prefix, output in outputs if path.startswith(prefix))
            wildcards = (match.groupdict() for match in matches if match)
            return any("shard" not in values or values["shard"] in shards_of(path, values) for values in wildcards)

        return can_make
    return lambda path: True


def register_serial_groups(workflow) -> None:
    """Make a group of jobs ask SLURM for the memory and cores of its largest job and for the time of all its jobs.

    The executor runs a group's jobs one after the other, but would add up their memory and cores. The resource
    ``serial`` prevents this: each job takes 1, from the profile, and the limit here is 1. The limit is not in the
    profile because a job on a node does not see the profile's limits.
    """
    with _guard_internals("groups of jobs ask SLURM for more than they need"):
        workflow.register_resource("serial", 1)


def use_all_cores(workflow) -> None:
    """Let a run on this machine use all cores if neither --cores nor --jobs is given.

    `cores: all` in a profile would do harm on a cluster. It would limit the threads of jobs to the number of cores of
    the login node, and it would override --jobs.
    """
    with _guard_internals("snakemake without --cores stops, so add --cores all"):
        from snakemake.cli import parse_cores  # imported here, because only a workflow needs it

        if workflow.resource_settings.cores is None and workflow.resource_settings.nodes is None:
            workflow.resource_settings.cores = workflow.global_resources["_cores"] = parse_cores("all")


def refuse_missing_conda(workflow) -> None:
    """Raise UserError if the run makes environments with conda but conda is not installed.
    Snakemake's error does not say what to do."""
    with _guard_internals("a missing conda is reported in Snakemake's own words"):
        from snakemake.settings.types import DeploymentMethod  # imported here, because only a workflow needs it

        settings = workflow.deployment_settings
        needs_conda = DeploymentMethod.CONDA in settings.deployment_method and not settings.conda_base_path
        if workflow.is_main_process and needs_conda and not shutil.which("conda"):
            raise UserError(
                "there is no conda on PATH, but `sdm: conda` needs it for the stages' environments, even in a dry run: "
                "add conda's folder bin to PATH, or add --sdm env-modules to use the packages of this environment"
            )


def submits_to_slurm(workflow) -> bool:
    """Return whether the run sends its jobs to SLURM."""
    with _guard_internals("it is not known whether the run submits to SLURM, so it is assumed to"):
        return workflow.executor_plugin.name == "slurm"
    return True


def default_resources(workflow) -> Mapping:
    """Return the default resources of jobs from a profile or the command line (--default-resources)."""
    with _guard_internals("a training's request to SLURM replaces slurm_extra of the profile"):
        return workflow.resource_settings.default_resources or {}
    return {}


def is_touch_run(workflow) -> bool:
    """Return whether the run only marks files as up to date (--touch)."""
    with _guard_internals("--touch is not detected"):
        return bool(workflow.touch)
    return False


def planned_jobs(dag, changed: Collection[str] = ()) -> list[Planned]:
    """Return the planned jobs in the order of the rules in the workflow, or [] if they cannot be read.
    ``changed``: outputs given to :func:`force_outputs`. Their jobs do not count as forced by the user."""
    with _guard_internals("the planned jobs are not checked before the run"):
        planned = [
            Planned(
                job.rule.name,
                Path(job.rule.snakefile).parent.name,
                {name: str(path) for name, path in job.input.items() if isinstance(path, str)},
                [str(path) for path in job.output],
                dict(job.wildcards_dict),
                int(job.resources.get("gpu", 0)),
                bool(dag.reason(job).forced) and not {str(path) for path in job.output} & set(changed),
            )
            for job in dag.needrun_jobs()
        ]
        order = {rule.name: place for place, rule in enumerate(dag.workflow.rules)}
        return sorted(planned, key=lambda job: (order[job.rule], job.output))
    return []


def print_message(text: str) -> None:
    """Print a text through Snakemake's logger."""
    with _guard_internals("the plan of the run is not printed, nor what has changed"):
        from snakemake.logging import logger

        logger.info(text)


def when_planned(workflow, action: Callable[[], None], target: str, unknown: Callable[[str], str]) -> None:
    """Call ``action`` once the jobs are known, if ``target`` is requested or Snakemake will not run ``onstart``.

    Snakemake runs ``onstart`` neither in dry runs nor for a workflow that another workflow uses as a module. With
    --no-hooks, ``action`` is not called. If no rule makes a requested file, end with the sentence that
    ``unknown(path)`` returns, unless the sentence is empty.
    """
    with _guard_internals("a dry run does not refuse what the run would refuse"):
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
            execution = workflow.execution_settings  # None with --report, which runs nothing
            if execution and not execution.no_hooks and (is_dry_run or is_module or target in targets):
                action()

        workflow._build_dag = build_and_act


def force_outputs(dag, outputs: Collection[str]) -> None:
    """Make Snakemake rerun the jobs of ``outputs`` that the targets need. Call this before the planning."""
    with _guard_internals("changed reports and images are not noticed"):
        dag.forcefiles.update(outputs)


def needed_outputs(dag) -> set[str]:
    """Return the outputs of all jobs that the targets need, whether they run or not."""
    with _guard_internals("changed reports and images are not named"):
        return {str(path) for job in dag.jobs for path in job.output}
    return set()


def is_dry_run(workflow) -> bool:
    """Return whether the run only shows its jobs (--dry-run)."""
    with _guard_internals("a dry run is not detected"):
        return bool(workflow.dryrun)
    return False


def requested_targets(workflow) -> set[str]:
    """Return the names of the requested targets, an empty set if none is named."""
    with _guard_internals("the targets plan and clean_old do nothing"):
        return set(workflow.dag_settings.targets)
    return set()


def run_target_first(workflow, target: str) -> None:
    """Run ``target`` alone with the options of this run, then restart this run in place of this process.

    Both runs start in the folder where this run was started, because its arguments may be relative paths. If the target
    fails, end with its status. Raises UserError if Snakemake was not started from its command line.
    """
    if Path(sys.argv[0]).name not in ("snakemake", "__main__.py"):
        raise UserError(f"run `snakemake {target}` with the same options first, then repeat this run")
    command = [*snakemake_command(sys.argv, sys.executable), *sys.argv[1:]]
    environment = os.environ | {TARGET_DONE: target}
    status = subprocess.run(command, cwd=workflow.rundir, env=environment | {ONLY_TARGET: target}).returncode
    if status:
        sys.exit(status)
    os.chdir(workflow.rundir)
    os.execvpe(command[0], command, environment)


def take_only_target(workflow) -> None:
    """In a run that :func:`run_target_first` has started, replace all targets by the target that it has named.

    This run ends when the process that started it ends. If the target cannot be set, exit, because the run would make
    all targets.
    """
    target = os.environ.pop(ONLY_TARGET, "")
    if not target:
        return
    end_with_runner()
    with _guard_internals(f"{target} cannot be made alone"):
        prepare = workflow._prepare_dag

        def prepare_dag(*arguments, **options) -> None:
            workflow.dag_settings.targets = frozenset({target})
            prepare(*arguments, **options)

        workflow._prepare_dag = prepare_dag
        return
    sys.exit(1)


def show_full_dry_runs(workflow) -> None:
    """Make a dry run show the inputs, the outputs and the reason of each job instead of the rule's message."""
    with _guard_internals("a dry run shows only the messages of jobs"):
        if workflow.output_settings.dryrun:
            for rule in workflow.rules:
                rule.message = None


def name_local_rules(workflow) -> None:
    """Make a dry run for a cluster print the rules that do not run there. Snakemake prints them only in a real run."""
    with _guard_internals("jobs that run where Snakemake was started are taken for jobs of the cluster"):
        from snakemake.logging import logger

        if workflow.output_settings.dryrun and default_resources(workflow).keys() - {"tmpdir"}:
            logger.info(LOCAL_RULES + ", ".join(sorted(workflow._localrules)))
