# Masks: Algorithm 1 of the paper. The lesion masks, confirmed findings and positive pairs depend on thresholds.


rule masks_shard:
    input:
        cohort="results/cohort/{shard}.parquet",
        frames="results/frames/{shard}.h5",
        organs="results/organs/{shard}.h5",
        anomaly="results/anomaly/{shard}.h5",
        anatomy="results/anatomy/{shard}.h5",
        boxes="results/boxes/{shard}.parquet",
        boxes_excluded="results/boxes/{shard}.excluded.parquet",
        reports="results/reports/{shard}.jsonl",
    output:
        output="results/masks/{thresholds}/{shard}.h5",
        findings="results/masks/{thresholds}/{shard}.findings.parquet",
        units="results/masks/{thresholds}/{shard}.units.parquet",
        studies="results/masks/{thresholds}/{shard}.studies.parquet",
        excluded="results/masks/{thresholds}/{shard}.excluded.parquet",
    log:
        "logs/masks/{thresholds}/{shard}.log",
    benchmark:
        "results/benchmarks/masks/{thresholds}/{shard}.tsv"
    group:
        "masks"
    conda:
        "../../envs/masks.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(5),
    params:
        **job("ils.masks.make_masks.run_shard"),
        options=PLAN.options["masks"],
        thresholds=lambda wildcards: PLAN.sets[wildcards.thresholds],
    message:
        "Lesion masks of shard {wildcards.shard}, thresholds {wildcards.thresholds}"
    script:
        "../../scripts/job.py"


rule masks_index:
    input:
        masks=expand("results/masks/{{thresholds}}/{shard}.h5", shard=PLAN.shards),
        findings_parts=expand("results/masks/{{thresholds}}/{shard}.findings.parquet", shard=PLAN.shards),
        excluded_parts=expand("results/masks/{{thresholds}}/{shard}.excluded.parquet", shard=PLAN.shards),
    output:
        index="results/masks/{thresholds}/index.parquet",
        findings="results/masks/{thresholds}/findings.parquet",
        excluded="results/masks/{thresholds}/excluded.parquet",
    log:
        "logs/masks/{thresholds}/index.log",
    benchmark:
        "results/benchmarks/masks/{thresholds}/index.tsv"
    group:
        "tables"
    conda:
        "../../envs/masks.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(15),
    params:
        **job("ils.masks.make_masks.run_index"),
    message:
        "Index of all lesion masks, thresholds {wildcards.thresholds}"
    script:
        "../../scripts/job.py"


# Recall and yield of all threshold sets in one pass, which costs little more than one set.
rule masks_sweep:
    input:
        cohort="results/cohort/{shard}.parquet",
        frames="results/frames/{shard}.h5",
        organs="results/organs/{shard}.h5",
        anomaly="results/anomaly/{shard}.h5",
        anatomy="results/anatomy/{shard}.h5",
        boxes="results/boxes/{shard}.parquet",
        boxes_excluded="results/boxes/{shard}.excluded.parquet",
        reports="results/reports/{shard}.jsonl",
    output:
        output="results/masks/sweep/{shard}.parquet",
    log:
        "logs/masks/sweep/{shard}.log",
    benchmark:
        "results/benchmarks/masks/sweep/{shard}.tsv"
    group:
        "sweep"
    conda:
        "../../envs/masks.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(15),
    params:
        **job("ils.masks.sweep.run_shard"),
        options=PLAN.options["masks"],
        sets=PLAN.sets,
    message:
        "Lesion masks of shard {wildcards.shard} at every threshold set and grid point"
    script:
        "../../scripts/job.py"


rule masks:
    input:
        index=expand("results/masks/{thresholds}/index.parquet", thresholds=PLAN.build),
        excluded="results/masks/excluded.parquet",
