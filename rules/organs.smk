# Organs: lungs and heart on the image; pictures that are no whole chest stop here.


rule organs_shard:
    input:
        **ENGINE_FILES["organs"],
        frames="results/frames/{shard}.h5",
    output:
        output="results/organs/{shard}.h5",
        excluded="results/organs/{shard}.excluded.parquet",
    log:
        "logs/organs/{shard}.log",
    benchmark:
        "results/benchmarks/organs/{shard}.tsv"
    group:
        GROUPS["organs"]
    conda:
        f"../envs/organs-{OPTIONS['organs']['engine']}.yaml"
    threads: 2
    resources:
        gpu=GPUS["organs"],
        mem_mb=megabytes(4000),
        runtime=minutes(15 if GPUS["organs"] else 40),
    params:
        options=OPTIONS["organs"],
        code=code_digest("organs.py", "ils.organs.stage", f"ils.organs.{OPTIONS['organs']['engine']}"),
    script:
        "../scripts/organs.py"


# For the engine chexmask: the published table, 15 GB, is read once and not once a shard.
rule organs_chexmask:
    input:
        table=ENGINE_SOURCES["organs"].get("table", []),
        cohort=expand("results/cohort/{shard}.parquet", shard=SHARDS),
    output:
        output=expand("results/organs/chexmask/{shard}.csv.gz", shard=SHARDS),
    log:
        "logs/organs/chexmask.log",
    benchmark:
        "results/benchmarks/organs/chexmask.tsv"
    conda:
        "../envs/organs-chexmask.yaml"
    threads: 2
    resources:
        mem_mb=megabytes(6000),
        runtime=minutes(120),
    params:
        code=code_digest("organs.py", "ils.organs.published"),
    script:
        "../scripts/organs.py"


rule organs:
    input:
        shards=expand("results/organs/{shard}.h5", shard=SHARDS),
        excluded=expand("results/organs/{shard}.excluded.parquet", shard=SHARDS),
        images="results/cohort/images.parquet",
    output:
        excluded="results/organs/excluded.parquet",
    log:
        "logs/organs/gather.log",
    benchmark:
        "results/benchmarks/organs/gather.tsv"
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
