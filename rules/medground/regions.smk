# MedGround's regions: boxes and attributes of the components of each mask.


rule medground_regions_shard:
    input:
        sources="results/medground/sources/{source}/{shard}.h5",
        images="results/medground/sources/{source}/images.parquet",
    output:
        output="results/medground/regions/{source}/{shard}.parquet",
        dropped="results/medground/regions/{source}/{shard}.dropped.parquet",
        shifted="results/medground/regions/{source}/{shard}.shifted.parquet",
        excluded="results/medground/regions/{source}/{shard}.excluded.parquet",
    log:
        "logs/medground/regions/{source}/{shard}.log",
    benchmark:
        "results/benchmarks/medground/regions/{source}/{shard}.tsv"
    group:
        "medground"
    conda:
        "../../envs/review.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(3000),
        runtime=minutes(20),
    params:
        **job("medground.regions.make_regions.run_shard"),
        options=lambda wildcards: PLAN.medground.source_options("regions", wildcards.source),
    message:
        "MedGround: regions of the source {wildcards.source}, shard {wildcards.shard}"
    script:
        "../../scripts/job.py"


rule medground_regions:
    input:
        expand("results/medground/regions/{source}/{shard}.parquet", **PLAN.medground.all_shards),
