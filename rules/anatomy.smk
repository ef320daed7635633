# Anatomy: zones, lobes and heart on the edited image.


rule anatomy_shard:
    input:
        **ENGINE_FILES["anatomy"],
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
        GROUPS["anatomy"]
    conda:
        f"../envs/anatomy-{OPTIONS['anatomy']['engine']}.yaml"
    threads: 2
    resources:
        gpu=GPUS["anatomy"],
        mem_mb=megabytes(6000),
        runtime=minutes(30),
    params:
        options=OPTIONS["anatomy"],
        code=code_digest("anatomy.py", f"ils.anatomy.{OPTIONS['anatomy']['engine']}"),
    script:
        "../scripts/anatomy.py"


rule anatomy:
    input:
        shards=expand("results/anatomy/{shard}.h5", shard=SHARDS),
        excluded=expand("results/anatomy/{shard}.excluded.parquet", shard=SHARDS),
        images="results/cohort/images.parquet",
    output:
        excluded="results/anatomy/excluded.parquet",
    log:
        "logs/anatomy/gather.log",
    benchmark:
        "results/benchmarks/anatomy/gather.tsv"
    localrule: True
    conda:
        "../envs/gather.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(5),
    params:
        code=code_digest("gather.py"),
    script:
        "../scripts/gather.py"
