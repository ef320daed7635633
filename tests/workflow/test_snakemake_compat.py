"""Each touch of Snakemake's internals does what it is for, and where the internal is not there the run goes on."""

import ast
import base64
import json
import logging
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest
import snakemake.api  # first: it imports the other modules in the right order
import snakemake.cli
import snakemake.exceptions
import snakemake.jobs
import snakemake.logging
import snakemake.persistence.file
import snakemake.resources

from conftest import ROOT, imported
from cxr.workflow import snakemake_compat as compat

SNAKEFILE = """
import json, sys
sys.path.insert(0, {scripts!r})
from cxr.workflow import snakemake_compat as compat

before = dict(workflow.global_resources)
compat.refuse_missing_conda(workflow)
compat.use_all_cores(workflow)
compat.register_serial_groups(workflow)
serial = [str(found.get("serial")) for found in (before, workflow.global_resources)]

onstart:
    seen = [list(job)[:1] + list(job)[2:] for job in compat.planned_jobs(workflow.dag)]
    defaults = sorted(compat.default_resources(workflow))
    told = [compat.submits_to_slurm(workflow), compat.is_touch_run(workflow), defaults]
    print("seen", json.dumps([serial, told, seen]), file=sys.stderr)

rule all:
    input:
        "a/00.txt",

rule a_shard:
    input:
        source="source.txt",
    output:
        "a/{{shard}}.txt",
    message:
        "The message of {{wildcards.shard}}"
    shell:
        "cp {{input}} {{output}}"

rule gather:
    output:
        "b.txt",
    localrule: True
    shell:
        "touch {{output}}"

def act():
    jobs = sorted(job.rule for job in compat.planned_jobs(workflow.dag) if job.rule != "a_shard")
    print("acted on", *jobs, file=sys.stderr)
    if config.get("stop"):
        sys.exit("stopped")

def unknown(path):
    return "there is no set " + path.split("/")[1] if path.startswith("sets/") else ""

compat.show_full_dry_runs(workflow)
compat.name_local_rules(workflow)
compat.take_only_target(workflow)
compat.store_records_in_results()


def before(dag):
    if not sys.argv[-1].startswith("again="):
        return
    if sys.argv[-1] == "again=refused":
        raise compat.UserError("the reason")
    compat.force_outputs(dag, [sys.argv[-1].removeprefix("again=")])


def after(dag):
    print("after", json.dumps([
        sorted(compat.needed_outputs(dag)), compat.unrecorded_outputs(dag), compat.is_dry_run(workflow),
        sorted(job.rule for job in compat.planned_jobs(dag)), "gather" in compat.requested_targets(workflow),
    ]), file=sys.stderr)
    if sys.argv[-1] == "again=first" and not compat.os.environ.get(compat.TARGET_DONE):
        compat.print_message("gather comes first")
        compat.run_target_first(workflow, "gather")


compat.around_planning(workflow, before, after)
compat.when_planned(workflow, act, "gather", unknown)
"""


def run(
    folder: Path, *arguments: str, check: bool = True, more: str = "", cores: tuple[str, ...] = ("--cores", "1")
) -> subprocess.CompletedProcess:
    (folder / "Snakefile").write_text(SNAKEFILE.format(scripts=str(ROOT / "scripts")) + more)
    if not (folder / "source.txt").exists():
        (folder / "source.txt").touch()
    command = [sys.executable, "-m", "snakemake", *cores, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=check)


def planned(folder: Path, *arguments: str) -> list:
    """Return what a run sees of its plan: its outputs, those without a record, whether it is a dry run, its rules."""
    return json.loads(re.search("^after (.*)$", run(folder, *arguments).stderr, re.M)[1])


def seen(folder: Path, *arguments: str) -> list:
    """Return [[serial before and after], [submits to SLURM, touches, default resources], planned jobs] of a run."""
    return json.loads(re.search("^seen (.*)$", run(folder, *arguments).stderr, re.M)[1])


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder in which the small workflow has run."""
    folder = tmp_path_factory.mktemp("made")
    run(folder)
    return folder


def test_a_run_is_seen_before_it_starts(tmp_path):
    serial, (submits, touches, defaults), jobs = seen(tmp_path)
    assert serial == ["None", 'Resource("serial", 1)']
    assert (submits, touches) == (False, False)
    assert {"mem_mb", "disk_mb"}.isdisjoint(defaults)
    assert sorted(jobs) == [
        ["a_shard", {"source": "source.txt"}, ["a/00.txt"], {"shard": "00"}, 0, False],
        ["all", {}, [], {}, 0, False],
    ]


def test_what_the_command_line_asks_is_seen(made):
    _, (_, touches, defaults), jobs = seen(made, "--forcerun", "a_shard", "--default-resources", "slurm_extra='-x'")
    assert not touches
    assert "slurm_extra" in defaults
    assert ["a_shard", {"source": "source.txt"}, ["a/00.txt"], {"shard": "00"}, 0, True] in jobs
    assert seen(made, "--touch", "--forceall")[1][1] is True


def test_a_dry_run_tells_of_each_job_what_it_reads_and_a_run_its_message(tmp_path):
    told = run(tmp_path, "--dry-run")
    lines = (told.stdout + told.stderr).splitlines()
    assert "    input: source.txt" in lines
    assert "    output: a/00.txt" in lines
    assert "The message of 00" not in told.stdout + told.stderr
    done = run(tmp_path)
    assert "The message of 00" in done.stdout + done.stderr


def test_a_dry_run_acts_before_it_lists_jobs_and_a_run_if_the_target_is_asked_for(tmp_path):
    def acted(*arguments: str) -> list[str]:
        return re.findall(r"^acted on (.*)$", run(tmp_path, *arguments).stderr, re.M)

    assert acted("--dry-run") == ["all"]
    assert acted("gather") == ["gather"]
    assert acted("all") == []
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run(tmp_path, "--dry-run", "--forceall", "--config", "stop=1")
    assert "acted on all" in caught.value.stderr
    assert not re.search(r"^\s*(rule )?a_shard", caught.value.stdout + caught.value.stderr, re.M)  # no list of jobs


def test_a_file_that_no_rule_makes_ends_in_a_sentence_if_there_is_one(tmp_path):
    def ended(path: str) -> str:
        with pytest.raises(subprocess.CalledProcessError) as caught:
            run(tmp_path, "--dry-run", path)
        return caught.value.stdout + caught.value.stderr

    assert "cxr-ils: there is no set ab" in ended("sets/ab/x.txt")
    assert "No rule to produce other.txt" in ended("other.txt")


@pytest.mark.slow
def test_without_cores_or_jobs_a_run_takes_all_cores(tmp_path):
    def num_cores(*cores: str) -> int:
        return int(re.search(r"Provided cores: (\d+)", run(tmp_path, "--forceall", cores=cores).stderr)[1])

    assert num_cores() == snakemake.cli.available_cpu_count()
    assert num_cores("--jobs", "3") == 3
    assert num_cores("--cores", "1") == 1


def test_jobs_of_a_cluster_keep_their_threads():
    """The number of cores would limit them to those of the login node."""
    resources = snakemake.resources.Resources({})
    cluster = SimpleNamespace(resource_settings=SimpleNamespace(cores=None, nodes=100), global_resources=resources)
    compat.use_all_cores(cluster)
    assert cluster.resource_settings.cores is None
    assert "_cores" not in resources


def test_a_missing_conda_is_one_sentence_before_any_job(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/sbin:/usr/bin:/bin")
    if shutil.which("conda"):
        pytest.skip("conda is installed here for all users")
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run(tmp_path, "--sdm", "conda", "--dry-run")
    printed = caught.value.stdout + caught.value.stderr
    assert "there is no conda on PATH, but `sdm: conda` needs it" in printed
    assert "add --sdm env-modules" in printed
    run(tmp_path, "--sdm", "env-modules", "--dry-run")


def test_a_text_is_said_where_snakemake_prints(monkeypatch):
    told = []
    monkeypatch.setattr(snakemake.logging.logger, "info", told.append)
    compat.print_message("the plan")
    assert told == ["the plan"]


@pytest.mark.slow
def test_a_dry_run_for_a_cluster_names_the_rules_that_do_not_go_there(tmp_path):
    def named(*arguments: str) -> list[str]:
        done = run(tmp_path, *arguments)
        return re.findall(f"^{compat.LOCAL_RULES}(.*)$", done.stdout + done.stderr, re.M)

    assert named("--dry-run", "--default-resources", "serial=1") == ["gather"]
    assert named("--dry-run") == []
    assert named("--default-resources", "serial=1") == []


AGAIN = ("--rerun-triggers", "mtime", "params", "--config")
"""Arguments before the word that tells the small workflow what to do."""


def test_an_output_is_made_again_and_does_not_count_as_forced(made):
    assert planned(made, "-n", *AGAIN, "again=nothing") == [["a/00.txt"], [], True, [], False]
    assert planned(made, "-n", "gather")[3:] == [["gather"], True]
    assert planned(made, "-n", *AGAIN, "again=a/00.txt")[3] == ["a_shard", "all"]
    # b.txt is no part of the target: it does not become one
    assert planned(made, "-n", *AGAIN, "again=b.txt") == [["a/00.txt"], [], True, [], False]
    rule = SimpleNamespace(name="a", snakefile="rules/a.smk")
    job = SimpleNamespace(rule=rule, input={}, output=["a"], wildcards_dict={}, resources={})
    workflow = SimpleNamespace(rules=[rule])
    reason = SimpleNamespace(forced=True)
    dag = SimpleNamespace(needrun_jobs=lambda: [job], reason=lambda job: reason, workflow=workflow)
    assert [compat.planned_jobs(dag, changed)[0].forced for changed in ((), {"a"}, {"b"})] == [True, False, True]


def test_a_refusal_around_the_planning_is_one_sentence(made):
    done = run(made, "-n", *AGAIN, "again=refused", check=False)
    assert done.returncode == 1
    assert done.stderr.count("cxr-ils: the reason") == 1
    assert "Traceback" not in done.stderr
    # what plans nothing is not asked
    assert run(made, "--unlock", *AGAIN, "again=refused").returncode == 0


@pytest.mark.slow
def test_records_lie_beside_the_results_and_go_with_their_copy(tmp_path):
    run(tmp_path)
    assert list((tmp_path / compat.RECORDS).iterdir())
    assert not list((tmp_path / ".snakemake/metadata").iterdir())
    shutil.rmtree(tmp_path / ".snakemake")
    assert planned(tmp_path, "-n") == [["a/00.txt"], [], True, [], False]
    shutil.rmtree(tmp_path / compat.RECORDS)
    assert planned(tmp_path, "-n") == [["a/00.txt"], ["a/00.txt"], True, [], False]
    run(tmp_path, "--touch", "--forceall")
    assert planned(tmp_path, "-n")[1] == []


def test_a_job_on_a_cluster_records_its_output_itself(tmp_path):
    job = ("--target-jobs", "a_shard:shard=00", "--allowed-rules", "a_shard")
    run(tmp_path, "--mode", "remote", "--executor", "local", "--nolock", "--force", *job)
    assert (tmp_path / "a/00.txt").exists()
    assert compat.Records(tmp_path / compat.RECORDS).outputs() == ["a/00.txt"]
    assert planned(tmp_path, "-n") == [["a/00.txt"], [], True, [], False]


def test_records_tell_of_each_output(made, tmp_path):
    long = "results/" + "x" * 250 + "/a.txt"
    records = compat.Records(made / compat.RECORDS)
    assert records.outputs() == ["a/00.txt"]
    assert (records.logs("a/00.txt"), records.params("a/00.txt"), records.logs("none")) == ([], [], [])
    folder = Path(shutil.copytree(made / compat.RECORDS, tmp_path / "records"))
    (coded,) = folder.iterdir()
    # as Snakemake cuts a name that is too long for the file system
    name = base64.urlsafe_b64encode(long.encode()).decode()
    (folder / f"@{name[:254]}").mkdir()
    (folder / f"@{name[:254]}" / name[254:]).write_text('{"log": ["logs/a.log"], "params": ["1"]}')
    (folder / "no record").touch()
    coded.write_text("{")
    records = compat.Records(folder)
    assert sorted(records.outputs()) == ["a/00.txt", long]
    assert (records.logs(long), records.params(long), records.logs("a/00.txt")) == (["logs/a.log"], ["1"], [])
    records.forget([long, "none"])
    assert compat.Records(folder).outputs() == ["a/00.txt"]


def test_what_a_rule_could_make_is_known_by_its_pattern_and_the_shards(tmp_path):
    shards = 'lambda path, wildcards: ["00", "01"] if path[2:4] == wildcards["shard"] else []'
    code = f'can = compat.output_test(workflow, {shards})\nprint("can", list(map(can, PATHS)), file=sys.stderr)'
    paths = ["a/00.txt", "a/01.txt", "a/02.txt", "a/00.tsv", "b.txt", "c.txt"]
    done = run(tmp_path, "-n", more=f"PATHS = {paths}\n{code}\n")
    assert "can [True, True, False, False, True, False]" in done.stderr


@pytest.mark.slow
def test_a_target_is_made_first_and_then_the_run_starts_anew(tmp_path):
    done = run(tmp_path, *AGAIN, "again=first")
    assert done.returncode == 0
    rules = [json.loads(line)[3] for line in re.findall("^after (.*)$", done.stderr, re.M)]
    assert rules == [["a_shard", "all"], ["gather"], ["a_shard", "all"]]
    assert done.stderr.count("gather comes first") == 1
    assert (tmp_path / "a/00.txt").exists()
    assert (tmp_path / "b.txt").exists()


def test_a_run_that_cannot_make_one_target_alone_ends(monkeypatch, caplog):
    compat.take_only_target(object())  # no such order
    monkeypatch.setenv(compat.ONLY_TARGET, "cohort")
    with pytest.raises(SystemExit):
        compat.take_only_target(object())
    assert "cohort cannot be made alone" in caplog.text


def test_a_run_of_another_program_is_not_started_anew(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/usr/bin/pipeline", "all"])
    with pytest.raises(compat.UserError, match="run `snakemake cohort` with the same options first"):
        compat.run_target_first(SimpleNamespace(rundir="."), "cohort")


def test_a_run_that_is_started_by_another_does_not_take_it_for_a_rival(tmp_path):
    child = "from cxr.workflow.folder import running_snakemakes; print(running_snakemakes('.'))"
    parent = f"import subprocess, sys; print(subprocess.check_output([sys.executable, '-c', {child!r}], text=True))"
    done = subprocess.run([sys.executable, "-c", parent, "snakemake"], cwd=tmp_path, capture_output=True, text=True,
                          check=True, env=os.environ | {"PYTHONPATH": str(ROOT / "scripts")})  # fmt: skip
    assert done.stdout.strip() == "[]"


def test_the_slurm_executor_is_known():
    for name in ("slurm", "local"):
        workflow = SimpleNamespace(executor_plugin=SimpleNamespace(name=name))
        assert compat.submits_to_slurm(workflow) is (name == "slurm")


def test_a_group_that_fails_says_why_once(monkeypatch):
    told, passed = [], []
    monkeypatch.setattr(snakemake.logging.logger, "error", told.append)
    monkeypatch.setattr(
        snakemake.jobs.GroupJob, "log_error", lambda self, msg=None, *rest, **named: passed.append((msg, named))
    )
    compat.print_group_errors()
    compat.print_group_errors()  # a Snakefile that is read twice
    group = object.__new__(snakemake.jobs.GroupJob)
    group.groupid = "masks"
    group.log_error("no such partition", aux_logs=["a.log"])
    group.log_error()
    assert told == ["Group masks: no such partition"]
    assert passed == [("no such partition", {"aux_logs": ["a.log"]}), (None, {})]


def test_a_group_knows_its_name_and_takes_a_message():
    """What the touch relies on, in the installed Snakemake."""
    code = snakemake.jobs.GroupJob.log_error.__code__
    assert code.co_varnames[:2] == ("self", "msg")
    assert "groupid" in snakemake.jobs.GroupJob.__init__.__code__.co_names


def test_a_locked_folder_is_told_in_our_words(monkeypatch):
    monkeypatch.setattr(snakemake.exceptions.LockException, "__init__", snakemake.exceptions.LockException.__init__)
    monkeypatch.setattr(compat, "describe_lock", lambda folder, words, python: f"locked: {folder}, {words}, {python}")
    compat.explain_locks()
    sentence = f"locked: {Path.cwd()}, {sys.argv}, {sys.executable}"
    assert str(snakemake.exceptions.LockException()) == sentence


LOST = [
    (lambda: compat.use_all_cores(object()), None, "so add --cores all"),
    (lambda: compat.refuse_missing_conda(object()), None, "is reported in Snakemake's own words"),
    (lambda: compat.register_serial_groups(object()), None, "groups of jobs ask SLURM for more than they need"),
    (lambda: compat.submits_to_slurm(object()), True, "so it is assumed to"),
    (lambda: compat.default_resources(object()), {}, "replaces slurm_extra of the profile"),
    (lambda: compat.is_touch_run(object()), False, "--touch is not detected"),
    (lambda: compat.planned_jobs(object()), [], "not checked before the run"),
    (lambda: compat.show_full_dry_runs(object()), None, "a dry run shows only the messages of jobs"),
    (lambda: compat.name_local_rules(object()), None, "are taken for jobs of the cluster"),
    (lambda: compat.when_planned(object(), print, "plan", str), None, "does not refuse what the run would refuse"),
    (lambda: compat.around_planning(object(), None, None), None, "nor results without records"),
    (lambda: compat.unrecorded_outputs(object()), [], "results without records are not noticed"),
    (lambda: compat.force_outputs(object(), []), None, "changed reports and images are not noticed"),
    (lambda: compat.needed_outputs(object()), set(), "changed reports and images are not named"),
    (lambda: compat.is_dry_run(object()), False, "a dry run is not detected"),
    (lambda: compat.requested_targets(object()), set(), "the targets plan and clean_old do nothing"),
    (lambda: compat.output_test(object(), None)("a"), True, "results of earlier settings are not found"),
]


@pytest.mark.parametrize(("touch", "answer", "lost"), LOST, ids=[lost for *_, lost in LOST])
def test_without_the_internal_a_line_says_what_is_lost_and_the_run_goes_on(caplog, touch, answer, lost):
    with caplog.at_level(logging.WARNING, "cxr"):
        assert touch() == answer
    (line,) = caplog.messages
    assert line.startswith("unsupported Snakemake internals (")
    assert line.endswith(lost)


@pytest.mark.parametrize(
    ("module", "name", "touch", "lost"),
    [
        (snakemake.jobs, "GroupJob", compat.print_group_errors, "why a group of jobs failed is not printed"),
        (snakemake.exceptions, "LockException", compat.explain_locks, "is reported in Snakemake's own words"),
        (snakemake.logging, "logger", lambda: compat.print_message("the plan"), "the plan of the run is not printed"),
        (snakemake.persistence.file, "FilePersistence", compat.store_records_in_results, "records stay in .snakemake"),
    ],
    ids=["GroupJob", "LockException", "logger", "FilePersistence"],
)
def test_without_a_class_of_snakemake_a_line_says_what_is_lost(monkeypatch, caplog, module, name, touch, lost):
    monkeypatch.delattr(module, name)
    with caplog.at_level(logging.WARNING, "cxr"):
        touch()
    (line,) = caplog.messages
    assert line.startswith("unsupported Snakemake internals (")
    assert lost in line


def test_a_touch_that_fails_for_another_reason_is_not_hidden():
    class Broken:
        def needrun_jobs(self):
            raise OSError("the disk")

    with pytest.raises(OSError, match="the disk"):
        compat.planned_jobs(Broken())


def test_every_touch_is_tried_here():
    named = {name for name, value in vars(compat).items() if callable(value) and value.__module__ == compat.__name__}
    touches = {name for name in named if not name.startswith("_")} - {"Planned"}
    source = Path(__file__).read_text(encoding="utf-8")
    assert {name for name in touches if source.count(f"compat.{name}") < 2} == set()
    assert len(touches) == 24


def test_no_other_module_imports_snakemake():
    """But the check of a cluster, no part of a run: it reads a command line as Snakemake does."""
    importing = {
        path.relative_to(ROOT / "scripts").as_posix()
        for path in (ROOT / "scripts").rglob("*.py")
        if any(
            name.partition(".")[0] == "snakemake"
            for name in imported(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        )
    }
    assert importing == {"cxr/workflow/snakemake_compat.py", "cxr/workflow/slurm/devices.py"}


def test_the_version_that_was_tried_is_the_only_one_installed():
    (bound,) = re.findall(r"^snakemake([=<].*)$", (ROOT / "requirements/run.in").read_text(), re.M)
    assert bound == f"=={version('snakemake')}"
    assert f"tested with version {version('snakemake')} " in compat.__doc__
