# Dataset: instruction-answer pairs from findings and masks, one file a split, the same for any number of shards.


rule dataset_pairs:
    input:
        reports=expand("results/reports/{shard}.jsonl", shard=SHARDS),
        units=expand("results/masks/{{thresholds}}/{shard}.units.parquet", shard=SHARDS),
        studies=expand("results/masks/{{thresholds}}/{shard}.studies.parquet", shard=SHARDS),
    output:
        train="results/dataset/{thresholds}/train.jsonl",
        validate="results/dataset/{thresholds}/validate.jsonl",
        test="results/dataset/{thresholds}/test.jsonl",
        excluded="results/dataset/{thresholds}/excluded.parquet",
        # pairs that were not made, and why
        dropped="results/dataset/{thresholds}/dropped.parquet",
    log:
        "logs/dataset/{thresholds}/pairs.log",
    benchmark:
        "results/benchmarks/dataset/{thresholds}/pairs.tsv"
    group:
        "tables"
    conda:
        "../envs/dataset.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(30),
    params:
        options=OPTIONS["dataset"],
        code=code_digest("dataset.py", "ils.dataset.stage"),
    script:
        "../scripts/dataset.py"


# The layout of the authors' release, for their own training code: with dataset.released_layout, or by its path.
rule dataset_layout:
    input:
        train="results/dataset/{thresholds}/train.jsonl",
        validate="results/dataset/{thresholds}/validate.jsonl",
        test="results/dataset/{thresholds}/test.jsonl",
        index="results/masks/{thresholds}/index.parquet",
        masks=expand("results/masks/{{thresholds}}/{shard}.h5", shard=SHARDS),
        frames=expand("results/frames/{shard}.h5", shard=SHARDS),
    output:
        layout=directory("results/dataset/{thresholds}/layout"),
    log:
        "logs/dataset/{thresholds}/layout.log",
    benchmark:
        "results/benchmarks/dataset/{thresholds}/layout.tsv"
    conda:
        "../envs/dataset.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(8000),
        runtime=minutes(240),
    params:
        pixels=OPTIONS["layout"]["pixels"],
        code=code_digest("dataset.py", "ils.dataset.layout"),
    script:
        "../scripts/dataset.py"


# The way back: a release as the dataset of the threshold set `release`, to train and score on.
rule dataset_release:
    input:
        folder=SETTINGS.dataset.release or [],
    output:
        train="results/dataset/release/train.jsonl",
        validate="results/dataset/release/validate.jsonl",
        test="results/dataset/release/test.jsonl",
        pictures="results/dataset/release/pictures.tsv",
        masks="results/masks/release/release.h5",
        index="results/masks/release/index.parquet",
    log:
        "logs/dataset/release.log",
    benchmark:
        "results/benchmarks/dataset/release.tsv"
    conda:
        "../envs/dataset.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(16000),  # all masks of the authors' release, packed, and all lines
        runtime=minutes(240),
    params:
        images=OPTIONS["imported"]["images"],
        code=code_digest("dataset.py", "ils.dataset.layout"),
    script:
        "../scripts/dataset.py"


rule dataset:
    input:
        lines=expand("results/dataset/{thresholds}/{split}.jsonl", thresholds=BUILD, split=SPLITS),
        excluded=expand("results/dataset/{thresholds}/excluded.parquet", thresholds=BUILD),
        layout=expand("results/dataset/{thresholds}/layout", thresholds=LAYOUTS),
        stages=expand("results/{stage}/excluded.parquet", stage=STAGES[:-1]),
        images="results/cohort/images.parquet",
    output:
        excluded="results/dataset/excluded.parquet",
    log:
        "logs/dataset/gather.log",
    benchmark:
        "results/benchmarks/dataset/gather.tsv"
    localrule: True
    conda:
        "../envs/gather.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(5),
    params:
        thresholds=BUILD,
        code=code_digest("gather.py"),
    script:
        "../scripts/gather.py"
