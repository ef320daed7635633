# cxr-ils: from chest X-rays and their reports to an instruction-guided lesion segmentation dataset.
#
# results/<stage>/…     one folder per stage with one file per shard, and excluded.parquet with excluded images
# results/dataset/…     the instruction-answer pairs (JSONL)
# results/tables, results/figures, results/benchmarks; logs/<stage>/…
#
# Every stage is a target: `snakemake reports`, `snakemake masks`, … Without a target, Snakemake makes the dataset, its
# tables, figures and page (results/index.html). Settings: `--configfile mine.yaml`. config.yaml shows common ones.
from pathlib import Path

from snakemake.common.configfile import load_configfile
from snakemake.utils import min_version, update_config

min_version("9.27")


DEFAULTS = Path(workflow.current_basedir.get_path_or_uri(secret_free=True)) / "config.yaml"


configfile: DEFAULTS


# If another workflow uses this one as a module, Snakemake ignores configfile and passes on the other workflow's config.
if workflow.modifier.skip_configfile:
    settings = config
    config = load_configfile(DEFAULTS)
    update_config(config, settings)


report: "report/workflow.rst"


resource_scopes:
    serial="local",


include: "rules/common.smk"


if PLAN.settings.compute.container:

    # the image contains the environments of envs/ and is used only with --sdm conda apptainer
    containerized: PLAN.settings.compute.container


# Images, for all systems
include: "rules/imaging/phantom.smk"
include: "rules/imaging/cohort.smk"
include: "rules/imaging/frames.smk"
include: "rules/imaging/weights.smk"
include: "rules/imaging/weights_semisyn.smk"
include: "rules/imaging/weights_radvlm.smk"
include: "rules/imaging/weights_rosalia.smk"
include: "rules/imaging/organs.smk"
include: "rules/imaging/anomaly.smk"
include: "rules/imaging/anatomy.smk"
include: "rules/imaging/boxes.smk"
# Reports
include: "rules/language/reports.smk"
include: "rules/language/reports_models.smk"
# ILS: lesion masks, instruction-answer pairs, training and evaluation of ROSALIA
include: "rules/ils/masks.smk"
include: "rules/ils/dataset.smk"
include: "rules/ils/paraphrase.smk"
include: "rules/ils/training.smk"
include: "rules/ils/inference.smk"
include: "rules/ils/evaluation.smk"
# SemiSynCXR: findings put into healthy X-rays
include: "rules/semisyn/healthy.smk"
include: "rules/semisyn/prompts.smk"
include: "rules/semisyn/priors.smk"
include: "rules/semisyn/placement.smk"
include: "rules/semisyn/editing.smk"
include: "rules/semisyn/realism.smk"
include: "rules/semisyn/realism_features.smk"
include: "rules/semisyn/selection.smk"
include: "rules/semisyn/dataset.smk"
include: "rules/semisyn/dataset_exports.smk"
include: "rules/semisyn/detectors.smk"
include: "rules/semisyn/detection.smk"
include: "rules/semisyn/readers.smk"
# MedGround: referring queries about masks, verified
include: "rules/medground/sources.smk"
include: "rules/medground/regions.smk"
include: "rules/medground/queries.smk"
include: "rules/medground/verification.smk"
include: "rules/medground/dataset.smk"
# RadVLM: instructions from many datasets, and an assistant tuned on them
include: "rules/radvlm/sources.smk"
include: "rules/radvlm/sources_external.smk"
include: "rules/radvlm/filtered.smk"
include: "rules/radvlm/conversations.smk"
include: "rules/radvlm/instructions.smk"
# Vision-language models: tuning on the samples of a system, answers and scores
include: "rules/vlm/tuning.smk"
include: "rules/vlm/answers.smk"
include: "rules/medground/scoring.smk"
include: "rules/radvlm/evaluation.smk"
include: "rules/radvlm/evaluation_judge.smk"
include: "rules/radvlm/evaluation_segmenter.smk"
include: "rules/radvlm/evaluation_image.smk"
include: "rules/radvlm/evaluation_figures.smk"
# Excluded images of each stage
include: "rules/exclusions.smk"
# Tables, figures, the page, comparisons, review and release
include: "rules/reporting/ablation.smk"
include: "rules/reporting/tables.smk"
include: "rules/reporting/figures.smk"
include: "rules/reporting/page.smk"
include: "rules/reporting/page_radvlm.smk"
include: "rules/reporting/privacy.smk"
include: "rules/reporting/explain.smk"
include: "rules/reporting/agreement.smk"
include: "rules/reporting/review.smk"
include: "rules/reporting/review_queries.smk"
include: "rules/reporting/release.smk"
include: "rules/reporting/release_mixes.smk"
include: "rules/reporting/plan.smk"
include: "rules/reporting/clean_old.smk"


onstart:
    start_run(PLAN, workflow)


# The end of a run prints the unreadable reports, the findings that lack images, and the results of earlier settings.
onsuccess:
    print_summary(Path("results/reports/reading.tsv"))
    print_shortfalls(Path("results/semisyn/dataset/conservation.tsv"))
    OldFiles(workflow, PLAN.shards_of).announce()


onerror:
    print_summary(Path("results/reports/reading.tsv"))


rule all:
    default_target: True
    input:
        rules.dataset.input,
        rules.tables.input,
        rules.figures.input,
        rules.page.input,
        rules.privacy.input,
        rules.weights.output if PLAN.weights.needed or PLAN.weights.models else [],


store_records_in_results()
keep_fresh(workflow, PLAN)
when_planned(workflow, partial(start_run, PLAN, workflow), "plan", partial(describe_unknown_name, PLAN))
show_full_dry_runs(workflow)
name_local_rules(workflow)
save_digests()
