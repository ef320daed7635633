# Anomaly: the edited image without a lesion, and what differs from it.


rule anomaly_shard:
    input:
        **ENGINE_FILES["anomaly"],
        frames="results/frames/{shard}.h5",
        organs="results/organs/{shard}.h5",
    output:
        output="results/anomaly/{shard}.h5",
        excluded="results/anomaly/{shard}.excluded.parquet",
    log:
        "logs/anomaly/{shard}.log",
    benchmark:
        "results/benchmarks/anomaly/{shard}.tsv"
    group:
        GROUPS["anomaly"]
    conda:
        f"../envs/anomaly-{OPTIONS['anomaly']['engine']}.yaml"
    threads: 2
    resources:
        gpu=GPUS["anomaly"],
        mem_mb=megabytes(8000),
        runtime=minutes(1440 if GPUS["anomaly"] else 30),  # hundreds of passes through a large net for each image
    params:
        options=OPTIONS["anomaly"],
        code=code_digest("anomaly.py", f"ils.anomaly.{OPTIONS['anomaly']['engine']}"),
    script:
        "../scripts/anomaly.py"


rule anomaly:
    input:
        shards=expand("results/anomaly/{shard}.h5", shard=SHARDS),
        excluded=expand("results/anomaly/{shard}.excluded.parquet", shard=SHARDS),
        images="results/cohort/images.parquet",
    output:
        excluded="results/anomaly/excluded.parquet",
    log:
        "logs/anomaly/gather.log",
    benchmark:
        "results/benchmarks/anomaly/gather.tsv"
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
