# Realism: experts' boxes of a reference, and features of edited and real images, with two rules per feature engine.


rule semisyn_realism_reference:
    input:
        annotations=lambda wildcards: wanted(
            PLAN.semisyn.references["realism"],
            "semisyn.realism.reference is empty, so there are no real images: name one of semisyn.references",
        ),
        images="results/cohort/images.parquet",
        frames="results/frames/{shard}.h5",
        organs="results/organs/{shard}.h5",
    output:
        output="results/semisyn/realism/{shard}.reference.parquet",
    log:
        "logs/semisyn/realism/{shard}.reference.log",
    benchmark:
        "results/benchmarks/semisyn/realism/{shard}.reference.tsv"
    group:
        "semisyn_reference"
    conda:
        "../../envs/semisyn_realism.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(7),
    params:
        **job("semisyn.realism.measure.run_reference", *PLAN.semisyn.formats["realism"]),
        options=PLAN.options["semisyn_realism_reference"],
    message:
        "Real boxes of the findings on the images of shard {wildcards.shard}"
    script:
        "../../scripts/job.py"


for engine in PLAN.semisyn.realism.files:

    rule:
        name:
            f"semisyn_realism_features_{engine}"
        input:
            **PLAN.semisyn.realism.files[engine],
            plan="results/semisyn/placement/plan.parquet",
            edited=lambda wildcards: expand(
                "results/semisyn/editing/{engine}/{config}/{shard}.h5",
                engine=PLAN.semisyn.editing.engines_of(wildcards.config),
                **wildcards,
            ),
        output:
            output=f"results/semisyn/realism/{{config}}/{{shard}}.{engine}.features.h5",
        log:
            f"logs/semisyn/realism/{{config}}/{{shard}}.{engine}.features.log",
        benchmark:
            f"results/benchmarks/semisyn/realism/{{config}}/{{shard}}.{engine}.features.tsv"
        conda:
            f"../../envs/semisyn_realism-{engine}.yaml"
        threads: 1
        resources:
            gpu=PLAN.semisyn.realism.gpus[engine],
            mem_mb=megabytes(4000),
            runtime=minutes(240),
        params:
            **job("semisyn.realism.engine.run_shard", f"semisyn.realism.{engine}"),
            options={"extractor": engine, "engine_settings": PLAN.semisyn.realism.engine_settings[engine]},
        message:
            "Features of the edited images of shard {wildcards.shard}, configuration {wildcards.config}"
        script:
            "../../scripts/job.py"

    rule:
        name:
            f"semisyn_realism_real_{engine}"
        input:
            **PLAN.semisyn.realism.files[engine],
            frames="results/frames/{shard}.h5",
            boxes="results/semisyn/realism/{shard}.reference.parquet",
        output:
            output=f"results/semisyn/realism/{{shard}}.{engine}.features.h5",
        log:
            f"logs/semisyn/realism/{{shard}}.{engine}.features.log",
        benchmark:
            f"results/benchmarks/semisyn/realism/{{shard}}.{engine}.features.tsv"
        conda:
            f"../../envs/semisyn_realism-{engine}.yaml"
        threads: 1
        resources:
            gpu=PLAN.semisyn.realism.gpus[engine],
            mem_mb=megabytes(4000),
            runtime=minutes(240),
        params:
            **job("semisyn.realism.engine.run_shard", f"semisyn.realism.{engine}"),
            options={"extractor": engine, "engine_settings": PLAN.semisyn.realism.engine_settings[engine]},
        message:
            "Features of the real images of shard {wildcards.shard}"
        script:
            "../../scripts/job.py"
