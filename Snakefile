# cxr-ils: from chest X-rays and their reports to an instruction-guided lesion segmentation dataset.
#
# results/<stage>/…     one folder a stage, one file a shard, excluded.parquet = what stopped there and why
# results/dataset/…     the instruction-answer pairs (JSONL)
# results/tables, results/figures, results/benchmarks; logs/<stage>/…
#
# Every stage is a target: `snakemake reports`, `snakemake masks`, … Bare `snakemake` builds the dataset, its tables
# its figures and its page, results/index.html. Settings: config.yaml, overridden with `--configfile mine.yaml`.
from pathlib import Path

from snakemake.utils import min_version

min_version("9.27")


configfile: Path(workflow.basedir) / "config.yaml"


report: "report/workflow.rst"


resource_scopes:
    serial="local",


include: "rules/common.smk"


if SETTINGS.compute.container:

    # the environments of envs/ lie in the image: used with --sdm conda apptainer, else without effect
    containerized: SETTINGS.compute.container


include: "rules/phantom.smk"
include: "rules/cohort.smk"
include: "rules/frames.smk"
include: "rules/reports.smk"
include: "rules/reports_models.smk"
include: "rules/weights.smk"
include: "rules/weights_rosalia.smk"
include: "rules/organs.smk"
include: "rules/anomaly.smk"
include: "rules/anatomy.smk"
include: "rules/boxes.smk"
include: "rules/masks.smk"
include: "rules/ablation.smk"
include: "rules/dataset.smk"
include: "rules/tables.smk"
include: "rules/figures.smk"
include: "rules/page.smk"
include: "rules/explain.smk"
include: "rules/agreement.smk"
include: "rules/paraphrase.smk"
include: "rules/training.smk"
include: "rules/inference.smk"
include: "rules/evaluation.smk"
include: "rules/evaluation_paraphrases.smk"
include: "rules/review.smk"
include: "rules/release.smk"


onstart:
    try:
        refuse_unwritable(Path.cwd())
        refuse_orphans(Path.cwd(), submits=workflow.executor_plugin.name == "slurm")
        if SETTINGS.cohort.source != "embedded" and not workflow.touch:
            refuse_blind_rerun(workflow.dag)
        if not workflow.touch:
            refuse_empty_splits(workflow.dag)
    except UserError as error:
        sys.exit(f"cxr-ils: {error}")


# Seen at the end, whatever scrolled by: a hospital's reports that could not be read.
onsuccess:
    if told := last_words(Path("results/reports/reading.tsv")):
        print(f"cxr-ils: {told}", file=sys.stderr)


onerror:
    if told := last_words(Path("results/reports/reading.tsv")):
        print(f"cxr-ils: {told}", file=sys.stderr)


rule all:
    default_target: True
    input:
        rules.dataset.output,
        rules.tables.input,
        rules.figures.input,
        rules.page.input,
        rules.weights.output if WEIGHTS_NEEDED else [],


keep_digests()
