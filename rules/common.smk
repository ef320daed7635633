# Settings, names and wildcards that every rule file uses. A wrong setting stops here, before any job.
import re
import sys
from functools import partial
from types import SimpleNamespace

sys.path.insert(0, str(Path(workflow.basedir) / "scripts"))

from ils.cohort.check import check_inputs, check_lists, source_files
from ils.core.cluster import growing, refuse_orphans, tell_of_locks, tell_why_groups_fail, warned
from ils.core.declarations import declared, engine_inputs, engine_sources
from ils.core.labels import SPLITS, STAGES
from ils.core.options import ASKED, ENGINE_STAGES, asked, check_files, data, evaluated, references, runs, sheets
from ils.core.options import stage_options, starts, wordings_of
from ils.core.planned import present, refuse_blind_rerun, refuse_empty_splits, shown
from ils.core.provenance import code_digest
from ils.core.provenance import keep as keep_digests
from ils.core.provenance import remember as remember_digests
from ils.core.published import environments
from ils.core.run import UserError, existing_file
from ils.core.seeds import shard_names
from ils.core.settings import SettingsError, read
from ils.core.writable import refuse_unwritable
from ils.explain.asked import asked as asked_study
from ils.reports.told import last_words
from ils.weights.catalogue import check_placed, needed, placed, rule_params

# Digests of code are kept beside Snakemake's own records: every job of a cluster parses the workflow.
remember_digests(Path(".snakemake") / "cxr-ils-digests.json")

try:
    refuse_unwritable(Path.cwd(), (".snakemake",))
    given = {key: value for key, value in config.items() if key not in ASKED}
    SETTINGS = read(given, workflow.config_settings.configfiles)
    # Each stage's own settings as plain builtins. A rule takes its stage's as params and no other's, so a change
    # re-runs that stage and what follows from it.
    OPTIONS = stage_options(SETTINGS)
    # the embedded cohort's manifest is made by a job
    check = check_lists if SETTINGS.cohort.source == "embedded" else check_inputs
    check(SimpleNamespace(**OPTIONS["cohort"]))
    COHORT = source_files(SimpleNamespace(**OPTIONS["cohort"]))
    # What the chosen engines read besides their stages' inputs.
    ENGINE_FILES = {
        stage: engine_inputs(stage, OPTIONS[stage]["engine"], OPTIONS[stage].get("own")) for stage in ENGINE_STAGES
    }
    # A user's files that only rules of those engines read.
    ENGINE_SOURCES = {
        stage: engine_sources(stage, OPTIONS[stage]["engine"], OPTIONS[stage].get("own")) for stage in ENGINE_STAGES
    }
    if SETTINGS.boxes.engine == "table":
        ENGINE_FILES["boxes"] = {"table": str(existing_file("boxes.table", SETTINGS.boxes.table))}
    # The models, what each is made of, what is evaluated (they and others) and on which split, what `predict` was given.
    RUNS = runs(SETTINGS)
    TRAINED = [name for name, run in RUNS.items() if run["trained"]]
    PUBLISHED = [name for name in RUNS if name not in TRAINED]
    STARTS = starts(RUNS, ENGINE_FILES["training"], declared("ils.training", "untrained", "INPUTS", {}))
    # The published weights among all these files, and what their rules are told.
    READ = {stage: files for stage, files in ENGINE_FILES.items() if stage != "training"} | STARTS
    WEIGHTS_NEEDED = needed(READ)
    WEIGHTS = rule_params(SETTINGS.weights.sha256, SETTINGS.weights.folder)
    PLACED = placed(SETTINGS.weights.folder)
    ASKING = {Path(STARTS[name]["lisa"]).name: f"training.runs.{name}" for name in RUNS if RUNS[name]["weights"]}
    check_placed(WEIGHTS_NEEDED, SETTINGS.weights.folder, ASKING)
    EVALUATED = evaluated(SETTINGS)
    SHEETS = sheets(SETTINGS)
    SHOWN = shown(RUNS, EVALUATED, SETTINGS.inference.paraphrases)
    PREDICT = asked(config, RUNS)
    check_files(SETTINGS, PREDICT["image"])
    # What people drew, for `agreement`.
    REFERENCES = references(SETTINGS)
    # The study that `explain` was given.
    EXPLAIN = asked_study(config, Path("results"))
except (SettingsError, UserError) as error:
    sys.exit(f"cxr-ils: {error}")

# What the target of the reports makes besides its own.
BESIDES = ["results/reports/agreement.tsv"] if SETTINGS.reports.engine == "both" else []
# A net runs on one GPU; only a training over several processes knows how to use several.
GPUS = {
    stage: min(1, SETTINGS.compute.gpus) if declared(f"ils.{stage}", OPTIONS[stage]["engine"], "GPU", False) else 0
    for stage in ENGINE_STAGES
}
# What models take of the computer's memory where there is no GPU to hold them; nothing to speak of but for the large one.
MODEL_MB = {
    name: declared("ils.training", engine, "MODEL_MB", 0)
    for name, engine in [("training", OPTIONS["training"]["engine"]), *((name, RUNS[name]["engine"]) for name in RUNS)]
}
# Of a run's model, which needs one to be asked.
GPU_OF = {
    name: min(1, SETTINGS.compute.gpus) if declared("ils.training", run["engine"], "GPU", False) else 0
    for name, run in RUNS.items()
}
GPUS["training"] *= SETTINGS.compute.gpus if OPTIONS["training"]["own"]["runner"] == "deepspeed" else 1
GPUS["reports"] = SETTINGS.reports.llm.execution.gpus if SETTINGS.reports.llm.transport == "offline" else 0
# A model that is loaded in the job, not asked on a server.
LLM_HERE = SETTINGS.paraphrase.engine == "vllm" and SETTINGS.paraphrase.llm.transport == "offline"
GPUS["paraphrase"] = SETTINGS.paraphrase.llm.execution.gpus if LLM_HERE else 0

# Jobs of one SLURM job (a profile's group-components says how many shards): GPU and CPU never share one.
GROUPS = {stage: f"{stage}-{'gpu' if gpus else 'cpu'}" for stage, gpus in GPUS.items()}

# The executor runs a group's jobs one after the other, but counts them as if at once: with this limit (and `serial: 1`
# for each job, from the profile) it asks for the memory and cores of the largest and the time of all. It is set here and
# not in the profile, whose limits a job on a node does not get to see.
workflow.register_resource("serial", 1)

# Else Snakemake says of a group that SLURM refuses only that it failed.
tell_why_groups_fail()
# Else it says of a killed run's lock what its own option is called, and not how the run here is unlocked.
tell_of_locks()

# What a rule asks for grows with each try, up to what partitions allow and their nodes have.
minutes = partial(growing, most=SETTINGS.compute.max_runtime)
megabytes = partial(growing, most=SETTINGS.compute.max_memory_mb)


def wanted(files, sentence):
    """Return the input of a rule that somebody asked for; where there is none, end with a sentence before any job."""
    return files or sys.exit(f"cxr-ils: {sentence}")


OTHERS = SETTINGS.evaluation.predictions
SPLIT = SETTINGS.inference.split
# Who words what a model is asked besides the plain instructions.
PERSONAS = SETTINGS.paraphrase.personas if SETTINGS.inference.paraphrases else []

SHARDS = shard_names(OPTIONS["cohort"]["shards"])
DATA = data(SETTINGS, SHARDS)
SETS = OPTIONS["ablation"]["sets"]
BUILD = SETTINGS.thresholds.build
# The same as a function: Snakemake then lists the files of all sets and shards when a job needs them. At the parse, which
# every job of a cluster does twice, lists of some hundred files would take as long as everything else.
BUILT = lambda wildcards: BUILD
REVIEWED = SETTINGS.review.thresholds or BUILD[0]
LAYOUTS = BUILD if SETTINGS.dataset.released_layout else []
TABLES = ["splits", "funnel", "conservation", "counts", "recall"]
if SETTINGS.cohort.source == "embedded":
    TABLES.append("truth")


wildcard_constraints:
    # a number, so that results/masks/<set>/00.h5 never takes "findings" for a shard
    shard=r"\d+",
    # a declared set, so that a misspelt one is a missing rule, not a run with other thresholds
    thresholds="|".join(map(re.escape, SETS)),
