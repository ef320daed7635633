# Anatomy: masks of zones, lobes and heart, segmented on the edited image without lesions.


rule anatomy_shard:
    input:
        **PLAN.engine_files["anatomy"],
        frames="results/frames/{shard}.h5",
        anomaly="results/anomaly/{shard}.h5",
        organs="results/organs/{shard}.h5",
    output:
        output="results/anatomy/{shard}.h5",
        excluded="results/anatomy/{shard}.excluded.parquet",
    log:
        "logs/anatomy/{shard}.log",
    benchmark:
        "results/benchmarks/anatomy/{shard}.tsv"
    group:
        PLAN.groups["anatomy"]
    conda:
        PLAN.environments["anatomy"]
    threads: 2
    resources:
        gpu=PLAN.gpus["anatomy"],
        mem_mb=megabytes(6000),
        runtime=minutes(30),
    params:
        **job("imaging.anatomy.segment_anatomy.run_shard", f"imaging.anatomy.{PLAN.engines['anatomy']}"),
        options=PLAN.options["anatomy"],
    message:
        "Anatomy of shard {wildcards.shard}: zones, lobes and heart"
    script:
        "../../scripts/job.py"


rule anatomy:
    input:
        shards=expand("results/anatomy/{shard}.h5", shard=PLAN.shards),
        excluded="results/anatomy/excluded.parquet",
