# MedGround's sources: images and masks of each declared source, as shards.


rule medground_sources_read:
    input:
        unpack(lambda wildcards: PLAN.medground.source_files(wildcards.source)),
    output:
        shards=expand("results/medground/sources/{{source}}/{shard}.h5", shard=PLAN.medground.shards),
        images="results/medground/sources/{source}/images.parquet",
        excluded="results/medground/sources/{source}/excluded.parquet",
    log:
        "logs/medground/sources/{source}.log",
    benchmark:
        "results/benchmarks/medground/sources/{source}.tsv"
    wildcard_constraints:
        source=PLAN.medground.source_pattern(cohort=False),
    conda:
        "../../envs/medground_sources.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(60),
    params:
        **job("medground.sources.read_sources.run"),
        options=lambda wildcards: PLAN.medground.source_options("sources", wildcards.source),
    message:
        "MedGround: the images and masks of the source {wildcards.source}"
    script:
        "../../scripts/job.py"


rule medground_sources_cohort:
    input:
        frames=["results/frames/{shard}.h5"],
        organs=["results/organs/{shard}.h5"],
        anatomy=["results/anatomy/{shard}.h5"],
        cohort="results/cohort/images.parquet",
        findings=lambda wildcards: (
            f"results/masks/{PLAN.medground.sources[wildcards.source]['thresholds']}/findings.parquet"
        ),
        masks=lambda wildcards: [
            f"results/masks/{PLAN.medground.sources[wildcards.source]['thresholds']}/{wildcards.shard}.h5"
        ],
    output:
        shards=["results/medground/sources/{source}/{shard}.h5"],
        images="results/medground/sources/{source}/{shard}.images.parquet",
        excluded="results/medground/sources/{source}/{shard}.excluded.parquet",
    log:
        "logs/medground/sources/{source}/{shard}.log",
    benchmark:
        "results/benchmarks/medground/sources/{source}/{shard}.tsv"
    wildcard_constraints:
        source=PLAN.medground.source_pattern(cohort=True),
    group:
        "medground_sources"
    conda:
        "../../envs/medground_sources.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(30),
    params:
        **job("medground.sources.read_sources.run"),
        options=lambda wildcards: PLAN.medground.source_options("sources", wildcards.source),
    message:
        "MedGround: images and masks of shard {wildcards.shard}, source {wildcards.source}"
    script:
        "../../scripts/job.py"


rule medground_sources_tables:
    input:
        images=expand("results/medground/sources/{{source}}/{shard}.images.parquet", shard=PLAN.medground.shards),
        excluded=expand("results/medground/sources/{{source}}/{shard}.excluded.parquet", shard=PLAN.medground.shards),
    output:
        table="results/medground/sources/{source}/images.parquet",
        all_excluded="results/medground/sources/{source}/excluded.parquet",
    log:
        "logs/medground/sources/{source}/tables.log",
    benchmark:
        "results/benchmarks/medground/sources/{source}/tables.tsv"
    wildcard_constraints:
        source=PLAN.medground.source_pattern(cohort=True),
    localrule: True
    conda:
        "../../envs/medground_sources.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(10),
    params:
        **job("medground.sources.read_sources.run_tables"),
    message:
        "MedGround: tables of the source {wildcards.source}"
    script:
        "../../scripts/job.py"


rule medground_sources:
    input:
        expand("results/medground/sources/{source}/images.parquet", source=PLAN.medground.sources),
