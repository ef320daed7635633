# Realism: organs, boxes, measures and scores of the images that were edited with a configuration.


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
        placed=expand("results/semisyn/placement/{shard}.parquet", shard=PLAN.semisyn.source_shards),
        frames=expand("results/frames/{shard}.h5", shard=PLAN.semisyn.source_shards),
        organs=expand("results/organs/{shard}.h5", shard=PLAN.semisyn.source_shards),
        source_boxes=expand("results/boxes/{shard}.parquet", shard=PLAN.semisyn.source_shards),
        edited=lambda wildcards: expand(
            "results/semisyn/editing/{engine}/{config}/{shard}.h5",
            engine=PLAN.semisyn.editing.engines_of(wildcards.config),
            **wildcards,
        ),
        requested_boxes=lambda wildcards: expand(
            "results/semisyn/editing/{engine}/{config}/{shard}.boxes.parquet",
            engine=PLAN.semisyn.editing.engines_of(wildcards.config),
            **wildcards,
        ),
        edited_organs=lambda wildcards: expand(
            "results/semisyn/realism/{config}/{engine}/{shard}.organs.h5",
            engine=PLAN.semisyn.editing.engines_of(wildcards.config),
            **wildcards,
        ),
        edited_boxes=lambda wildcards: expand(
            "results/semisyn/realism/{config}/{engine}/{shard}.boxes.parquet",
            engine=PLAN.semisyn.editing.engines_of(wildcards.config),
            **wildcards,
        ),
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
        **{f"edited_{engine}": partial(PLAN.semisyn.edited_features, engine) for engine in PLAN.semisyn.realism.metrics},
        **PLAN.semisyn.realism.real,
        jobs=lambda wildcards: expand(
            "results/semisyn/realism/{config}/{shard}.jobs.parquet",
            shard=PLAN.semisyn.shards_of(wildcards.config),
            **wildcards,
        ),
        boxes=lambda wildcards: expand(
            "results/semisyn/realism/{config}/{shard}.measures.parquet",
            shard=PLAN.semisyn.shards_of(wildcards.config),
            **wildcards,
        ),
        requested_boxes=lambda wildcards: expand(
            "results/semisyn/editing/{engine}/{config}/{shard}.boxes.parquet",
            shard=PLAN.semisyn.shards_of(wildcards.config),
            engine=PLAN.semisyn.editing.engines_of(wildcards.config),
            **wildcards,
        ),
        detected=lambda wildcards: expand(
            "results/semisyn/realism/{config}/{engine}/{shard}.boxes.parquet",
            shard=PLAN.semisyn.shards_of(wildcards.config),
            engine=PLAN.semisyn.editing.engines_of(wildcards.config),
            **wildcards,
        ),
        references=expand(
            "results/semisyn/realism/{shard}.reference.parquet",
            shard=PLAN.shards if PLAN.semisyn.references["realism"] else [],
        ),
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
        painted=lambda wildcards: "lite" in PLAN.semisyn.editing.engines_of(wildcards.config),
        extractors=PLAN.semisyn.realism.metrics,
    message:
        "Scores of the edited images, configuration {wildcards.config}"
    script:
        "../../scripts/job.py"


rule semisyn_realism:
    input:
        expand(rules.semisyn_realism_scores.output, config="chosen"),
