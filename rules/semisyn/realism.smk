# Realism: what organs, boxes and measures say of the edited images of a configuration.


use rule organs_shard as semisyn_realism_organs with:
    input:
        **PLAN.engine_files["organs"],
        frames="results/semisyn/editing/{engine}/{config}/{shard}.h5",
    output:
        output="results/semisyn/realism/{config}/{engine}/{shard}.organs.h5",
        excluded="results/semisyn/realism/{config}/{engine}/{shard}.organs.excluded.parquet",
    log:
        "logs/semisyn/realism/{config}/{engine}/{shard}.organs.log",
    benchmark:
        "results/benchmarks/semisyn/realism/{config}/{engine}/{shard}.organs.tsv"
    group:
        PLAN.groups["semisyn_realism_organs"]
    resources:
        gpu=PLAN.gpus["organs"],
        mem_mb=megabytes(4000),
        runtime=minutes(10),
    message:
        "Organs of the edited images of shard {wildcards.shard}, configuration {wildcards.config}"


use rule boxes_shard as semisyn_realism_boxes with:
    input:
        **PLAN.engine_files["boxes"],
        frames="results/semisyn/editing/{engine}/{config}/{shard}.h5",
    output:
        output="results/semisyn/realism/{config}/{engine}/{shard}.boxes.parquet",
        excluded="results/semisyn/realism/{config}/{engine}/{shard}.boxes.excluded.parquet",
    log:
        "logs/semisyn/realism/{config}/{engine}/{shard}.boxes.log",
    benchmark:
        "results/benchmarks/semisyn/realism/{config}/{engine}/{shard}.boxes.tsv"
    group:
        PLAN.groups["semisyn_realism_boxes"]
    resources:
        gpu=PLAN.gpus["boxes"],
        mem_mb=megabytes(6000),
        runtime=minutes(40 if PLAN.gpus["boxes"] else 7),
    message:
        "Lesion boxes of the edited images of shard {wildcards.shard}, configuration {wildcards.config}"


rule semisyn_realism_measures:
    input:
        plan="results/semisyn/placement/plan.parquet",
        healthy="results/semisyn/healthy/images.parquet",
        placed=PLAN.semisyn.sources("results/semisyn/placement/{shard}.parquet"),
        frames=PLAN.semisyn.sources("results/frames/{shard}.h5"),
        organs=PLAN.semisyn.sources("results/organs/{shard}.h5"),
        source_boxes=PLAN.semisyn.sources("results/boxes/{shard}.parquet"),
        edited=lambda wildcards: PLAN.semisyn.edited(wildcards.config, wildcards.shard, ".h5"),
        asked=lambda wildcards: PLAN.semisyn.edited(wildcards.config, wildcards.shard, ".boxes.parquet"),
        edited_organs=lambda wildcards: PLAN.semisyn.found(wildcards.config, wildcards.shard, ".organs.h5"),
        edited_boxes=lambda wildcards: PLAN.semisyn.found(wildcards.config, wildcards.shard, ".boxes.parquet"),
    output:
        jobs="results/semisyn/realism/{config}/{shard}.jobs.parquet",
        boxes="results/semisyn/realism/{config}/{shard}.measures.parquet",
    log:
        "logs/semisyn/realism/{config}/{shard}.measures.log",
    benchmark:
        "results/benchmarks/semisyn/realism/{config}/{shard}.measures.tsv"
    group:
        "semisyn_realism-cpu"
    conda:
        "../../envs/semisyn_realism.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(4),
    params:
        **job("semisyn.realism.measure.run_shard"),
        options=PLAN.options["semisyn_measures"],
    message:
        "Measures of the edited images of shard {wildcards.shard}, configuration {wildcards.config}"
    script:
        "../../scripts/job.py"


rule semisyn_realism_scores:
    input:
        **PLAN.semisyn.features(),
        jobs=lambda wildcards: PLAN.semisyn.all_measured(wildcards.config, ".jobs.parquet"),
        boxes=lambda wildcards: PLAN.semisyn.all_measured(wildcards.config, ".measures.parquet"),
        asked=lambda wildcards: PLAN.semisyn.all_edited(wildcards.config, ".boxes.parquet"),
        detected=lambda wildcards: PLAN.semisyn.all_found(wildcards.config, ".boxes.parquet"),
        references=PLAN.semisyn.realism.references(),
    output:
        table="results/semisyn/realism/{config}/jobs.parquet",
        output=report(
            "results/semisyn/realism/{config}/scores.tsv",
            caption="../../report/semisyn_realism.rst",
            category="9 SemiSynCXR",
            subcategory="realism",
            labels={"result": "scores of the edited images, {config}"},
        ),
        replicates="results/semisyn/realism/{config}/replicates.parquet",
    log:
        "logs/semisyn/realism/{config}/scores.log",
    benchmark:
        "results/benchmarks/semisyn/realism/{config}/scores.tsv"
    conda:
        "../../envs/semisyn_realism.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(8000),
        runtime=minutes(60),
    params:
        **job("semisyn.realism.score.run"),
        options=PLAN.options["semisyn_realism"],
        config=lambda wildcards: wildcards.config,
        painted=lambda wildcards: "lite" in PLAN.semisyn.engines(wildcards.config),
        extractors=PLAN.semisyn.realism.metrics,
    message:
        "Scores of the edited images, configuration {wildcards.config}"
    script:
        "../../scripts/job.py"


rule semisyn_realism:
    input:
        expand(rules.semisyn_realism_scores.output, config="chosen"),
