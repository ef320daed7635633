# MedGround's sources: images and masks of each declared source, as shards.


rule medground_sources_read:
    input:
        unpack(lambda wildcards: PLAN.medground.files(wildcards.source)),
    output:
        shards=expand("results/medground/sources/{{source}}/{shard}.h5", shard=PLAN.medground.shards),
        images="results/medground/sources/{source}/images.parquet",
        excluded="results/medground/sources/{source}/excluded.parquet",
    log:
        "logs/medground/sources/{source}.log",
    benchmark:
        "results/benchmarks/medground/sources/{source}.tsv"
    conda:
        "../../envs/medground_sources.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(60),
    params:
        **job("medground.sources.read_sources.run"),
        options=lambda wildcards: PLAN.medground.of_source("sources", wildcards.source),
    message:
        "MedGround: the images and masks of the source {wildcards.source}"
    script:
        "../../scripts/job.py"


rule medground_sources:
    input:
        expand("results/medground/sources/{source}/images.parquet", source=PLAN.medground.sources),
