# Frames: decode, window and fit every accepted image to 512 x 512; one image a study.


rule frames_shard:
    input:
        cohort="results/cohort/{shard}.parquet",
    output:
        output="results/frames/{shard}.h5",
        excluded="results/frames/{shard}.excluded.parquet",
    log:
        "logs/frames/{shard}.log",
    benchmark:
        "results/benchmarks/frames/{shard}.tsv"
    group:
        "frames"
    conda:
        "../envs/frames.yaml"
    threads: 2
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(60),
    params:
        options=OPTIONS["frames"],
        code=code_digest("frames.py"),
    script:
        "../scripts/frames.py"


rule frames:
    input:
        shards=expand("results/frames/{shard}.h5", shard=SHARDS),
        excluded=expand("results/frames/{shard}.excluded.parquet", shard=SHARDS),
        images="results/cohort/images.parquet",
    output:
        excluded="results/frames/excluded.parquet",
    log:
        "logs/frames/gather.log",
    benchmark:
        "results/benchmarks/frames/gather.tsv"
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
